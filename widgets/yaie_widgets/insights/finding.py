"""A finding as plain data: what was found, the figures behind it, how sure it is and what follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from yaie_widgets.figures import count, counted, seconds
from yaie_widgets.prompt_split import Split

Severity = Literal["high", "medium", "info"]
Confidence = Literal["measured", "inferred"]
RANK = {"high": 0, "medium": 1, "info": 2}
NO_DATA = "no data"
GLYPHS = {"high": "▲", "medium": "◆", "info": "○", NO_DATA: "┄"}
# JSON gives times to the microsecond and shares to the millionth: what is finer is noise.
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure with its unit; seconds are given in "s" and shares in "%"."""

    name: str
    value: int | float
    unit: str = ""

    @property
    def shown(self) -> str:
        """The figure in the project's notation."""
        if self.unit == "s":
            return seconds(self.value)
        if isinstance(self.value, float):
            return f"{self.value:,.1f} {self.unit}".rstrip()
        # A unit that counts things agrees with its number: 1 token, 2 tokens.
        return f"{count(self.value)} {self.unit.removesuffix('s') if self.value == 1 else self.unit}".rstrip()

    def to_dict(self) -> dict[str, Any]:
        value = self.value if isinstance(self.value, int) else round(self.value, _DIGITS)
        return {"name": self.name, "value": value, "unit": self.unit}


@dataclass(frozen=True, slots=True)
class Span:
    """What a finding was measured over: steps from `first` to `last`, both None where no step counts."""

    first: int | None
    last: int | None
    requests: int

    @property
    def words(self) -> str:
        """`steps 1 to 60, 12 requests`."""
        if self.first is None or self.last is None:
            return counted(self.requests, "request")
        return f"steps {count(self.first)} to {count(self.last)}, {counted(self.requests, 'request')}"

    def to_dict(self) -> dict[str, Any]:
        steps = None if self.first is None or self.last is None else [self.first, self.last]
        return {"steps": steps, "requests": self.requests}


@dataclass(frozen=True, slots=True)
class Pair:
    """A request whose prompt begins like another one's, and where the two part."""

    request_id: str
    other_id: str
    cached: int
    split: Split

    @property
    def words(self) -> str:
        """Which tokens are equal and where the prompts part."""
        head = f"{self.request_id} and {self.other_id} begin with the same {counted(self.split.tokens, 'token')}"
        parted = f"they part at token {count(self.split.tokens + 1)}"
        return f"{head}, {count(self.cached)} came from the cache; {parted}"

    @property
    def sides(self) -> tuple[tuple[str, str], ...]:
        """The text around the split: what both have, then what each goes on with."""
        return (
            ("both", self.split.before or "nothing"),
            (self.request_id, self.split.this or "ends here"),
            (self.other_id, self.split.other or "ends here"),
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "request_id": self.request_id,
            "other_id": self.other_id,
            "equal_tokens": self.split.tokens,
            "cached_tokens": self.cached,
            "parts_at_token": self.split.tokens + 1,
            "before": self.split.before,
            "this": self.split.this,
            "other": self.split.other,
        }


@dataclass(frozen=True, slots=True)
class Finding:
    """`missing` says what a finding without data lacks; `timed` ones rest on measured times.

    `title` and `statement` hold figures and names only: text of a model stands in `pairs` alone.
    """

    id: str
    severity: Severity
    title: str
    statement: str
    span: Span
    evidence: tuple[Figure, ...] = ()
    request_ids: tuple[str, ...] = ()
    confidence: Confidence = "measured"
    missing: str | None = None
    recommendation: str | None = None
    pairs: tuple[Pair, ...] = ()
    timed: bool = False

    @property
    def mark(self) -> str:
        """The word that stands beside the glyph."""
        return NO_DATA if self.missing else self.severity

    @property
    def order(self) -> int:
        """Its place in a list: by severity, what lacks data last."""
        return len(RANK) if self.missing else RANK[self.severity]

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "id": self.id,
            "severity": self.severity,
            "title": self.title,
            "statement": self.statement,
            "evidence": [figure.to_dict() for figure in self.evidence],
            "request_ids": list(self.request_ids),
            "pairs": [pair.to_dict() for pair in self.pairs],
            "confidence": self.confidence,
            "measured_over": self.span.to_dict(),
            "availability": "unavailable" if self.missing else "available",
            "missing": self.missing,
            "recommendation": self.recommendation,
        }


def unavailable(name: str, title: str, missing: str, span: Span) -> Finding:
    """A finding that cannot be computed; `missing` says what it would need."""
    return Finding(name, "info", title, f"{missing[:1].upper()}{missing[1:]}.", span, missing=missing)

"""What an answer cost, in a line after it, and what all of them did, for /stats."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from yaie_engine import RequestOutput


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one answer, or sums over several. A server that does not tell a count leaves it at None."""

    answers: int = 0
    prompt: int | None = 0
    cached: int | None = 0
    generated: int | None = 0
    rate: float | None = None
    first_token_s: float | None = None
    end: str = ""

    def line(self) -> str:
        """One answer in a line; what is not known is left out."""
        parts = []
        if self.prompt is not None:
            cached = f", {self.cached:,} cached" if self.cached is not None else ""
            parts.append(f"{self.prompt:,} prompt tokens{cached}")
        if self.generated is not None:
            parts.append(f"{self.generated:,} new")
        if self.rate is not None:
            parts.append(f"{self.rate:,.0f} tokens/s")
        return " · ".join([*parts, self.end])

    def plus(self, other: Figures) -> Figures:
        """The sum; rate, time and end are those of the later one."""
        return replace(
            other,
            answers=self.answers + other.answers,
            prompt=_sum(self.prompt, other.prompt),
            cached=_sum(self.cached, other.cached),
            generated=_sum(self.generated, other.generated),
        )

    def rows(self) -> Iterator[tuple[str, str]]:
        """Name and value of the sums that are known, then of the newest answer."""
        yield "answers", f"{self.answers:,}"
        if self.prompt:
            share = "" if self.cached is None else f", {self.cached:,} of them cached ({self.cached / self.prompt:.0%})"
            yield "prompt tokens", f"{self.prompt:,}{share}"
        if self.generated:
            yield "new tokens", f"{self.generated:,}"
        if self.rate is not None:
            yield "last answer", f"{self.rate:,.0f} tokens/s"
        if self.first_token_s is not None:
            yield "its first token", f"after {self.first_token_s * 1000:,.0f} ms"


def figures_of(output: RequestOutput) -> Figures:
    """Those of a request with one choice."""
    choice, times = output.outputs[0], output.metrics
    known = bool(output.prompt_token_ids)
    return Figures(
        answers=1,
        prompt=len(output.prompt_token_ids) if known else None,
        cached=output.num_cached_tokens if known else None,
        generated=len(choice.token_ids) if choice.token_ids or not choice.text else None,
        rate=1 / times.tpot_s if times.tpot_s else None,
        first_token_s=times.ttft_s,
        end=choice.finish_reason or "unfinished",
    )


def show(line: str) -> None:
    """The line on standard error, dim where that is a terminal with colours."""
    plain = not sys.stderr.isatty() or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    print(line if plain else f"\x1b[2m{line}\x1b[0m", file=sys.stderr, flush=True)


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other

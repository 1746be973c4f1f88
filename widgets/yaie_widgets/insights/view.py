"""How findings show: as text, as a framed list in a notebook, and as JSON; all from the same list."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from yaie_widgets.figures import count, counted, listed
from yaie_widgets.mode import static_mode
from yaie_widgets.palette import notebook_style
from yaie_widgets.safe_text import escape_html, shorten, visible

from .finding import GLYPHS, Finding, Pair, Span

_WIDTH = 100
_INDENT = " " * 10
_NAME = 40
_IDS = 6
_MARKS = {
    "high": '<path class="f-ink" d="M6 .8L11.6 11H.4z"/>',
    "medium": '<path class="f-ink" d="M6 .6L11.4 6 6 11.4.6 6z"/>',
    "info": '<circle class="s-ink" cx="6" cy="6" r="4.6" fill="none" stroke-width="1.5"/>',
    "no data": '<path class="s-ink" d="M1 6h10" fill="none" stroke-width="1.6" stroke-dasharray="2 2"/>',
}
# Figures stand beside the words, and below them where the cell is narrow. Where a host strips styles, all parts stand
# below each other and say the same.
_STYLE = (
    "div.yaie-drawing.insights{width:auto;max-width:960px;container-type:inline-size;font-size:13px;line-height:18px}"
    ".insights .head{display:flex;flex-wrap:wrap;gap:2px 12px;align-items:baseline;padding:9px 12px}"
    ".insights .head span{color:var(--y-ink2);font-size:12px}"
    ".insights .finding{display:grid;grid-template-columns:84px minmax(0,1fr) 216px;gap:4px 14px;padding:9px 12px;"
    "border-top:1px solid var(--y-line)}"
    ".insights .mark{white-space:nowrap;font-size:12px}"
    ".insights .mark svg{width:12px;height:12px;vertical-align:-1px;margin-right:6px}"
    ".insights .title{font-weight:600}"
    ".insights .line{font-size:12px;line-height:17px;margin-top:2px;max-width:78ch}"
    ".insights .faint{color:var(--y-ink2)}"
    ".insights .quote{white-space:pre-wrap;overflow-wrap:anywhere}"
    ".insights .side{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:0 10px}"
    ".insights .facts>div{display:flex;justify-content:space-between;gap:10px;font-size:12px;line-height:17px}"
    ".insights .facts span{color:var(--y-ink2)}"
    ".insights .facts b{font-weight:400;font-variant-numeric:tabular-nums;text-align:right;white-space:nowrap}"
    "@container (max-width:700px){.insights .finding{grid-template-columns:84px minmax(0,1fr)}"
    ".insights .facts{grid-column:2;max-width:300px}}"
)


@dataclass(frozen=True, eq=False)
class Insights:
    """Findings, most severe first, and the recorded steps they come from. In static mode those with times are gone."""

    all_findings: tuple[Finding, ...]
    window: Span

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is shown, in all forms."""
        return tuple(each for each in self.all_findings if not (each.timed and static_mode()))

    def to_list(self) -> list[dict[str, Any]]:
        """The findings as plain data: what `--json` prints."""
        return [finding.to_dict() for finding in self.findings]

    @property
    def title(self) -> str:
        """What was looked at, and how many findings of each severity there are."""
        if self.window.first is None:
            return f"Insights · no step recorded yet · {self._sums()}"
        return f"Insights · {self.window.words.replace(', ', ' · ')} · {self._sums()}"

    @property
    def nothing(self) -> str | None:
        """The sentence for a run without findings."""
        if self.findings:
            return None
        if self.window.first is None or self.window.last is None:
            return "Nothing to report: no step has been recorded yet."
        return f"Nothing to report over steps {count(self.window.first)} to {count(self.window.last)}."

    def _sums(self) -> str:
        sums = Counter(finding.mark for finding in self.findings)
        return " · ".join(f"{sums[mark]} {mark}" for mark in GLYPHS if sums[mark]) or counted(0, "finding")

    @property
    def text(self) -> str:
        """The findings for a terminal."""
        if self.nothing:
            return self.nothing
        blocks = ["\n".join(_lines(finding)) for finding in self.findings]
        return "\n\n".join([self.title, *blocks])

    def __repr__(self) -> str:
        return f"<{self.title}>"

    def __str__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": self.text, "text/html": self._html()}

    def _html(self) -> str:
        name, _, rest = self.title.partition(" · ")
        head = f'<div class="head"><b>{name}</b><span>{escape_html(self.nothing or rest)}</span></div>'
        rows = f'<div role="list">{"".join(map(_row, self.findings))}</div>'
        return f'<div class="yaie-drawing insights"><style>{notebook_style()}{_STYLE}</style>{head}{rows}</div>'


def _facts(finding: Finding) -> list[tuple[str, str]]:
    """The column of figures: evidence, then how sure it is and what it was measured over."""
    facts = [(figure.name, figure.shown) for figure in finding.evidence]
    if not finding.missing:
        facts.append(("confidence", finding.confidence))
    return facts


def _over(finding: Finding) -> str:
    """Which requests, and what the finding was measured over."""
    ids = listed((shorten(name, _NAME) for name in finding.request_ids), _IDS)
    return " · ".join(filter(None, (ids, f"over {finding.span.words}" if _measured(finding) else "")))


def _measured(finding: Finding) -> bool:
    return not finding.missing and (finding.span.first is not None or finding.span.requests > 0)


def _lines(finding: Finding) -> Iterator[str]:
    yield f"{GLYPHS[finding.mark]} {finding.mark:<7} {visible(finding.title)}"
    yield from _wrapped(visible(finding.statement))
    yield from _unbroken([f"{visible(name)} {visible(words)}" for name, words in _facts(finding)])
    for pair in finding.pairs:
        yield from _wrapped(visible(pair.words))
        yield from (f"{_INDENT}  {name}: {words}" for name, words in _sides(pair))
    if finding.recommendation:
        yield from _wrapped(f"→ {finding.recommendation}")
    yield from _wrapped(_over(finding))


def _wrapped(words: str) -> list[str]:
    return textwrap.wrap(words, _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT, break_on_hyphens=False)


def _unbroken(pieces: list[str]) -> list[str]:
    """Pieces in lines: a figure stays together with its name and unit."""
    # No piece holds a NUL: control characters became visible before.
    joined = " · ".join(piece.replace(" ", "\0") for piece in pieces)
    return [line.replace("\0", " ") for line in _wrapped(joined)]


def _sides(pair: Pair) -> list[tuple[str, str]]:
    """Names and texts around a split, fit to show."""
    sides = [(shorten(name, _NAME), visible(words)) for name, words in pair.sides]
    width = max(len(name) for name, _ in sides)
    return [(name.ljust(width), words) for name, words in sides]


def _row(finding: Finding) -> str:
    mark = f'<svg viewBox="0 0 12 12" aria-hidden="true">{_MARKS[finding.mark]}</svg>{finding.mark}'
    body = [f'<div class="title">{escape_html(finding.title)}</div>', _line(finding.statement)]
    body += [_pair(pair) for pair in finding.pairs]
    if finding.recommendation:
        body.append(_line(f"→ {finding.recommendation}"))
    if _over(finding):
        body.append(f'<div class="line faint">{escape_html(_over(finding))}</div>')
    facts = "".join(
        f"<div><span>{escape_html(name)}</span> <b>{escape_html(words)}</b></div>" for name, words in _facts(finding)
    )
    return (
        f'<div class="finding" role="listitem"><div class="mark">{mark}</div><div>{"".join(body)}</div>'
        f'<div class="facts">{facts}</div></div>'
    )


def _line(words: str) -> str:
    return f'<div class="line">{escape_html(words)}</div>'


def _pair(pair: Pair) -> str:
    sides = "".join(
        f'<span class="faint">{escape_html(name.strip())}</span> <span class="quote">{escape_html(words)}</span>'
        for name, words in _sides(pair)
    )
    return f'{_line(pair.words)}<div class="line side">{sides}</div>'

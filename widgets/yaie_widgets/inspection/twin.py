"""The static form of an inspected answer: the same marks and figures as the live view, without a script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from yaie_widgets.figures import count
from yaie_widgets.live.bundle import twin_css
from yaie_widgets.safe_text import escape_text

from .answer import Answer, percent
from .excerpt import output_parts, prompt_parts
from .panel import Panel, entropy_words, panel_of
from .plain import plain_text
from .reading import Reading
from .scale import SCALES, level_of_entropy, level_of_probability


def twin_bundle(answers: Sequence[Answer], colour: str = "probability") -> dict[str, str]:
    """All answers, one below the other, as text and as HTML."""
    html = "".join(_answer(each, colour) for each in answers)
    return {
        "text/plain": "\n\n".join(map(plain_text, answers)),
        "text/html": f'<div class="yaie y-ins"><style>{twin_css("inspector")}</style>{html}</div>',
    }


def _answer(answer: Answer, colour: str) -> str:
    head = f'<div class="y-ins-hd"><b>{escape_text(answer.title)}</b>'
    head += f'<span class="y-ins-meta">{escape_text(answer.counts)}</span>'
    if answer.reuse:
        head += f'<span class="y-ins-meta">{escape_text(answer.reuse)}</span>'
    left = "".join([*_prompt(answer, colour), *_output(answer, colour)])
    if answer.rows is not None or answer.prompt_rows is not None:
        left += _legend(colour)
    left += "".join(f'<div class="y-ins-note">{escape_text(note)}</div>' for note in answer.notes)
    return f'{head}</div><div class="y-ins-two"><div class="y-ins-left">{left}</div>{_panel(answer)}</div>'


def _prompt(answer: Answer, colour: str) -> Iterator[str]:
    cached = min(answer.cached, answer.start)
    chips = [("hit", cached, "cached"), ("cmp", answer.start - cached, "computed")]
    shown = "".join(
        f'<span class="y-ins-chip"><i class="{name}"></i>{count(number)} {word}</span>' for name, number, word in chips
    )
    yield f'<div class="y-ins-cap"><span>Prompt</span>{shown}</div>'
    tokens = _tokens(answer, prompt_parts(answer.start, cached), 0, answer.start, colour)
    yield f'<div class="y-ins-toks">{tokens}</div>'


def _output(answer: Answer, colour: str) -> Iterator[str]:
    yield f'<div class="y-ins-cap"><span>Output</span><span>{escape_text(answer.stats)}</span></div>'
    parts = [(answer.start + first, answer.start + last) for first, last in output_parts(len(answer.output))]
    yield f'<div class="y-ins-toks">{_tokens(answer, parts, answer.start, answer.end, colour)}</div>'


def _tokens(answer: Answer, parts: Sequence[tuple[int, int]], start: int, end: int, colour: str) -> str:
    pieces: list[str] = []
    at = start
    for first, last in [*parts, (end, end)]:
        if first > at:
            pieces.append(f'<span class="y-ins-gap">… {count(first - at)} more …</span>')
        pieces += [_ticks(answer, position) + _token(answer, position, colour) for position in range(first, last)]
        at = last
    return "".join(pieces)


def _ticks(answer: Answer, position: int) -> str:
    """The marks in front of a token."""
    marks = ""
    if answer.blocks is not None and position % answer.blocks.size == 0:
        marks = f'<span class="y-ins-tick" data-b="b{position // answer.blocks.size}"></span>'
    if answer.source(position) == "branch":
        marks += '<span class="y-ins-tick fork" data-b="branch"></span>'
    return marks


def _token(answer: Answer, position: int, colour: str) -> str:
    reading = answer.readings[answer.token(position)]
    classes = " ".join(["y-ins-tok", *token_classes(answer, position, colour)])
    line_break = "<br>" if reading.ends_line and position + 1 not in (answer.start, answer.end) else ""
    return f'<span class="{classes}" title="{escape_text(_tip(answer, position))}">{_runs(reading)}</span>{line_break}'


def token_classes(answer: Answer, position: int, colour: str) -> list[str]:
    """What a token looks like: its part of the prompt, its step on the colour scale, whether it is special."""
    found = []
    if position < answer.start:
        found.append("hit" if position < answer.cached else "cmp")
    row, chosen = answer.row(position), answer.chosen(position)
    if row is not None and chosen is not None:
        level = level_of_probability(chosen.probability) if colour == "probability" else level_of_entropy(row.low)
        found.append(f"l{level}")
    if answer.readings[answer.token(position)].special:
        found.append("spc")
    return found


def _tip(answer: Answer, position: int) -> str:
    """The figures of a token in one line."""
    token_id = answer.token(position)
    parts = [answer.readings[token_id].text, f"id {token_id}"]
    row, chosen = answer.row(position), answer.chosen(position)
    if row is not None and chosen is not None:
        parts += [percent(chosen.probability), f"rank {count(chosen.rank)}", entropy_words(row)]
    return " · ".join(parts)


def _runs(reading: Reading) -> str:
    return "".join(
        f"<i>{escape_text(run)}</i>" if place % 2 else escape_text(run) for place, run in enumerate(reading.runs) if run
    )


def _legend(colour: str) -> str:
    scale = SCALES[colour]
    steps = "".join(
        f'<span class="y-ins-chip"><i class="y-ins-step l{level}"></i>{escape_text(label)}</span>'
        for level, label in enumerate(scale["labels"])
    )
    return f'<div class="y-ins-legend"><span>{escape_text(scale["title"])}</span>{steps}</div>'


def _panel(answer: Answer) -> str:
    """The panel of the token that surprised most."""
    position = answer.least_likely
    if position is None:
        position = answer.start if answer.output else answer.start - 1
    panel = panel_of(answer, position)
    figures = "".join(f"<dt>{escape_text(name)}</dt><dd>{escape_text(value)}</dd>" for name, value in panel.figures)
    head = f"<b>{_runs(answer.readings[panel.token_id])}</b><span>{escape_text(panel.place)}</span>"
    return (
        f'<div class="y-ins-panel"><div class="y-ins-ptop">{head}</div><dl class="y-ins-kv">{figures}</dl>'
        f"{_bars(answer, panel)}</div>"
    )


def _bars(answer: Answer, panel: Panel) -> str:
    if not panel.bars:
        return ""
    rows = "".join(
        f'<div class="y-ins-alt{" on" if bar.chosen else ""}"><span>{_runs(answer.readings[bar.token_id])}</span>'
        f'<span class="y-ins-bar"><i style="width:{max(0.8, bar.share * 100):.1f}%"></i></span>'
        f"<span>{escape_text(bar.shown)}</span><span>{'chosen' if bar.chosen else ''}</span></div>"
        for bar in panel.bars
    )
    return f'<div class="y-ins-cap">Alternatives at this position</div>{rows}'

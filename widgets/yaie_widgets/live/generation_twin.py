"""What stays in the notebook of a finished generation: the view without script, button or input, same marks, same
figures, same height."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from yaie_widgets.safe_text import escape_text, visible

from .bundle import twin_css
from .generation_prompt import Piece, PromptView
from .generation_row import Row, tally

TALL: Final = 12  # more rows than this stand in a frame of fixed height
# The signs of states, in a box of 12 by 12: the same paths as in js/generation.js.
SIGNS: Final = {
    "waiting": ("M.5 4.5h11v3H.5z", "line edge"),
    "prefill": ("M0 2h12v8H0z", "prefill"),
    "cached": ("M0 2h12v8H0z", "cached"),
    "decode": ("M0 4h12v4H0z", "decode"),
    "preempted": ("M.5 2.5h11v7H.5zM2 9l6-6M6 9l5-5", "line lost"),
    "swapped": ("M.5 2.5h11v7H.5zM10 9L4 3M6 9L1 4", "line swapped"),
    "stop": ("M6 2.6a3.4 3.4 0 100 6.8 3.4 3.4 0 100-6.8z", "ink"),
    "length": ("M2.8 2.8h6.4v6.4H2.8z", "ink"),
    "cancelled": ("M3 3L9 9M9 3L3 9", "line ink"),
    "failed": ("M3 3L9 9M9 3L3 9", "line ink"),
}


def generation_html(row: Row, text: str) -> str:
    """One request."""
    head = (
        f'<div class="y-gen-head"><b class="y-gen-id">{escape_text(row.id)}</b>{_state(row)}<i class="y-gen-gap"></i>'
    )
    head += f'<span class="y-gen-note">{escape_text(row.note)}</span></div>'
    return _frame(f"Result of {row.id}", f"{head}{_body(row, text)}")


def stacked_html(title: str, rows: Sequence[Row], texts: Sequence[str], noun: str = "request") -> str:
    """Many requests, one row each; a row opens by itself."""
    note = f'<span class="y-gen-note">{escape_text(tally(rows, len(rows), noun))}</span>'
    head = f'<div class="y-gen-head"><b class="y-gen-id">{escape_text(title)}</b>{note}</div>'
    names = ("Request", "Prompt and last line of output", "Progress", "Output", "Rate", "First token", "")
    top = "".join(f"<span>{name}</span>" for name in names)
    lines = "".join(map(_item, rows, texts))
    tall = " tall" if len(rows) > TALL else ""
    legend = "".join(
        f'<span class="y-gen-chip">{sign(mark)}{word}</span>'
        for mark, word in (("cached", "cached prompt"), ("prefill", "computed prompt"), ("decode", "output"))
    )
    body = f'<div class="y-gen-row y-gen-names">{top}</div><div class="y-gen-list{tall}">{lines}</div>'
    return _frame(title, f'{head}{body}<div class="y-gen-legend">{legend}</div>', "generation_many")


def _frame(label: str, inside: str, *sheets: str) -> str:
    style = f"<style>{twin_css('generation_parts', *sheets)}</style>"
    return f'<div class="yaie y-gen twin" role="group" aria-label="{escape_text(label)}">{style}{inside}</div>'


def _item(row: Row, text: str) -> str:
    summary = f'<summary class="y-gen-row">{_cells(row, text)}</summary>'
    return f'<details class="y-gen-item">{summary}{_body(row, text)}</details>'


def _state(row: Row) -> str:
    status = escape_text(row.status)
    return f'<span class="y-gen-state">{sign(row.mark)}<span title="{status}">{status}</span></span>'


def _body(row: Row, text: str) -> str:
    stats = "".join(
        f"<div><dt>{name}</dt><dd>{escape_text(figure)}{f'<i> {unit}</i>' if unit else ''}</dd></div>"
        for name, figure, unit in row.stats
    )
    # A <pre> drops a newline that comes first.
    return (
        f'<div class="y-gen-body">{_split(row)}{_prompt(row.prompt)}'
        f'<pre class="y-gen-text">\n{escape_text(text)}</pre><dl class="y-gen-stats">{stats}</dl></div>'
    )


def _split(row: Row) -> str:
    cached, computed, _, prompt, _ = row.bar
    marks = zip(("cached", "prefill"), row.parts, strict=True)
    chips = "".join(f'<span class="y-gen-chip">{sign(mark)}<span>{words}</span></span>' for mark, words in marks)
    return (
        f'<div class="y-gen-split"><span class="y-gen-small">{row.size}</span>'
        f'{_bar((cached, computed, 0), prompt)}<span class="y-gen-chips">{chips}</span></div>'
    )


def _prompt(prompt: PromptView) -> str:
    lines = "".join(
        f'<span class="y-gen-line{" tail" if number else ""}"><span>{_pieces(line)}</span></span>'
        for number, line in enumerate(prompt.lines)
    )
    return (
        f'<details class="y-gen-prompt"><summary title="Show the whole prompt">{lines}'
        f'<span class="y-gen-whole">{_pieces(prompt.whole)}</span></summary></details>'
    )


def _pieces(pieces: Sequence[Piece]) -> str:
    return "".join(f'<span class="{kind}">{escape_text(text)}</span>' for text, kind in pieces)


def _cells(row: Row, text: str) -> str:
    figures = {name: (figure, unit) for name, figure, unit in row.stats}
    last = text.rstrip().rpartition("\n")[2] if text.strip() else row.status
    prompt = "".join(piece for piece, _ in row.prompt.lines[0]) if row.prompt.lines else ""
    numbers = "".join(
        f'<span class="y-gen-num{more}">{_figure(*figures.get(name, ("", "")))}</span>'
        for name, more in (("Output", ""), ("Rate", ""), ("First token", " first"))
    )
    return (
        f'<span><span class="y-gen-cut">{escape_text(row.id)}</span>'
        f'<span class="y-gen-sub">{sign(row.mark, 10)}<span class="y-gen-cut">{row.state}</span></span></span>'
        f'<span class="y-gen-two"><span class="y-gen-cut y-gen-quiet">{escape_text(prompt)}</span>'
        f'<span class="y-gen-cut">{escape_text(visible(last[:200]))}</span></span>'
        f"{_bar(row.bar[:3], row.bar[4])}{numbers}<span></span>"
    )


def _figure(figure: str, unit: str) -> str:
    return escape_text(figure) + (f"<i> {unit.replace('tokens', 'tok')}</i>" if unit else "")


def _bar(parts: Sequence[int], total: int) -> str:
    """Cached, computed and output tokens on a line of `total`."""
    shares = "".join(
        f'<i class="{name}" style="width:{part * 100 / total:.3f}%"></i>'
        for name, part in zip(("cached", "prefill", "decode"), parts, strict=True)
        if part
    )
    return f'<span class="y-gen-bar" aria-hidden="true">{shares}</span>'


def sign(name: str, size: int = 12) -> str:
    """The sign of a state."""
    path, kind = SIGNS[name]
    box = f'width="{size}" height="{size}" viewBox="0 0 12 12" aria-hidden="true"'
    return f'<svg class="y-gen-sign {kind}" {box}><path d="{path}"/></svg>'

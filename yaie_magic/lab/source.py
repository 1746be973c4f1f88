"""A kernel's source as the lab shows it: highlighted, with line numbers and the shared headers it stands on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yaie_widgets.palette import notebook_style
from yaie_widgets.safe_text import escape_html, escape_text

from .table import Column, Table

_INCLUDE = re.compile(r'^\s*#include\s+"([^"/]+)"', re.MULTILINE)
# The editor's own colours where there is a JupyterLab, else a light and a dark set; by pygments' short names.
_COLOURS = {
    "k": ("keyword", "#008000", "#66bb6a"),
    "c": ("comment", "#5f7a7a", "#8fa3a3"),
    "m": ("number", "#007a3d", "#8bc34a"),
    "s": ("string", "#ba2121", "#ff9d7a"),
    "cp": ("meta", "#6f42c1", "#c3a6ff"),
}
_PARTS = {"k": "k kc kd kr kt kp nb", "c": "c c1 cm", "m": "m mi mf mh mb mo il", "s": "s s1 s2 sc", "cp": "cp cpf"}


@dataclass(frozen=True, slots=True)
class Header:
    """A header that a kernel includes, and the first line of what it says about itself."""

    name: str
    summary: str


def headers_of(text: str, folder: Path) -> list[Header]:
    """The headers that `text` includes, and those that they include, each once."""
    found: dict[str, Header] = {}

    def read(source: str) -> None:
        for name in _INCLUDE.findall(source):
            path = folder / name
            if name not in found and path.is_file():
                inner = path.read_text(encoding="utf-8")
                found[name] = Header(name, summary_of(inner))
                read(inner)

    read(text)
    return list(found.values())


def summary_of(text: str) -> str:
    """The first sentence of the comment at the head of a source."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("//"):
            break
        lines.append(line.removeprefix("//").strip())
    return re.split(r"(?<=\.)\s", " ".join(lines).strip(), maxsplit=1)[0].rstrip(".")


@dataclass(frozen=True, eq=False)
class KernelSource:
    """Shown as plain text in a terminal and highlighted in a notebook; `str` gives the text itself.

    `report` is what the compiler makes of it, None where there is none; `note` says why.
    """

    name: str
    text: str
    headers: tuple[Header, ...]
    replaced: bool
    report: Table | None
    note: str = ""

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<KernelSource {self.name}: {len(self.text.splitlines())} lines>"

    @property
    def tables(self) -> list[Table]:
        """The headers it stands on, and the report."""
        rows = tuple((each.name, each.summary) for each in self.headers)
        headers = [Table((Column("shared header"), Column("what it holds")), rows)] if rows else []
        return [*headers, *([self.report] if self.report else [])]

    @property
    def notes(self) -> list[str]:
        """Lines at the end."""
        swapped = ["This is the replacement that runs now; %yaie kernels reset restores the built-in."]
        ready = f"%%kernel {self.name} --edit puts this source into the next cell, ready to change and run."
        return [*(swapped if self.replaced else []), *filter(None, [self.note]), ready]

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        below = [line for table in self.tables for line in ("", *table.lines)]
        return {"text/plain": "\n".join([self.text.rstrip(), *below, "", *self.notes]), "text/html": self._html()}

    def _html(self) -> str:
        notes = "".join(f"<div>{escape_html(line)}</div>" for line in self.notes)
        return (
            f'<div class="yaie-drawing explanation kernel"><style>{notebook_style()}{code_style()}</style>'
            f"<div><b>{escape_html(self.name)}.cu</b></div>"
            f'<pre class="code">{numbered(highlighted(self.text))}</pre>{"".join(each.html for each in self.tables)}'
            f'<div style="margin-top:8px;color:var(--y-ink2)">{notes}</div></div>'
        )


def highlighted(text: str) -> str:
    """CUDA text as HTML spans, one line of markup for each line; every character escaped."""
    from pygments.lexers import CudaLexer

    parts: list[str] = []
    for kind, value in CudaLexer(stripnl=False, ensurenl=False).get_tokens(text):
        name = _class_of(kind)
        for index, piece in enumerate(value.split("\n")):
            if index:
                parts.append("\n")
            if piece:
                parts.append(f'<span class="{name}">{escape_text(piece)}</span>' if name else escape_text(piece))
    return "".join(parts)


def _class_of(kind: Any) -> str:
    from pygments.token import STANDARD_TYPES

    short = STANDARD_TYPES.get(kind, "")
    return next((name for name, members in _PARTS.items() if short in members.split()), "")


def numbered(markup: str) -> str:
    """Each line with its number, which is not copied with the text."""
    lines = markup.rstrip("\n").split("\n")
    width = len(str(len(lines)))
    return "\n".join(f'<i class="number">{index:>{width}}</i>{line}' for index, line in enumerate(lines, 1))


def code_style() -> str:
    """The style sheet of `<pre class="code">` inside a frame."""
    return "".join(_rules())


def _rules() -> Iterator[str]:
    yield (
        ".yaie-drawing pre.code{margin:8px 0;padding:0;background:none;color:inherit;font-size:12px;line-height:17px;"
        "white-space:pre;overflow:auto;max-height:560px;font-family:var(--jp-code-font-family,monospace)}"
        ".yaie-drawing pre.code .number{color:var(--y-ink2);font-style:normal;margin-right:14px;"
        "user-select:none;-webkit-user-select:none}"
    )
    for name, (role, light, _) in _COLOURS.items():
        yield f".yaie-drawing pre.code .{name}{{color:var(--jp-mirror-editor-{role}-color,{light})}}"
    for name, (_, _, dark) in _COLOURS.items():
        inner = f".yaie-drawing pre.code .{name}"
        yield f"body.vscode-dark {inner},html[theme=dark] {inner}{{color:{dark}}}"

"""A drawing of a snapshot: one object, four forms (DOT, SVG, PNG, text), and what a notebook shows of it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from yaie_engine.errors import RequestError

from . import svg as svg_form
from .picture import framed
from .render import RenderError, render
from .safe_text import escape_text

Format = Literal["svg", "png", "dot", "text"]
# The fonts inside graphviz-pure, which draws pixels with them, lack these marks.
_PNG_MARKS = str.maketrans({"⏎": "¶", "⇥": "→"})
_SUFFIXES = {".dot": "dot", ".gv": "dot", ".svg": "svg", ".png": "png", ".txt": "text"}


def checked_format(value: str) -> Format:
    """`value` as a Format, or a RequestError that names the valid ones."""
    if value not in get_args(Format):
        raise RequestError(f"format is {value!r}: use one of {', '.join(get_args(Format))}")
    return value  # type: ignore[return-value]


@dataclass(frozen=True, eq=False)
class Drawing:
    """Rendered when first asked. Drawn from plain data without times, so equal snapshots give equal bytes.

    `.svg` and `.png` raise RenderError where no Graphviz program is found; `.dot` and `.text` always work.
    """

    name: str
    title: str
    dot: str
    text: str
    tooltips: Mapping[str, str] = field(default_factory=dict, repr=False)
    format: Format = "svg"

    @cached_property
    def svg(self) -> str:
        """A stand-alone SVG document."""
        return svg_form.standalone(self._themed)

    @cached_property
    def png(self) -> bytes:
        """A PNG picture (light theme, two pixels per unit)."""
        return render(self.dot.translate(_PNG_MARKS), "png")

    @cached_property
    def html(self) -> str:
        """A framed inline SVG that follows the theme of the page; where styles are stripped, the text stands in."""
        return framed(self._themed, self.text)

    @cached_property
    def _themed(self) -> svg_form.Element:
        return svg_form.themed(render(self.dot, "svg"), self.tooltips, self.title)

    def save(self, path: str | Path) -> Path:
        """Write the form that the suffix names (.dot, .svg, .png or .txt) and return the path."""
        target = Path(path)
        form = _SUFFIXES.get(target.suffix.lower())
        if form is None:
            raise RequestError(
                f"cannot save as {target.suffix or 'a file without suffix'!r}: use .dot, .svg, .png or .txt"
            )
        content = self.png if form == "png" else str(getattr(self, form)).encode()
        try:
            target.write_bytes(content)
        except OSError as error:
            raise RequestError(f"cannot save {target}: {error.strerror or error}") from None
        return target

    def __repr__(self) -> str:
        return f"<Drawing {self.name}: {self.title}>"

    def __str__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """What a notebook shows; without a renderer, the text and one line that says how to get a picture."""
        try:
            return self._bundle()
        except RenderError as error:
            return {"text/plain": f"{self.text}\n(no picture: {error})"}

    def _bundle(self) -> dict[str, str]:
        if self.format == "text":
            return {"text/plain": self.text}
        if self.format == "dot":
            return {"text/plain": self.dot, "text/html": f"<pre>{escape_text(self.dot)}</pre>"}
        if self.format == "png":
            return {"text/plain": self.text, "image/png": base64.b64encode(self.png).decode()}
        return {"text/plain": self.text, "image/svg+xml": self.svg, "text/html": self.html}

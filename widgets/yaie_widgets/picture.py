"""What drawings that need no Graphviz have in common: one object, three forms (SVG, HTML, text), and how it is kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path

from yaie_engine.errors import RequestError

from . import svg as svg_form
from .palette import notebook_style
from .safe_text import escape_text
from .shapes import Element

_SUFFIXES = {".svg": "svg", ".txt": "text", ".html": "html"}


class Picture(ABC):
    """A subclass draws; `format` "text" shows the text alone."""

    format: str

    @property
    @abstractmethod
    def title(self) -> str:
        """What is shown, in one line."""

    @property
    @abstractmethod
    def text(self) -> str:
        """For a terminal; the same figures as the picture."""

    @property
    @abstractmethod
    def _drawn(self) -> Element:
        """The picture."""

    @cached_property
    def svg(self) -> str:
        """A stand-alone SVG document."""
        return svg_form.standalone(self._drawn)

    @cached_property
    def html(self) -> str:
        """A framed inline SVG that follows the theme of the page; where styles are stripped, the text stands in."""
        return framed(self._drawn, self.text)

    def save(self, path: str | Path) -> Path:
        """Write the form that the suffix names (.svg, .html or .txt) and return the path."""
        target = Path(path)
        form = _SUFFIXES.get(target.suffix.lower())
        if form is None:
            raise RequestError(f"cannot save as {target.suffix or 'a file without suffix'!r}: use .svg, .html or .txt")
        try:
            target.write_text(getattr(self, form), encoding="utf-8")
        except OSError as error:
            raise RequestError(f"cannot save {target}: {error.strerror or error}") from None
        return target

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.title}>"

    def __str__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """What a notebook shows."""
        if self.format == "text":
            return {"text/plain": self.text}
        return {"text/plain": self.text, "image/svg+xml": self.svg, "text/html": self.html}


def framed(picture: Element, text: str) -> str:
    """The picture inline in a frame.

    A notebook that is not trusted yet, or a site that shows it, strips styles and pictures from HTML: then the inline
    style hides what is left of the picture and the text stands in its place.
    """
    return (
        f'<div class="yaie-drawing"><style>{notebook_style()}</style>'
        f'<div class="picture" hidden="hidden" style="display:none">{svg_form.inline(picture)}</div>'
        f'<pre class="plain">{escape_text(text)}</pre></div>'
    )

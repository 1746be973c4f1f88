"""What every generating cell does first: read its line, find its engine, settle its sampling parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .cell_options import Cell, cell_parser, check_name
from .cells import CellOptions
from .interrupt import Shield
from .options import UsageProblem, sampling_options
from .parser import split_line
from .session import DEFAULT_NAME, LoadedEngine, session

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from yaie_engine import SamplingParams

_BRACED = re.compile(r"\{(\{)?([A-Za-z_][A-Za-z0-9_]*)\}(?(1)\})")


@dataclass(frozen=True, slots=True)
class CellCall:
    """One run of a cell magic: what its line says, over the defaults set by `%config`."""

    shell: InteractiveShell
    given: dict[str, Any]
    defaults: Mapping[str, Any]
    body: str

    @property
    def options(self) -> CellOptions:
        """How the result is shown and kept."""
        given = self.given
        return CellOptions(
            output=check_name(given.get("output")),
            background=given.get("background", False),
            quiet=given.get("quiet", False),
            format=given.get("format", self.defaults.get("format", "text")),
        )

    @property
    def names(self) -> Mapping[str, Any] | None:
        """The notebook's names when `-i` asks for them."""
        return self.shell.user_ns if self.given.get("interpolate") else None

    def params(self, engine: LoadedEngine, **extra: Any) -> SamplingParams:
        """The line over `%config` over the engine's own defaults."""
        from yaie_engine import SamplingParams

        names = {entry.name for entry in sampling_options()}
        defaults = {name: value for name, value in self.defaults.items() if name in names}
        given = {name: value for name, value in self.given.items() if name in names}
        return SamplingParams(**{**engine.config.sampling_defaults, **defaults, **given, **extra})


def read_call(
    cell: Cell, shell: InteractiveShell, line: str, body: str, defaults: Mapping[str, Any]
) -> CellCall | None:
    """The call that a line describes; None when it asked for help, which is printed.

    Raises:
        UsageProblem: the line cannot be understood.
    """
    with Shield() as shield:  # the first parser imports libraries, which must not be cut short
        parser = cell_parser(cell)
        shield.check()
    words = split_line(line)
    if parser.wants_help(words):
        print(parser.format_help())
        return None
    return CellCall(shell, parser.parse(fill_names(words, shell.user_ns)), defaults, body)


def fill_names(words: list[str], namespace: Mapping[str, Any]) -> list[str]:
    """`{name}` in the words of a line becomes the value of that name; `{{name}}` stands for `{name}` itself.

    Raises:
        UsageProblem: the name is not defined.
    """

    def value(found: re.Match[str]) -> str:
        if found[1]:
            return f"{{{found[2]}}}"
        if found[2] not in namespace:
            raise UsageProblem(f"{found[0]} is not defined in this notebook; write {{{found[0]}}} for the text itself")
        return str(namespace[found[2]])

    return [_BRACED.sub(value, word) for word in words]


def engine_of(name: str | None) -> LoadedEngine:
    """The engine a cell uses. When none is loaded at all, the bundled model is, and that is said.

    Raises:
        UsageProblem: no engine has that name.
        EngineDeadError: it is a detached one whose process has ended.
    """
    if name is None and session.current is None:
        from .settings import engine_settings

        print("No model is loaded yet: loading the bundled model tiny (%yaie load MODEL chooses another).", flush=True)
        session.load(engine_settings(None, {}), DEFAULT_NAME)
    engine = session.get(name)
    if engine.elsewhere is not None:
        engine.elsewhere.check()
    return engine

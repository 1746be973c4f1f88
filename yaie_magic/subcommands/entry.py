"""What a subcommand of `%yaie` is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from yaie_magic.options import Option, option
from yaie_magic.parser import OptionParser
from yaie_magic.session import LoadedEngine, session

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

ENGINE = option("engine", "the loaded engine to look at [default: the current one]", metavar="NAME")
FORCE = option("force", "cancel running requests instead of refusing", kind="flag")
JSON = option("json", "as JSON; the value is a dict", kind="flag")


@dataclass(frozen=True, slots=True)
class Call:
    """One run of a subcommand."""

    shell: InteractiveShell
    given: dict[str, Any]

    @property
    def engine(self) -> LoadedEngine:
        """The engine named by `--engine`, or the current one."""
        return session.get(self.given.get("engine"))


def nothing() -> Iterable[str]:
    """No words to complete."""
    return ()


@dataclass(frozen=True, slots=True)
class Subcommand:
    """`places` are its words without a flag (name, how many, help); `words` what may be completed there. The options
    are a function, because those of an engine are read from its configuration only when they are needed."""

    name: str
    summary: str
    run: Callable[[Call], Any]
    options: Callable[[], tuple[Option, ...]] = tuple
    places: tuple[tuple[str, str, str], ...] = ()
    words: Callable[[], Iterable[str]] = nothing

    def parser(self) -> OptionParser:
        """The parser of its line."""
        return OptionParser(f"%yaie {self.name}", self.options(), self.summary, self.places)

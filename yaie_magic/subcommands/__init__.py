"""The subcommands of `%yaie`, a small file for each group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from yaie_engine.errors import YaieError
from yaie_magic.cell_setup import fill_names
from yaie_magic.interrupt import Shield
from yaie_magic.options import UsageProblem
from yaie_magic.parser import HELP_FLAGS, split_line
from yaie_magic.session import session

from . import (
    anomaly,
    attach,
    cache,
    connect,
    dashboard,
    doctor,
    drawings,
    engines,
    explain,
    insights,
    inspect,
    kernels,
    listings,
    metrics,
    replay,
    requests,
    serve,
    sleep,
    status,
    trace,
)
from .entry import Call, Subcommand

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["SUBCOMMANDS", "Call", "Subcommand", "dispatch", "find", "overview"]


def _help(call: Call) -> None:
    name = call.given.get("subcommand")
    print(find(name).parser().format_help() if name else overview())


HELP = Subcommand(
    "help",
    "this list, or the options of one subcommand",
    _help,
    places=(("subcommand", "?", "the subcommand to explain"),),
    words=lambda: SUBCOMMANDS,
)
SUBCOMMANDS: dict[str, Subcommand] = {
    entry.name: entry
    for entry in (
        *engines.SUBCOMMANDS,
        *attach.SUBCOMMANDS,
        *sleep.SUBCOMMANDS,
        *status.SUBCOMMANDS,
        *cache.SUBCOMMANDS,
        *listings.SUBCOMMANDS,
        *dashboard.SUBCOMMANDS,
        *replay.SUBCOMMANDS,
        *drawings.SUBCOMMANDS,
        *explain.SUBCOMMANDS,
        *inspect.SUBCOMMANDS,
        *insights.SUBCOMMANDS,
        *metrics.SUBCOMMANDS,
        *requests.SUBCOMMANDS,
        *anomaly.SUBCOMMANDS,
        *trace.SUBCOMMANDS,
        *kernels.SUBCOMMANDS,
        *serve.SUBCOMMANDS,
        *connect.SUBCOMMANDS,
        *doctor.SUBCOMMANDS,
        HELP,
    )
}


def find(name: str) -> Subcommand:
    """The subcommand of that name.

    Raises:
        UsageProblem: there is none.
    """
    if name not in SUBCOMMANDS:
        from yaie_engine.validation import did_you_mean

        hint = did_you_mean(name, SUBCOMMANDS)
        raise UsageProblem(f"unknown subcommand {name!r}{hint or '; %yaie help lists them'}")
    return SUBCOMMANDS[name]


def dispatch(shell: InteractiveShell, line: str) -> Any:
    """Run a line of `%yaie`.

    Raises:
        UsageProblem: the line cannot be understood.
    """
    words = split_line(line)
    if not words:
        raise UsageProblem("say what to do: %yaie load MODEL, %yaie status, ...; %yaie help lists all")
    if words[0] in HELP_FLAGS:
        print(overview())
        return None
    subcommand = find(words[0])
    with Shield() as shield:  # the first parser imports libraries, which must not be cut short
        parser = subcommand.parser()
        shield.check()
    if parser.wants_help(words):
        print(parser.format_help())
        return None
    try:
        given = parser.parse(fill_names(words[1:], shell.user_ns))
    except UsageProblem as problem:
        raise UsageProblem(f"{subcommand.name}: {problem}") from None
    try:
        return subcommand.run(Call(shell, given))
    except YaieError as error:
        _blame(given.get("engine") or given.get("name"), error)
        raise


def _blame(name: str | None, error: YaieError) -> None:
    """An engine that does not answer may be known to be gone, which says more: then that is raised."""
    engine = session.engines.get(name or session.current or "")
    if engine is not None and engine.elsewhere is not None:
        from yaie_magic.remote import RemoteError

        if isinstance(error, RemoteError):
            engine.elsewhere.check()


def overview() -> str:
    """What `%yaie help`, `%yaie --help` and `%yaie?` show."""
    lines = [f"  {name:<10} {entry.summary}" for name, entry in SUBCOMMANDS.items()]
    return "\n".join(
        [
            "usage: %yaie SUBCOMMAND [options]",
            "",
            "The engine in this session. %%generate, %%chat and %%batch talk to it, %%kernel changes its kernels;",
            "these look after it:",
            "",
            *lines,
            "",
            "%yaie SUBCOMMAND --help shows the options of one.",
        ]
    )

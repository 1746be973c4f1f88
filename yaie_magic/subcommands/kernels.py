"""`%yaie kernels`: the CUDA kernels, what the compiler makes of them, and which ones the engine runs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from yaie_magic.aside import aside
from yaie_magic.lab.engines import HOW, backend_of, launched_by, reset, runs_kernels
from yaie_magic.lab.options import ARCH, kernel_names
from yaie_magic.options import UsageProblem, option
from yaie_magic.session import session

from .entry import JSON, Call, Subcommand

if TYPE_CHECKING:
    from yaie_magic.lab.run import Progress

RESET = "reset"
ALL = option("all", "every specialisation that an engine can ask for, not only the usual ones", kind="flag")


def _kernels(call: Call) -> Any:
    names = call.given.get("names") or []
    if RESET in names:
        if names != [RESET]:
            raise UsageProblem("kernels reset restores every kernel and takes no names")
        return _reset()
    from yaie_magic.lab.catalogue import Catalogue
    from yaie_magic.lab.run import Progress

    progress = Progress(call.shell, quiet=call.given.get("json", False))
    try:
        entries, users = aside("kernels", partial(_compile, call, progress))
    except UsageProblem as problem:
        raise UsageProblem(f"kernels: {problem}") from None
    if call.given.get("json"):
        return list(entries)
    from yaie_cuda import sources

    names_of_users = {label: ", ".join(engines) for label, engines in users.items()}
    found = Catalogue(entries, names_of_users, sources.replaced(), _note(users))
    progress.show(found.bundle())
    return None if progress.shown else found


def _compile(call: Call, progress: Progress) -> tuple[list[dict[str, Any]], dict[str, list[str]]]:
    """The entries, those that engines run among them, and the engines by label."""
    from yaie_magic.lab.listing import archs_for, chosen, compile_catalogue

    names = call.given.get("names") or []
    wanted = list(chosen(names, call.given.get("all", False)))
    users: dict[str, list[str]] = {}
    for engine in session.engines.values():
        if runs_kernels(engine):
            for each in launched_by(engine):
                if not names or each.kernel.name in names:
                    users.setdefault(each.label, []).append(f"{engine.name} ({backend_of(engine)})")
                    wanted.append(each)
    archs = archs_for([call.given["arch"]] if "arch" in call.given else [])

    def say(done: int, count: int, label: str) -> None:
        progress.say(f"compiled: {done} of {count}, {label}")

    return compile_catalogue(list(dict.fromkeys(wanted)), archs, say), users


def _note(users: dict[str, list[str]]) -> str:
    """Why no engine is named, where there is one."""
    current = session.engines.get(session.current or "")
    if current is None or users:
        return ""
    backend = backend_of(current)
    if runs_kernels(current):
        return f"{current.model} runs attention {backend!r} and has used none of these so far"
    return f"{current.model} runs attention {backend!r}, without kernels; for instance {HOW}"


def _reset() -> None:
    gone = reset()
    if not gone:
        print("Every kernel is the built-in one; nothing to reset.")
        return
    print(f"{', '.join(gone)}: the built-in again{', from the next step on' if session.engines else ''}.")


def _words() -> list[str]:
    return [RESET, *kernel_names()]


SUBCOMMANDS = (
    Subcommand(
        "kernels",
        "the CUDA kernels, compiled, and which ones the engine runs; `kernels reset` restores the built-in ones",
        _kernels,
        lambda: (ALL, ARCH, JSON),
        (("names", "*", f"kernels to list [default: all]; or {RESET}: back to the built-in kernels"),),
        _words,
    ),
)

"""Registering and unregistering the extension in an IPython shell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import empty_cells
from .magics import YaieMagics
from .matcher import yaie_matcher
from .session import session

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

NAME = YaieMagics.__name__


def registered(shell: InteractiveShell) -> bool:
    """Whether the magics are there."""
    return NAME in shell.magics_manager.registry


def register(shell: InteractiveShell) -> None:
    """Add magics, completion and the transformer of empty cells once."""
    if registered(shell):
        return
    shell.register_magics(YaieMagics(shell))
    matchers = getattr(shell.Completer, "custom_matchers", None)
    if matchers is not None and yaie_matcher not in matchers:
        matchers.append(yaie_matcher)
    empty_cells.install(shell)


def unregister(shell: InteractiveShell) -> None:
    """Remove them. The engines go at the end of the cell, unless the extension is back by then."""
    magics = shell.magics_manager.registry.pop(NAME, None)
    if magics in shell.configurables:
        shell.configurables.remove(magics)
    for kind in shell.magics_manager.magics.values():
        for name in [name for name, function in kind.items() if getattr(function, "__self__", None) is magics]:
            del kind[name]
    matchers = getattr(shell.Completer, "custom_matchers", [])
    if yaie_matcher in matchers:
        matchers.remove(yaie_matcher)
    empty_cells.remove(shell)
    _close_after_cell(shell)


def _close_after_cell(shell: InteractiveShell) -> None:
    """`%reload_ext` unloads and loads in one cell; only what is still unloaded after it was meant to go."""

    def close(*_: Any) -> None:
        shell.events.unregister("post_run_cell", close)
        if not registered(shell):
            session.close_all()

    shell.events.register("post_run_cell", close)

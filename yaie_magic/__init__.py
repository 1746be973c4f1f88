"""YAIE Magic: a real LLM inference engine inside a notebook session.

``%load_ext yaie_magic`` registers the magics. Importing this package loads nothing heavy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__version__ = "0.1.0"


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magics and their completion. Doing it again changes nothing."""
    from .extension import register

    register(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Take the magics away; the engines are closed unless the same cell loads the extension again (`%reload_ext`)."""
    from .extension import unregister

    unregister(shell)

"""An IPython shell as in a terminal, with the extension: what the fixtures of several folders are made of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def plain_shell(folder: Path, **environment: str) -> Iterator[Any]:
    """The shell of the process, its files in `folder`; at the end its engines are closed and it is gone."""
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    from yaie_magic.session import session

    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"IPYTHONDIR": str(folder), **environment}.items():
            patch.setenv(name, value)
        InteractiveShell.clear_instance()
        shell = InteractiveShell.instance(config=Config({"HistoryManager": {"enabled": False}, "colors": "nocolor"}))
        shell.run_line_magic("load_ext", "yaie_magic")
        yield shell
        session.close_all()
        shell.run_cell("%unload_ext yaie_magic")
        InteractiveShell.clear_instance()

"""A plain IPython shell and Jupyter kernels, with the extension loaded and the fake or the real engine behind it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.plain_shell import plain_shell

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """An IPython shell as in a terminal, with the extension and the fake engine."""
    import fakes

    from yaie_magic.session import session

    monkeypatch.setattr(session, "build", fakes.build)
    monkeypatch.setattr(fakes, "SPEED", fakes.Speed())
    with plain_shell(tmp_path) as found:
        yield found


@pytest.fixture
def run(shell: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs cells of that shell, its fake engine loaded, and keeps what they printed."""
    from shell_run import Run

    monkeypatch.setenv("YAIE_NOTEBOOK", "static")
    found = Run(shell, capsys)
    found("%yaie load")
    return found


@pytest.fixture(scope="module")
def fake_kernel() -> Iterator[Any]:
    """A kernel whose engine is the fake one; `SPEED` sets how long its parts take."""
    from kernel import Kernel

    found = Kernel()
    found.run("import fakes, time, threading\nfrom fakes import SPEED, BUILT\nfrom yaie_magic.session import session")
    found.run("session.build = fakes.build")
    found.run("%load_ext yaie_magic")
    found.run("%yaie load")
    yield found
    found.close()


@pytest.fixture(scope="module")
def real_kernel() -> Iterator[Any]:
    """A kernel with the real engine and the bundled model. Its very first load was interrupted: see `first_load`."""
    from kernel import Kernel

    found = Kernel()
    found.run("import gc, threading, time, weakref")
    found.run("%load_ext yaie_magic\nfrom yaie_magic.session import session")
    found.run("import sys; assert 'torch' not in sys.modules; import yaie_engine.config, yaie_magic.subcommands")
    found.first_load = found.send("%yaie load tiny")
    found.settle(0.5)  # now it imports torch
    found.first_load.started = found.interrupt()
    found.finish(found.first_load)
    loaded = found.run("%yaie load tiny --num-blocks 256", timeout=120)
    assert loaded.status == "ok", (loaded.stderr, loaded.error)
    yield found
    found.close()


@pytest.fixture
def real(shell: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Cells of a plain shell with the bundled model, output as in a test of a notebook."""
    from shell_run import Run

    from yaie_magic import loading
    from yaie_magic.session import session

    monkeypatch.setenv("YAIE_NOTEBOOK", "static")
    monkeypatch.setattr(session, "build", loading.build_llm)
    run = Run(shell, capsys)
    run("%yaie load tiny --num-blocks 64")
    return run

"""The key of a server in a real kernel and in the notebook that is saved: it is nowhere."""

from __future__ import annotations

import json
from pathlib import Path
from queue import Empty

import pytest

from tests.engine.fakes import eventually
from tests.notebook.kernel import Kernel
from tests.remote.conftest import KEY
from yaie_engine import LLM
from yaie_magic.server.background import BackgroundServer

CELLS = [
    "%load_ext yaie_magic",
    "%yaie connect {url}",
    "%%generate -m 6 -t 0\nOnce upon a time",
    "%%chat -m 6 -t 0\nHello",
    "%%batch -m 3\none\n---\ntwo",
    "%yaie tree",
    "%yaie timeline",
    "%yaie status",
    "_yaie",
    "%yaie connect {url} --key-env OTHER_KEY --as other",
    "%yaie config",
    "from yaie_magic.session import session; session.engines, session.get().llm, vars(session.get().llm)",
    "%history -n",
    "%yaie unload",
]


def test_a_saved_notebook_has_no_key(
    own_server: BackgroundServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its outputs, its widgets' state and the error of a wrong key."""
    import nbformat  # its modules take seconds to read, and every process of the share reads this file
    from nbclient import NotebookClient

    wrong = "another-key-that-is-wrong"
    for name, value in (("YAIE_API_KEY", KEY), ("OTHER_KEY", wrong), ("IPYTHONDIR", str(tmp_path))):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("YAIE_NOTEBOOK", raising=False)
    monkeypatch.delenv("PYTEST_CURRENT_TEST", raising=False)
    cells = [nbformat.v4.new_code_cell(text.replace("{url}", own_server.url)) for text in CELLS]
    book = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(book, timeout=60, kernel_name="python3", allow_errors=True, store_widget_state=True).execute()
    text = json.dumps(book)
    assert "connected: all cells and views" in text
    assert "does not take this key" in text
    assert "disconnected; its server goes on" in text
    assert [cell for cell in book.cells if any(o.output_type == "error" for o in cell.outputs)] == [book.cells[9]]
    assert book.metadata.get("widgets"), "the state of the live views is in the notebook"
    for secret in (KEY, wrong):
        assert secret not in text
        assert not [path for path in tmp_path.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]


def _interrupt(kernel: Kernel, llm: LLM) -> None:
    """Ctrl-C ends the cell, keeps its text and frees the server; the next cell works."""
    cell = kernel.send("%%generate -m 3000 --ignore-eos -o story\nOnce upon a time")
    eventually(lambda: bool(llm.running()))
    kernel.settle(0.3)
    kernel.interrupt()
    kernel.finish(cell)
    assert cell.status == "error"
    assert cell.error is not None
    assert cell.error["ename"] == "Interrupted"
    eventually(lambda: not llm.running())
    reason, kept = kernel.value("(story.finish_reason, len(story.tokens))")
    assert reason == "cancelled"
    assert kept > 0
    assert kernel.run("%%generate -m 2\nx").error is None


def test_a_kernel_asks_for_the_key_as_for_a_password(
    own_server: BackgroundServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("YAIE_API_KEY", raising=False)
    kernel = Kernel()
    try:
        kernel.run("%load_ext yaie_magic")
        cell = kernel.send(f"%yaie connect {own_server.url}")
        question = None
        for _ in range(30):
            try:
                question = kernel.client.get_stdin_msg(timeout=1)
                break
            except Empty:
                kernel.settle(0.01)
        assert question is not None
        assert question["content"] == {"prompt": f"{own_server.url} wants a key. Key: ", "password": True}
        kernel.client.input(KEY)
        kernel.finish(cell)
        assert "connected: all cells and views" in cell.text
        after = kernel.run("%history -n\n_ih, _oh")
        assert KEY not in after.text
        assert KEY not in str(kernel.run("%%generate -m 2\nx").__dict__)
        _interrupt(kernel, own_server.llm)
    finally:
        kernel.close()

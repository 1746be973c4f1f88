"""`%yaie cache` in a plain shell, with the real engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.notebook.shell_run import Run
from tests.plain_shell import plain_shell

TEXT = "The quick brown fox jumps over the lazy dog and runs into the deep green wood"


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    with plain_shell(tmp_path, YAIE_NOTEBOOK="static") as shell:
        found = Run(shell, capsys)
        found(f"%yaie load tiny --num-blocks 64 --prefix-store {tmp_path / 'store'}")
        yield found


def said(run: Any, line: str) -> str:
    run(line)
    return str(run.out + run.err)


def test_a_prefix_from_save_to_clear(run: Any, tmp_path: Path) -> None:
    assert "0 records of this model, 0.0 MiB of at most 4,096.0 MiB" in said(run, "%yaie cache")
    assert "nothing was asked yet" in said(run, "%yaie cache save")
    run(f"%%generate -m 3 -t 0 -o answer\n{TEXT}")
    text = run["answer"].text
    assert "tokens saved as" in said(run, "%yaie cache save answer")
    [label] = [path.name[17:25] for path in (tmp_path / "store").glob("*.kv")]
    out = said(run, "%yaie cache list")
    assert label in out and "The quick brown fox" in out and "pinned" not in out
    assert "1 record of this model" in said(run, "%yaie status")
    run("%yaie restart")
    assert "1 record: " in said(run, "%yaie cache load")
    assert "0 tokens brought into the engine's blocks; 1 of them were there already" in said(run, "%yaie cache load")
    run(f"%%generate -m 3 -t 0 -o again\n{TEXT}")
    assert run["again"].text == text and run["again"].usage.cached == run["again"].usage.prompt - 1
    assert run["again"].reuse == "radix"
    run("%yaie restart")
    run(f"%%generate -m 3 -t 0 -o back\n{TEXT}")
    assert run["back"].reuse == "store" and "prompt tokens cached (prefix store)" in repr(run["back"])
    assert "were read from the prefix store" in said(run, "%yaie explain back")
    assert "1 record pinned." in said(run, f"%yaie cache pin {label}")
    assert "pinned" in said(run, "%yaie cache")
    assert "0 records removed, 0.0 MiB; 1 record pinned and kept (--all removes them)." in said(
        run, "%yaie cache clear"
    )
    assert "1 record unpinned." in said(run, "%yaie cache unpin")
    assert "1 record removed" in said(run, f"%yaie cache clear {label}")
    assert "saved and pinned as" in said(run, f"%yaie cache pin {TEXT}, twice")
    assert "1 record removed" in said(run, "%yaie cache clear --all")
    assert list((tmp_path / "store").iterdir()) == []


def test_the_folder_is_named_as_from_here(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert said(run, "%yaie cache").endswith(", in store\n")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert said(run, "%yaie cache").endswith(f", in {tmp_path / 'store'}\n")


def test_mistakes_are_named(run: Any) -> None:
    assert "'lost' is none of list, save, load, pin, unpin, clear" in said(run, "%yaie cache lost")
    assert "no record is called 'abc'" in said(run, "%yaie cache load abc")
    assert "--all belongs to clear" in said(run, "%yaie cache list --all")
    assert "at least 16 are needed" in said(run, "%yaie cache save Hi")
    run("%yaie load tiny --num-blocks 64")
    assert "--prefix-store FOLDER does" in said(run, "%yaie cache")

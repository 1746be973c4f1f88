"""Finding and running a Graphviz program, and what happens without one."""

from __future__ import annotations

import os
import shutil
import stat
import sysconfig
from pathlib import Path

import pytest

from yaie_widgets import RenderError, draw_block_table, draw_radix_tree
from yaie_widgets.render import find_renderer, render

from .snapshots import busy_snapshot


def program(folder: Path, name: str, script: str = "cat >/dev/null; echo drawn") -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No renderer anywhere: not named, not installed, not on PATH. Gives the one folder of PATH."""
    monkeypatch.delenv("YAIE_DOT", raising=False)
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path / "scripts"))
    return folder


def test_order_of_search(bare: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert find_renderer() is None
    dot = program(bare, "dot")
    assert find_renderer() == str(dot)
    on_path = program(bare, "graphviz-pure")
    assert find_renderer() == str(on_path)
    (tmp_path / "scripts").mkdir()
    installed = program(tmp_path / "scripts", "graphviz-pure")
    assert find_renderer() == str(installed)
    named = program(tmp_path, "my-dot")
    monkeypatch.setenv("YAIE_DOT", str(named))
    assert find_renderer() == str(named)


@pytest.mark.parametrize("draw", [draw_radix_tree, draw_block_table])
def test_case_17_no_renderer_gives_the_text_and_one_line(bare: Path, draw: type) -> None:
    drawing = draw(busy_snapshot())
    bundle = drawing._repr_mimebundle_()
    assert set(bundle) == {"text/plain"}
    body, _, hint = bundle["text/plain"].rpartition("\n")
    assert body == drawing.text
    assert "pip install graphviz-pure" in hint
    with pytest.raises(RenderError, match="YAIE_DOT"):
        _ = drawing.svg
    assert drawing.dot.startswith("digraph ")


def test_a_named_program_that_does_not_exist_is_said(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YAIE_DOT", "/nowhere/dot")
    with pytest.raises(RenderError, match="YAIE_DOT names '/nowhere/dot', which is no program"):
        render("digraph {}", "svg")


def test_a_failing_program_is_one_line(bare: Path) -> None:
    shell = os.path.realpath(shutil.which("sh", path=os.defpath) or "/bin/sh")
    program(bare, "dot", f"exec {shell} -c 'echo Error: bad graph >&2; exit 3'")
    with pytest.raises(RenderError, match=r"dot failed \(exit 3\): Error: bad graph"):
        render("digraph {}", "svg")


def test_a_program_that_hangs_is_stopped(bare: Path) -> None:
    program(bare, "dot", "exec /bin/sleep 30")
    with pytest.raises(RenderError, match=r"dot took longer than 0\.2 s: draw less"):
        render("digraph {}", "svg", timeout=0.2)


def test_output_that_is_no_svg_is_an_error_and_shows_text(bare: Path) -> None:
    program(bare, "dot", "echo drawn")
    drawing = draw_radix_tree(busy_snapshot())
    assert "is not XML" in drawing._repr_mimebundle_()["text/plain"]


def test_syntax_error_names_the_line() -> None:
    with pytest.raises(RenderError, match="syntax error in line 1"):
        render("digraph {", "svg")


def test_width_notices_stay_out_of_the_notebook(capfd: pytest.CaptureFixture[str]) -> None:
    render('digraph { a [label="東京"] }', "svg")
    assert capfd.readouterr().err == ""

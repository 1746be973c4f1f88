"""The report of the doctor when things are missing or broken."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from yaie_magic import doctor
from yaie_magic.doctor import Line, Report


def lines_of(check: Any) -> dict[str, Line]:
    return {line.name: line for line in doctor.guarded(check, {})}


def test_check_that_raises_becomes_a_failed_line() -> None:
    def check_nothing(data: dict[str, Any]) -> Iterator[Line]:
        raise OSError("no\nluck")
        yield

    assert lines_of(check_nothing) == {"nothing": Line("nothing", "fail", "OSError: no luck")}


def test_damaged_model_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "bundled" / "tiny"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "SHA256SUMS").write_text(f"{'0' * 64}  config.json\n")
    monkeypatch.setattr("importlib.resources.files", lambda package: tmp_path)
    line = lines_of(doctor.check_bundled_model)["bundled model"]
    assert line.verdict == "fail" and "config.json" in line.detail
    (folder / "config.json").unlink()
    assert "tiny is missing" in lines_of(doctor.check_bundled_model)["bundled model"].detail


def test_without_a_renderer_drawings_are_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yaie_widgets.render.find_renderer", lambda: None)
    line = lines_of(doctor.check_drawing)["drawing"]
    assert line.verdict == "note" and "graphviz-pure" in line.detail


@pytest.mark.parametrize("script", ["exit 1", "kill -SEGV $$", "echo", "cat >/dev/null"])
def test_a_crashing_renderer_is_only_a_note(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "dot"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("YAIE_DOT", str(program))
    line = lines_of(doctor.check_drawing)["drawing"]
    if script != "echo":  # what it draws there is nobody's business
        assert line.verdict == "note" and "as text only; dot failed" in line.detail
    assert line.verdict != "fail"


def test_the_books_of_loaded_engines_are_checked() -> None:
    from yaie_engine.errors import InvariantError

    class Engine:
        def __init__(self, *violations: str) -> None:
            self.violations = violations

        def check(self) -> None:
            if self.violations:
                raise InvariantError(self.violations)

        def snapshot(self) -> Any:
            return SimpleNamespace(blocks=SimpleNamespace(held=1, cached=2, free=3, total=6))

    (line,) = doctor.check_engine(Engine(), "default")  # type: ignore[arg-type]
    assert line == Line("engine default", "ok", "its books are in order: 1 held, 2 cached and 3 free of 6 blocks")
    (line,) = doctor.check_engine(Engine("block 3 lost"), "default")  # type: ignore[arg-type]
    assert line.verdict == "fail" and "block 3 lost" in line.detail


def test_missing_library_makes_the_engine_unusable(monkeypatch: pytest.MonkeyPatch) -> None:
    known = doctor.version_of
    monkeypatch.setattr(doctor, "version_of", lambda name: None if name == "safetensors" else known(name))
    line = lines_of(doctor.check_versions)["libraries"]
    assert line == Line("libraries", "fail", "missing: safetensors")


def test_missing_cuda_packages_are_only_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "version_of", lambda name: None)
    data: dict[str, Any] = {}
    (line,) = doctor.guarded(doctor.check_cuda_packages, data)
    assert line.verdict == "note" and "not installed: cuda-core" in line.detail
    assert data["cuda"]["usable"] is False


def test_report_in_text_and_json() -> None:
    report = Report(
        False, (Line("drawing", "note", "text only"), Line("model", "fail", "gone")), {"machine": {"cores": 2}}
    )
    assert report.to_text().splitlines()[:2] == ["- drawing  text only", "! model    gone"]
    assert "not usable" in report.to_text()
    assert report.to_dict() == {
        "usable": False,
        "checks": [
            {"name": "drawing", "verdict": "note", "detail": "text only"},
            {"name": "model", "verdict": "fail", "detail": "gone"},
        ],
        "machine": {"cores": 2},
    }

"""The report of the doctor when things are missing or broken."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
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


def test_without_a_renderer_drawings_are_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yaie_widgets.render.find_renderer", lambda: None)
    line = lines_of(doctor.check_drawing)["drawing"]
    assert line.verdict == "note" and "graphviz-pure" in line.detail


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

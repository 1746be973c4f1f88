"""What the page shows of mutation runs that were published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.mutation.published import publish, read, section


def run_of(path: Path, killed: int, name: str = "plan", **more: Any) -> Path:
    found = {"complete": True, "whole": True, "commit": "abc", "date": "2026-01-02", "survivors": [], **more}
    path.write_text(json.dumps({**found, "files": {name: {"equivalent": 2, "killed": killed, "survived": 1}}}))
    return path


def test_each_file_keeps_its_last_run_and_the_page_shows_what_survived(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    assert section(read(kept)) == ""
    publish(run_of(tmp_path / "a", 9, survivors=[["plan", "f", "a < b", "a <= b"]]), kept)
    publish(run_of(tmp_path / "b", 39, "followers", commit="def"), kept)
    text = section(read(kept))
    assert (
        "| plan | abc of 2026-01-02 | 12 | 2 | 9 | 0 | 1 | 90.0 % |" in text and "\nplan f\n- a < b\n+ a <= b\n" in text
    )
    assert text.index("| followers | def") < text.index("| plan | abc"), "sorted by name"
    publish(run_of(tmp_path / "c", 19), kept)
    text = section(read(kept))
    assert "| plan | abc of 2026-01-02 | 22 | 2 | 19 | 0 | 1 | 95.0 % |" in text and "Nothing survived" in text


@pytest.mark.parametrize("part", [{"complete": False}, {"whole": False}])
def test_a_part_of_a_run_is_not_published(tmp_path: Path, part: dict[str, bool]) -> None:
    with pytest.raises(ValueError, match="has ended"):
        publish(run_of(tmp_path / "a", 9, **part), tmp_path / "kept.json")
    assert not read(tmp_path / "kept.json")

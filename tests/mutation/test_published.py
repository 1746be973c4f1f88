"""What the page shows of mutation runs that were published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.mutation import published, run
from tests.mutation.published import publish, read, section


def run_of(path: Path, killed: int, name: str = "plan", **more: Any) -> Path:
    found = {"complete": True, "whole": True, "commit": "abc", "date": "2026-01-02", "survivors": [], **more}
    path.write_text(json.dumps({**found, "files": {name: {"equivalent": 2, "killed": killed, "survived": 1}}}))
    return path


def test_each_file_keeps_its_last_run_and_the_page_shows_what_survived(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    assert section(read(kept), ()) == ""
    publish(run_of(tmp_path / "a", 9, survivors=[["plan", "f", "a < b", "a <= b"]]), kept)
    publish(run_of(tmp_path / "b", 39, "followers", commit="def"), kept)
    text = section(read(kept), ())
    assert (
        "| plan | abc of 2026-01-02 | 12 | 2 | 9 | 0 | 1 | 90.0 % |" in text and "\nplan f\n- a < b\n+ a <= b\n" in text
    )
    assert text.index("| followers | def") < text.index("| plan | abc"), "sorted by name"
    publish(run_of(tmp_path / "c", 19), kept)
    text = section(read(kept), ())
    assert "| plan | abc of 2026-01-02 | 22 | 2 | 19 | 0 | 1 | 95.0 % |" in text and "Nothing survived" in text


@pytest.mark.parametrize("part", [{"complete": False}, {"whole": False}])
def test_a_part_of_a_run_is_not_published(tmp_path: Path, part: dict[str, bool]) -> None:
    with pytest.raises(ValueError, match="has ended"):
        publish(run_of(tmp_path / "a", 9, **part), tmp_path / "kept.json")
    assert not read(tmp_path / "kept.json")


def test_a_text_that_was_changed_since_is_told_and_makes_no_page_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, now = tmp_path / "kept.json", {"plan": "1", "policy": "2", "followers": "3"}
    monkeypatch.setattr(published, "digest", now.__getitem__)
    for name in now:
        publish(run_of(tmp_path / name, 9, name, texts=dict(now)), kept)
    publish(run_of(tmp_path / "followers", 9, "followers"), kept)  # by a run that noted no text
    entries = read(kept)
    assert published.older(entries) == ["followers"]
    before = section(entries, published.older(entries))
    now["plan"] = "another"
    after = section(entries, published.older(entries))
    assert "| plan | abc of 2026-01-02, older text | 12 |" in after and "| policy | abc of 2026-01-02 | 12 |" in after
    assert before != after and published.unmarked(before) == published.unmarked(after)
    publish(run_of(tmp_path / "plan", 9, "plan", texts=dict(now)), kept)
    assert published.older(read(kept)) == ["followers"]


def test_survivors_are_misses(tmp_path: Path) -> None:
    publish(run_of(tmp_path / "a", 9), tmp_path / "kept.json")
    assert published.misses(read(tmp_path / "kept.json")) == ["1 planted mistake in plan survived; see below"]


def test_a_run_notes_the_text_of_every_file() -> None:
    given = run.parse(["--file", "plan", "--file", "body"])
    assert given.texts == {name: published.digest(name) for name in ("plan", "store.body")}
    assert all(len(text) == 16 for text in given.texts.values()) and published.digest("no_such_file") == ""

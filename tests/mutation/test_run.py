"""The mutation run as its user sees it, and the list of mutants that no test can see."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.mutation import equivalent, run
from tests.mutation.operators import mutants_of
from tests.mutation.targets import TARGETS

ENTRY = "store.index PrefixIndex.drop\n- self._groups.pop(key, None)\n+ pass\nBecause.\n"


def listed(tmp_path: Path, text: str) -> list[equivalent.Equivalent]:
    path = tmp_path / "equivalent.txt"
    path.write_text(text)
    return equivalent.read(path)


def test_every_entry_of_the_list_is_a_mutant_of_today() -> None:
    """Where this fails the code of an entry was changed: see whether it still holds, write it anew or remove it."""
    entries = equivalent.read()
    equivalent.check(entries, [mutant for module in TARGETS for mutant in mutants_of(module)])
    assert all(len(entry.reason) > 20 for entry in entries)


def test_an_entry_without_its_mutant_is_an_error(tmp_path: Path) -> None:
    mutants = mutants_of("store.index")
    entries = listed(tmp_path, f"# a note\n\n{ENTRY}more of it\n")
    assert [(entry.key[1], entry.reason) for entry in entries] == [("PrefixIndex.drop", "Because. more of it")]
    equivalent.check(entries, mutants)
    with pytest.raises(equivalent.ListError, match=r"line 1: store\.index has no such mutant"):
        equivalent.check(listed(tmp_path, ENTRY.replace("pass", "None")), mutants)


@pytest.mark.parametrize("text", [ENTRY.replace("Because.\n", ""), ENTRY.replace("- ", ""), f"{ENTRY}\n{ENTRY}"])
def test_a_list_that_is_not_complete_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(equivalent.ListError, match=r"equivalent.txt, line \d"):
        listed(tmp_path, text)


@pytest.mark.parametrize(
    "wrong",
    [
        ["--file", "engine"],
        ["--sample", "0"],
        ["--jobs", "0"],
        ["--lines", "5-9"],
        ["--lines", "9-5", "--file", "plan"],
    ],
)
def test_a_wrong_call_says_what_is_allowed(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        run.main(wrong)
    assert stopped.value.code == 2 and wrong[0] in capsys.readouterr().err


def lines_of(module: str, part: str) -> str:
    numbers = [mutant.line for mutant in mutants_of(module) if part in mutant.diff[0]]
    return f"{min(numbers)}-{max(numbers)}"


@pytest.fixture(autouse=True)
def one_quick_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TARGETS, "store.index", ("store/test_index",))
    monkeypatch.setitem(TARGETS, "radix_tree", ("property/test_recovery",))


def test_a_mistake_that_a_test_sees_is_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = lines_of("store.index", "return max(found")
    figures = tmp_path / "figures.json"
    assert run.main(["--file", "store/index.py", "--lines", lines, "--json", str(figures), "--jobs", "3"]) == 0
    written = json.loads(figures.read_text())
    assert written["complete"] and written["files"]["store.index"]["killed"] >= 4
    assert "100.0 %" in capsys.readouterr().out


def test_a_mistake_that_no_test_sees_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(TARGETS, "store.index", ("property/test_recovery",))
    monkeypatch.setattr(equivalent, "read", list)
    lines = lines_of("store.index", "self._groups.pop")
    assert run.main(["--file", "index", "--lines", lines]) == 1
    out = capsys.readouterr().out
    assert "- self._groups.pop(key, None)\n+ pass" in out and "survived" in out and "missed by the sample" in out


def test_a_mistake_that_never_ends_is_stopped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.mutation.workers.LONGEST_TEST", 0.3)
    lines = lines_of("radix_tree", "done += 1")
    assert run.main(["--file", "radix_tree", "--lines", lines]) == 0
    assert any(line.split()[4] != "0" for line in capsys.readouterr().out.splitlines() if line.startswith("radix"))

"""Each gate of the rows has been seen red: a planted mistake in what a row watches, or a result that breaks its gate.

Those of rows 1 to 4, 12, 17 and 19 are in test_rows.py, beside the small sizes.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fault.faults import Faults
from tests.soak import (
    child,
    faults,
    fuzzing,
    interrupts,
    mixed,
    mutation,
    overload,
    pace,
    readers,
    restarts,
    result,
    rows,
    suite,
)
from tests.soak.figure import Figure
from yaie_engine import LLM, SamplingParams
from yaie_engine.channel import Channel

SEED = 5
TOO_FEW = "mistakes that change something are too few for 95 of 100: at least 20"


def test_a_request_that_should_not_have_failed_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 5."""
    monkeypatch.setattr(faults, "rounds", lambda *_: Faults(SEED, Counter(one=1), wrong=["2 failed, the guilty one"]))
    assert faults.errors(1, SEED).faults == ("2 failed, the guilty one",)


@pytest.mark.full
def test_a_test_that_fails_is_red(tmp_path: Path) -> None:
    """Rows 6, 7, 10, 11, 13, 16, 20, 21, 23 and 26 are tests that exist."""
    (tmp_path / "test_planted.py").write_text("def test_good(): pass\n\n\ndef test_planted(): assert False\n")
    found = suite.suite(str(tmp_path / "test_planted.py"))(1, SEED)
    assert len(found.faults) == 1 and found.faults[0].endswith("::test_planted") and found.size == "1 tests"
    assert found.times == "1 passes over 2 tests, 1 of them were reached"


@pytest.mark.full
def test_skips_are_told_by_pytest(tmp_path: Path) -> None:
    """The same with real reports: a test, and a whole file."""
    (tmp_path / "test_one.py").write_text("import pytest\n\ndef test_a(): pass\n\ndef test_b(): pytest.skip('here')\n")
    (tmp_path / "test_two.py").write_text("import pytest\n\npytest.skip('there', allow_module_level=True)\n")
    found = suite.suite(*(str(tmp_path / f"test_{name}.py") for name in ("one", "two")))(1, SEED)
    assert found.faults == () and sorted(found.skipped.split("; ")) == ["1 x here", "1 x there"]
    (tmp_path / "test_two.py").write_text("import no_such_module\n")
    assert "test_two" in suite.suite(str(tmp_path / "test_two.py"))(1, SEED).faults[0]


def test_a_failed_and_a_lost_test_are_red(tmp_path: Path) -> None:
    passes, report = suite.Passes(), tmp_path / "report.json"
    report.write_text(json.dumps({"collected": 2, "passed": 1, "failed": ["test_planted"], "skipped": {}}))
    passes.add(report, 1, "")
    assert passes.failed == ["test_planted"]
    assert suite.suite("tests/soak/suite.py", "tests/no/such.py")(1, SEED).faults == ("tests/no/such.py is not there",)


def _passes(monkeypatch: pytest.MonkeyPatch, passed: int = 0, **counts: Any) -> Figure:
    """The figure of a suite whose passes give these counts."""

    def once(passes: suite.Passes, *_: Any) -> None:
        found = {"collected": 19, "passed": passed, "ran": [*range(passed)], "failed": [], "skipped": {}, **counts}
        passes.add(SimpleNamespace(is_file=lambda: True, read_text=lambda **_: json.dumps(found)), 0, "")  # type: ignore[arg-type]

    monkeypatch.setattr(suite, "_pass", once)
    ticks = iter(range(100))
    monkeypatch.setattr(suite, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    return suite.suite("tests/soak/suite.py")(2, SEED)


@pytest.mark.parametrize("passed", [0, 7])
def test_a_row_with_skipped_tests_is_not_run(monkeypatch: pytest.MonkeyPatch, passed: int) -> None:
    """However many of the others pass; each test is told once, however often it was skipped."""
    lost = {f"test_{number}": "no Chromium" for number in range(12)}
    found = _passes(monkeypatch, collected=13 + passed, passed=passed, skipped={**lost, "test_12": "no node"})
    assert found.faults == () and found.skipped == "12 x no Chromium; 1 x no node"
    assert (found.size, found.figure) == (f"{2 * passed} tests", "0 failed")
    row = result.Result(23, "what", "gate", 2, SEED, found.size, found.figure, skipped=found.skipped)
    assert row.verdict == result.NOT_RUN and row.told == "0 failed; not run: 12 x no Chromium; 1 x no node"
    assert _passes(monkeypatch, passed=passed, failed=["test_13"], skipped=lost).faults == ("test_13",)


def test_a_row_of_which_nothing_passed_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _passes(monkeypatch).faults == ("no test passed",)
    assert _passes(monkeypatch, collected=0).faults == ("no test was collected",)
    assert _passes(monkeypatch, passed=3).faults == ()


def test_a_file_that_is_skipped_or_broken_is_counted() -> None:
    watched = pace.Pace()
    here = {"longrepr": ("file.py", 1, "Skipped: no gguf"), "failed": False, "skipped": True, "when": "setup"}
    watched.pytest_collectreport(SimpleNamespace(nodeid="test_a.py", **here))
    watched.pytest_runtest_logreport(SimpleNamespace(nodeid="test_b.py::test", **here))
    watched.pytest_runtest_logreport(SimpleNamespace(nodeid="test_b.py::test_x", wasxfail="", **here))
    watched.pytest_collectreport(SimpleNamespace(nodeid="test_c.py", failed=True, skipped=False))
    watched.pytest_collectreport(SimpleNamespace(nodeid="test_d.py", failed=False, skipped=False))
    assert watched.skipped == {"test_a.py": "no gguf", "test_b.py::test": "no gguf"}
    assert watched.failed == ["test_c.py"] and watched.ran == ["test_b.py::test_x"]


def test_rows_of_tests_have_lost_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(*paths: str, **_: Any) -> Callable[[int, int], Figure]:
        missing = tuple(path for path in paths if not (suite.ROOT / path).is_file())
        return lambda *_: Figure("", "", missing)

    monkeypatch.setattr(suite, "suite", look)
    of_tests = [row for row in rows.ROWS if "tests." in row.make.__qualname__]
    assert len(of_tests) == 10 and all(row.make()(1, SEED).faults == () for row in of_tests)


def test_no_test_under_a_sanitizer_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 21 has each of them, those of the full grids as well: by its name, or by that of its file."""
    asked: list[str] = []
    monkeypatch.setattr(suite, "_pass", lambda passes, chosen, *_: asked.extend(chosen))
    monkeypatch.setattr(suite, "time", SimpleNamespace(monotonic=iter((0, 9)).__next__))
    rows.BY_NUMBER[21].make()(1, SEED)
    files = [path for path in asked if path.endswith(".py")]
    assert asked[len(files) :] == ["-k", "(planted or sanitizer) and not wide_vectors"]
    named = re.compile(r"def test_\w*sanitizer|def test_\w*wide_vectors")
    for path in sorted((suite.ROOT / "tests" / "kernels").glob("test_*.py")):
        here = "sanitizer" in path.name or "planted" in path.name or named.search(path.read_text(encoding="utf-8"))
        assert not here or f"tests/kernels/{path.name}" in files, path.name


class Disturbed:
    """A notebook session whose engine is another one after the third interrupt."""

    right: tuple[int, ...] = (1, 2)

    def __init__(self) -> None:
        self.count, self.kernel = 0, self

    def begun(self, _: random.Random) -> Any:
        self.count += 1
        return SimpleNamespace(finished=1.0)

    def interrupt(self) -> float:
        return 0.5

    def finish(self, *_: object) -> None:
        pass

    close = finish

    def state(self) -> tuple[str, int]:
        return "ready", 3 * (self.count == 3)

    def answer(self) -> tuple[int, ...]:
        return (1, 9) if self.count == 4 else self.right


def test_an_engine_that_an_interrupt_left_in_disorder_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 8: blocks still held, another answer."""
    monkeypatch.setattr(interrupts, "Session", Disturbed)
    assert interrupts.interrupts(2, SEED).faults == ()
    assert interrupts.interrupts(4, SEED).faults == (
        "interrupt 2: ('ready', 3), before ('ready', 0)",
        "interrupt 3: the next cell said (1, 9), not (1, 2)",
    )


ENDS = {
    "": "",
    "ended with 3": "raise SystemExit(3)",
    "left file left.kv": "open(os.environ['TMPDIR'] + '/left.kv', 'w').close()",
    "left process python": "import subprocess; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])",
    "said ": "print('Traceback: an exception was ignored', file=sys.stderr)",
}


@pytest.mark.parametrize("named", ENDS)
def test_what_a_process_leaves_is_red(monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    """Row 9."""
    text = f"import os, sys, time\nprint('reached the end', time.time(), flush=True)\n{ENDS[named]}"
    monkeypatch.setattr(restarts, "PROGRAM", text.replace("{", "{{").replace("}", "}}"))
    found = restarts.program(random.Random(SEED), [])
    assert len(found) == bool(named) and all(named in fault for fault in found), found


def test_a_kernel_that_outlives_its_restart_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 9, too."""
    nothing = SimpleNamespace(restart_kernel=lambda: None, provisioner=SimpleNamespace(pid=-1))
    kernel = SimpleNamespace(
        run=lambda *_, **__: SimpleNamespace(status="ok"), value=lambda _: os.getpid(), manager=nothing,
        client=SimpleNamespace(wait_for_ready=lambda **_: None), close=lambda: None,
    )  # fmt: skip
    monkeypatch.setattr(restarts, "Kernel", lambda: kernel)
    assert restarts.kernel_restart([]) == [f"turn 0: the old kernel {os.getpid()} still runs"]


class Answers:
    """A session that answers with these, in turn."""

    def __init__(self, *given: tuple[int, dict[str, str]]) -> None:
        self.given = list(given)

    async def post(self, *_: object, **__: object) -> Any:
        status, headers = self.given.pop(0)
        return SimpleNamespace(status_code=status, headers=headers)


def test_an_answer_that_is_neither_service_nor_patience_is_red() -> None:
    """Row 14: 500, and 429 that does not say when to come back."""
    crowd = overload.Crowd(SimpleNamespace(), SEED)  # type: ignore[arg-type]
    given = Answers((200, {}), (429, {"retry-after": "0"}), (500, {}), (429, {}))
    with pytest.raises(IndexError):
        asyncio.run(crowd.client(given, float("inf")))
    assert crowd.faults == ["500, Retry-After None", "429, Retry-After None"] and crowd.seen[429] == 2


def test_a_crowd_that_was_counted_wrong_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody(*_: object) -> None:
        pass

    monkeypatch.setattr(overload.Crowd, "run", nobody)
    monkeypatch.setattr(overload, "outcomes", lambda _: {"ok": 3, "busy": 0, "error": 0})
    monkeypatch.setattr(overload, "serving", SimpleServing)
    monkeypatch.setattr(overload, "unsound", lambda _: ["blocks are still held"])
    monkeypatch.setattr(overload, "send", lambda *_: SimpleNamespace(status_code=503))
    assert overload.overload(1, SEED).faults == (
        "blocks are still held",
        "when they had gone: 503",
        "nobody was told to come back",
        "counted {'ok': 3, 'busy': 0, 'error': 0}, seen {}",
    )


class SimpleServing:
    """A server with nothing to do."""

    num_active, llm = 0, SimpleNamespace(running=list)

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> SimpleServing:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_a_reader_that_suffers_from_others_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 15: another text for those who read; those who do not were not noticed."""
    said = b'data: {"text": "bbb"}\ndata: [DONE]\n'
    monkeypatch.setattr(readers, "send", lambda *_: SimpleNamespace(content=said, status_code=200))
    assert "a client that reads got 200 'bbb'" in readers.rate(SimpleServing(), 0.01)[1]  # type: ignore[arg-type]
    monkeypatch.setattr(readers, "outcomes", lambda _: {"cancelled": 1, "ok": 0, "error": 1, "rejected": 0, "busy": 0})
    monkeypatch.setattr(readers, "unsound", lambda _: [])
    monkeypatch.setattr(readers, "get", lambda *_: SimpleNamespace(status_code=503))
    _, found = readers._afterwards(SimpleServing(), 2)  # type: ignore[arg-type]
    assert [fault.split(",")[0] for fault in found] == [
        "counted {'cancelled': 1", "2 never read and 2 reset", "/health does not answer",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "said", "fault"),
    [
        (0, "stat::number_of_executed_units: 7", ""),
        (77, "Test unit written to build/crash-1", "build/crash-1"),
        (0, "nothing", "it said nothing of what it ran"),
    ],
)
def test_a_target_that_breaks_or_says_nothing_is_red(
    monkeypatch: pytest.MonkeyPatch, code: int, said: str, fault: str
) -> None:
    """Row 18."""

    def run(command: list[str], **_: Any) -> Any:
        return subprocess.CompletedProcess(command, code if len(command) > 1 else 0, said, "")

    monkeypatch.setattr(fuzzing, "subprocess", SimpleNamespace(run=run))
    monkeypatch.setattr(fuzzing, "TARGETS", {"planted": None})
    assert fuzzing.fuzzing(1, SEED).faults == ((f"planted: {fault}",) if fault else ())


def _choice(text: str, reason: str) -> Any:
    return SimpleNamespace(outputs=[SimpleNamespace(text=text, finish_reason=reason)])


def test_a_wrong_a_lost_or_a_doubled_answer_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 24, as its clients see it."""
    client = mixed.Client(SimpleNamespace(), {"x": "abcd"}, SEED)  # type: ignore[arg-type]
    for text, reason in (("ab", "cancelled"), ("abcd", "length"), ("abx", "cancelled"), ("abc", "length")):
        client.check(_choice(text, reason), "x", greedy=True)
    client.check(_choice("anything", "length"), "x", greedy=False)
    assert client.faults == ["cancelled: 'abx' is not 'abcd'", "length: 'abc' is not 'abcd'"]
    client.once = lambda: (_ for _ in ()).throw(RuntimeError("planted"))  # type: ignore[method-assign]
    client.run()
    assert len(client.faults) == 2 + mixed.REQUESTS
    monkeypatch.setattr(Channel, "end", lambda *_: None)
    with mixed.terminals() as ends:
        for _ in range(2):
            Channel.end(SimpleNamespace(), SimpleNamespace(request_id="r"))  # type: ignore[arg-type]
    assert ends == {"r": 2}


def test_what_a_round_leaves_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 24, between two rounds: threads, descriptors, blocks."""
    ticks = iter(range(0, 1000, 6))
    monkeypatch.setattr(mixed, "gc", SimpleNamespace(collect=lambda: 0))
    monkeypatch.setattr(mixed, "time", SimpleNamespace(monotonic=lambda: next(ticks), sleep=lambda _: None))
    before, done = mixed.census(), threading.Event()
    assert mixed.grown(before) == []
    thread, (reads, writes) = threading.Thread(target=done.wait, args=(60,)), os.pipe()
    thread.start()
    [told] = mixed.grown(before)
    assert told == f"threads and descriptors: {before}, then {(before[0] + 1, before[1] + 2)}"
    done.set()
    thread.join()
    for end in (reads, writes):
        os.close(end)
    blocks = SimpleNamespace(held=1, free=3, cached=0, total=4)
    held = SimpleNamespace(running=list, check=lambda: None, snapshot=lambda: SimpleNamespace(blocks=blocks))
    assert mixed.between(held) == [str(blocks)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("counts", "fault"),
    [
        ({"killed": 19, "survived": 1}, ""),
        ({"killed": 95, "survived": 5, "equivalent": 9}, ""),
        ({"killed": 94, "timed out": 1, "survived": 5}, ""),
        ({"killed": 94, "survived": 5}, "5 of 99 survive; see scripts/mutate --sample 20 --seed 5"),
        ({"killed": 18, "survived": 2}, "2 of 20 survive; see scripts/mutate --sample 20 --seed 5"),
        ({"killed": 38, "survived": 3}, "3 of 41 survive; see scripts/mutate --sample 20 --seed 5"),
        ({"killed": 19, "equivalent": 1}, f"19 {TOO_FEW}"),
        ({"equivalent": 20}, f"0 {TOO_FEW}"),
        (None, "ended with 1: it broke"),
    ],
)
def test_mistakes_that_survive_are_red(
    monkeypatch: pytest.MonkeyPatch, counts: dict[str, int] | None, fault: str
) -> None:
    """Row 25."""

    def run(command: list[str], **_: Any) -> Any:
        if counts is not None:
            Path(command[-1]).write_text(json.dumps({"files": {"planted.py": counts}}))
        return subprocess.CompletedProcess(command, 1, "", "it broke")

    monkeypatch.setattr(mutation, "subprocess", SimpleNamespace(run=run))
    assert mutation.mutation(20, SEED).faults == ((fault,) if fault else ())


def test_no_number_of_mistakes_is_judged_more_kindly() -> None:
    """Row 25: green is at least 20 mistakes and 95 of 100, whatever is drawn; the row draws enough for that."""
    for judged in range(200):
        for survived in range(judged + 1):
            green = not mutation.broken(judged - survived, survived, "")
            assert green == (judged >= 20 and 20 * survived <= judged), (judged, survived)
    assert rows.BY_NUMBER[25].least >= 2 * mutation.LEAST


def test_a_row_that_raises_is_red(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever it is: the row has an answer, and the fault has its name."""
    broken = SimpleNamespace(make=lambda: lambda size, seed: sys.exit("planted"))
    monkeypatch.setattr(child, "BY_NUMBER", {7: broken})
    assert child.main(["7", "1", "5", str(tmp_path / "figure.json")]) == 0
    assert json.loads((tmp_path / "figure.json").read_text())["faults"] == ["SystemExit: planted"]


def test_a_held_block_is_red(tmp_path: Path) -> None:
    """Rows 14, 15 and 17 end with this."""
    from tests.soak.serving import serving, unsound

    with serving({"num_blocks": 16}) as server:
        llm: LLM = server.llm
        assert unsound(server) == []
        handle = llm.submit([1, 2, 3], SamplingParams(max_tokens=40, ignore_eos=True))
        next(iter(handle))
        while not (told := unsound(server)) and not handle.done:
            pass
        handle.cancel()
        assert told and told[0].startswith("blocks are still held: ")

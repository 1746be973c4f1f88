"""Interrupts in a real kernel: at prefill, in decode, twice fast, while loading. The engine is the fake one, whose
parts take the time they are told; test_cases.py does the same with the real engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.fakes import eventually

AT_ONCE = 1.0  # seconds from the button to an idle kernel


@pytest.fixture
def kernel(fake_kernel: Any) -> Iterator[Any]:
    fake_kernel.run("SPEED.load = SPEED.prefill = 0.0; SPEED.step = 0.002")
    yield fake_kernel
    fake_kernel.run("SPEED.load = SPEED.prefill = 0.0; SPEED.step = 0.002")
    assert fake_kernel.run("%%generate -m 2\nhi").status == "ok", "the next cell works"
    assert fake_kernel.value("session.get().llm.snapshot().blocks.held") == 0
    names = fake_kernel.value("[t.name for t in threading.enumerate() if t.name.startswith('yaie')]")
    assert names == ["yaie-engine"]


def interrupted(kernel: Any, cell: Any, presses: int = 1) -> float:
    pressed = kernel.interrupt()
    for _ in range(presses - 1):
        kernel.interrupt()
    kernel.finish(cell)
    return float(cell.finished - pressed)


def test_in_decode_the_partial_text_is_kept(kernel: Any) -> None:
    cell = kernel.send("%%generate -m 100000 -o r\nlong")
    kernel.until(cell, lambda cell: cell.updates > 3)
    assert interrupted(kernel, cell) < AT_ONCE
    assert cell.status == "error" and cell.error["ename"] == "Interrupted"
    assert len(cell.error["traceback"]) == 1 and "tokens kept" in cell.error["traceback"][0]
    assert cell.stderr == ""
    reason, text, same = kernel.value("(r.finish_reason, r.text, r is _yaie)")
    assert reason == "cancelled" and text.startswith("w0 w1 ") and same
    assert cell.displays[0]["text/plain"].startswith(text)


def test_the_result_of_an_interrupted_cell_is_in_out_too(kernel: Any) -> None:
    cell = kernel.send("%%generate -m 100000 -o r\nlong")
    kernel.until(cell, lambda cell: cell.updates > 1)
    interrupted(kernel, cell)
    assert kernel.value("Out[max(k for k in Out if Out[k] is r)] is r")


def test_at_prefill_nothing_has_come_yet(kernel: Any) -> None:
    kernel.run("SPEED.prefill = 30")
    cell = kernel.send("%%generate -m 10 -o r\nlong")
    kernel.settle(0.3)
    assert interrupted(kernel, cell) < AT_ONCE
    assert kernel.value("(r.finish_reason, r.text, r.done)") == ("cancelled", "", True)


def test_in_a_long_step_the_cell_returns_and_the_request_ends_later(kernel: Any) -> None:
    kernel.run("SPEED.step = 2")
    cell = kernel.send("%%generate -m 10 -o r\nlong")
    kernel.settle(0.3)
    assert interrupted(kernel, cell) < AT_ONCE
    assert "the text so far is kept" in cell.error["evalue"]
    assert kernel.value("(r.finish_reason, r.done)") == ("cancelled", False)
    assert kernel.value("r.wait(10).done")
    kernel.run("time.sleep(0.1)")


def test_twice_fast(kernel: Any) -> None:
    for presses in (2, 3, 5):
        cell = kernel.send("%%generate -m 100000 -o r\nlong")
        kernel.until(cell, lambda cell: cell.updates > 1)
        assert interrupted(kernel, cell, presses) < AT_ONCE
        assert cell.error["ename"] == "Interrupted"
        assert kernel.value("r.finish_reason") == "cancelled"


def test_a_later_interrupt_in_the_same_cell_is_heard(kernel: Any) -> None:
    cell = kernel.send(
        "try:\n"
        "    get_ipython().run_cell_magic('generate', '-m 100000', 'long')\n"
        "except KeyboardInterrupt:\n"
        "    time.sleep(30)"
    )
    kernel.until(cell, lambda cell: cell.updates > 1)
    kernel.interrupt()
    kernel.settle(0.8)
    interrupted(kernel, cell)
    assert cell.error["ename"] == "KeyboardInterrupt"


def test_while_loading_nothing_is_left_behind(kernel: Any) -> None:
    before = kernel.value("len(BUILT)")
    kernel.run("SPEED.load = 2")
    cell = kernel.send("%yaie load other --as other")
    kernel.settle(0.5)
    assert interrupted(kernel, cell) < AT_ONCE
    assert cell.error["ename"] == "Interrupted" and "nothing was loaded" in cell.error["evalue"]
    assert kernel.value("list(session.engines)") == ["default"]
    kernel.run("time.sleep(0.3)")
    assert kernel.value("len(BUILT)") == before


def test_a_load_that_cannot_stop_is_closed_when_it_is_done(kernel: Any) -> None:
    kernel.run(
        "def stubborn(config, progress):\n"
        "    time.sleep(1)\n"
        "    return fakes.FakeLLM(config.model, config)\n"
        "session.build = stubborn"
    )
    cell = kernel.send("%yaie load other --as other")
    kernel.settle(0.3)
    assert interrupted(kernel, cell, presses=2) < AT_ONCE
    kernel.run("session.build = fakes.build; time.sleep(1)")
    assert kernel.value("(BUILT[-1].config.model, BUILT[-1].state)") == ("other", "closed")


def test_in_the_doctor(kernel: Any, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    kernel.run("import pathlib, yaie_magic.doctor as doctor; examine = doctor.examine")
    kernel.run(f"doctor.examine = lambda **_: (pathlib.Path({str(begun)!r}).touch(), time.sleep(1.5))")
    cell = kernel.send("%yaie doctor")
    eventually(begun.exists)
    assert interrupted(kernel, cell) < AT_ONCE
    assert cell.error["evalue"] == "doctor interrupted"
    kernel.run("doctor.examine = examine; time.sleep(1.5)")


def test_run_all_stops(kernel: Any) -> None:
    first = kernel.send("%%generate -m 100000\nlong")
    second = kernel.send("print('second ran')")
    kernel.until(first, lambda cell: cell.updates > 1)
    interrupted(kernel, first)
    kernel.settle(0.3)
    assert second.stdout == ""


def test_in_a_batch_the_finished_ones_stay(kernel: Any) -> None:
    kernel.run("prompts = [{'prompt': 'a', 'max_tokens': 2}] * 3 + [{'prompt': 'b', 'max_tokens': 100000}] * 3")
    cell = kernel.send("%batch --from prompts -o rs")
    kernel.settle(0.5)
    assert interrupted(kernel, cell) < AT_ONCE
    reasons = kernel.value("[r.finish_reason for r in rs]")
    assert reasons == ["length"] * 3 + ["cancelled"] * 3
    assert "3 of 6 finished" in cell.error["evalue"]


def test_while_waiting_for_a_background_cell_the_request_goes_on(kernel: Any) -> None:
    kernel.run("%%generate -b -m 600 -o r\nlong")
    cell = kernel.send("r.wait()")
    kernel.settle(0.2)
    assert interrupted(kernel, cell) < AT_ONCE
    assert kernel.value("r.wait(10).finish_reason") == "length"


def test_case_06_interrupt_and_generate_again_many_times(kernel: Any) -> None:
    for _ in range(10):
        cell = kernel.send("%%generate -m 100000\nlong")
        kernel.until(cell, lambda cell: bool(cell.displays))
        assert interrupted(kernel, cell) < AT_ONCE
        assert kernel.run("%%generate -m 2\nhi").status == "ok"
    assert kernel.value("len(BUILT)") < 5


def test_case_18_the_engine_is_alive_after_an_interrupted_wait(kernel: Any) -> None:
    cell = kernel.send("%%generate -m 100000\nlong")
    kernel.until(cell, lambda cell: cell.updates > 1)
    interrupted(kernel, cell)
    assert "tiny · ready" in kernel.run("%yaie status").stdout
    assert kernel.value("session.get().llm._thread.is_alive()")

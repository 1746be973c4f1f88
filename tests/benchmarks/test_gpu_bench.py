"""How a GPU is timed and captured, on a torch.cuda that writes down its calls."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks.gpu.bench import GpuBench


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was called on torch.cuda, in order. Time stands at 3 ms between any two events."""
    made: list[str] = []

    class Stream:
        def __init__(self, *_: Any) -> None:
            pass

        def wait_stream(self, other: Any) -> None:
            made.append("wait")

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            made.append("event")

        def synchronize(self) -> None:
            made.append("wait for event")

        def elapsed_time(self, other: Event) -> float:
            return 3.0

    class CUDAGraph:
        def capture_begin(self, capture_error_mode: str) -> None:
            made.append(f"begin {capture_error_mode}")

        def capture_end(self) -> None:
            made.append("end")

        def replay(self) -> None:
            made.append("replay")

    @contextmanager
    def stream(_: Stream) -> Any:
        made.append("on the side stream")
        yield
        made.append("back")

    fake = SimpleNamespace(
        Stream=Stream,
        Event=Event,
        CUDAGraph=CUDAGraph,
        stream=stream,
        is_available=lambda: True,
        set_device=lambda _: None,
        init=lambda: None,
        current_stream=lambda _: Stream(),
        synchronize=lambda _: made.append("synchronise"),
    )
    monkeypatch.setattr(torch, "cuda", fake)
    return made


def test_a_call_is_run_twice_on_a_side_stream_and_then_captured_there(calls: list[str]) -> None:
    bench = GpuBench()
    replay = bench.capture(lambda: calls.append("call"))
    warm = ["wait", "on the side stream", "call", "call", "back", "wait", "synchronise"]
    assert calls == [*warm, "on the side stream", "begin thread_local", "call", "end", "back"]
    calls.clear()
    replay()
    assert calls == ["replay"]


def test_a_call_that_fails_in_a_capture_says_why(calls: list[str]) -> None:
    runs = iter([None, None, RuntimeError("not permitted")])

    def call() -> None:
        if (error := next(runs)) is not None:
            raise error

    with pytest.raises(RuntimeError, match="not permitted"):
        GpuBench().capture(call)
    assert "end" in calls


def test_device_time_is_between_two_events_in_seconds(calls: list[str]) -> None:
    assert GpuBench().seconds(lambda: calls.append("call"), 2) == pytest.approx(0.003)
    assert calls == ["synchronise", "event", "call", "call", "event", "wait for event"]


def test_without_a_gpu_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match="sees no GPU here; --cpu tries the check without one"):
        GpuBench()

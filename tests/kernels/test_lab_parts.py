"""The parts of the kernel lab that need no compiler: margins, comparison, requests, the process that may die."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch

from yaie_cuda.emulator.launcher import EmulatorLauncher
from yaie_cuda.lab.cases import cases_of
from yaie_cuda.lab.compare import compare
from yaie_cuda.lab.guarded import MARGIN, Guarded
from yaie_cuda.lab.process import CheckProcess, last_words
from yaie_cuda.lab.request import CheckRequest, ModelSizes, matches
from yaie_cuda.lab.result import CaseResult, Difference
from yaie_cuda.lab.trial import DEVICE_REPLAYS, DEVICE_RUNS, Trial

CPU = torch.device("cpu")


def test_equal_results_are_no_difference() -> None:
    values = torch.tensor([1.0, -math.inf, math.nan, 0.0])
    found = compare("out", values, values.clone(), 0.0)
    assert found.ok and (found.max_error, found.relative_error, found.wrong, found.index) == (0.0, 0.0, 0, None)


def test_the_first_wrong_element_is_named() -> None:
    expected = torch.arange(12.0).view(3, 4)
    got = expected.clone()
    got[1, 2], got[2, 0] = 7.0, 80.0
    found = compare("out", got, expected, 1e-3)
    assert (found.index, found.got, found.expected, found.wrong, found.elements) == ((1, 2), 7.0, 6.0, 2, 12)
    assert found.max_error == 72.0
    assert found.words == "out[1, 2] is 7 and should be 6; 2 of 12 elements are wrong"


def test_a_nan_is_never_near() -> None:
    found = compare("out", torch.tensor([1.0, math.nan]), torch.ones(2), 0.5)
    assert not found.ok and found.index == (1,) and found.relative_error == math.inf


def test_small_values_are_measured_by_the_size_of_the_tensor() -> None:
    expected = torch.tensor([100.0, 0.0])
    assert compare("out", expected + 0.01, expected, 1e-3).ok
    assert not compare("out", expected + 1.0, expected, 1e-3).ok


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.int32, torch.int64])
def test_margins_keep_content_and_alignment_and_tell_where_they_were_written(dtype: torch.dtype) -> None:
    source = torch.arange(6).view(2, 3).to(dtype)
    guard = Guarded.like(source, CPU)
    assert torch.equal(guard.tensor, source) and guard.tensor.is_contiguous()
    assert guard.tensor.data_ptr() % 16 == 0 and guard.written_beside() is None
    size = source.numel() * source.element_size()
    guard.buffer[MARGIN + size + 8] = 1
    assert guard.written_beside() == 8
    guard.buffer[MARGIN - 4] = 1
    assert guard.written_beside() == -4


def test_reading_beside_a_float_tensor_gives_nan() -> None:
    guard = Guarded.like(torch.zeros(4, dtype=torch.bfloat16), CPU)
    beside = guard.buffer[MARGIN - 2 : MARGIN].view(torch.bfloat16)
    assert beside.isnan().all()


def test_requests_and_results_survive_json() -> None:
    request = CheckRequest(
        "rms_norm", "text", arch="sm_90", sizes=(ModelSizes(hidden=64),), also=(((("WIDTH", "8"),), 128, 0),)
    )
    assert CheckRequest.from_dict(json.loads(json.dumps(request.to_dict()))) == request
    wrong = Difference("out", math.inf, math.inf, 0.1, 1, 4, (0, 1), math.nan, 1.0)
    case = CaseResult("title", ("a", "b"), (wrong,), how="late")
    again = CaseResult.from_dict(json.loads(json.dumps(case.to_dict())))
    assert again.labels == case.labels and again.differences[0].index == (0, 1) and not again.ok
    assert again.words == "out[0, 1] is nan and should be 1; 1 of 4 elements are wrong (late)"


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (None, True),
        ("k[SCALAR=bfloat16 WIDTH=8]", True),
        ("WIDTH=8", True),
        ("WIDTH=8,SCALAR=bfloat16", True),
        ("WIDTH=8 SCALAR=float16", False),
        ("k[WIDTH=8]", False),
        ("", False),
    ],
)
def test_a_specialisation_is_picked_by_label_or_macros(wanted: str | None, found: bool) -> None:
    assert matches(wanted, "k[SCALAR=bfloat16 WIDTH=8]") is found


def test_last_words_are_for_whoever_wrote_the_kernel() -> None:
    assert "memory that is not its own" in last_words(-11)
    assert "SIGABRT" in last_words(-6) and "code 3" in last_words(3)


@pytest.mark.timeout(60)
def test_a_process_that_dies_tells_why_and_is_gone() -> None:
    process = CheckProcess(CheckRequest("no_such_kernel", ""))
    findings = []
    deadline = time.monotonic() + 50
    while time.monotonic() < deadline:
        if (finding := process.take(0.2)) is not None:
            findings.append(finding)
            if finding[0] == "end":
                break
    process.close()
    process.close()
    assert findings[-1] == ("end", None)
    assert any(kind == "problem" for kind, _ in findings), findings


def test_a_gpus_time_is_that_of_replays_without_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs are captured after one that is not, and the clock runs around replays only."""
    done: list[str] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            done.append("clock")

        def synchronize(self) -> None:
            done.append("wait")

        def elapsed_time(self, end: Any) -> float:
            return 100.0

    class Graph:
        def replay(self) -> None:
            done.append("replay")

    class Stream:
        def __init__(self, device: torch.device) -> None:
            assert device.type == "cuda"

        def synchronize(self) -> None:
            done.append("wait")

    @contextmanager
    def captured(graph: Any, stream: Any) -> Iterator[None]:
        done.append("capture")
        yield
        done.append("captured")

    for name, fake in (("Event", Event), ("CUDAGraph", Graph), ("Stream", Stream), ("graph", captured)):
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    trial = Trial(cases_of("silu_and_mul")[0], torch.device("cpu"))
    trial.device = torch.device("cuda", 0)
    monkeypatch.setattr(trial, "_run", lambda *_: done.append("run"))
    assert trial.milliseconds(EmulatorLauncher()) == 100.0 / DEVICE_RUNS
    head = ["run", "wait", "capture", *["run"] * DEVICE_RUNS, "captured"]
    assert done == [*head, *["clock", "replay", "clock", "wait"] * DEVICE_REPLAYS]

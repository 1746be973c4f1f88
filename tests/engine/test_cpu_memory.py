"""CPU kernels whose memory ends: no call ends the process, each says so, and the step is done in smaller ones."""

from __future__ import annotations

import ctypes
import itertools
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.kernels.test_cpu_kernels import attention_case
from yaie_cuda.cpu import build, kernels, library, recording
from yaie_cuda.cpu.kernels import CpuKernels
from yaie_engine import LLM, RequestOutput, SamplingParams
from yaie_engine.device_errors import out_of_memory, within_memory
from yaie_engine.errors import DeviceMemoryError
from yaie_engine.plan import StepPlan

pytestmark = pytest.mark.skipif(bool(build.unbuildable_reason()), reason=build.unbuildable_reason())
HOOK = Path(__file__).parents[1] / "kernels" / "failing_new.hpp"
DTYPES = torch.float32, torch.bfloat16
EndMemory = Callable[[int], None]


@pytest.fixture(scope="module")
def end_memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EndMemory]:
    """All kernels of this module come from a library whose memory ends after so many allocations; -1: it does not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("YAIE_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        flags = *build.FLAGS, "-O1", "-include", str(HOOK), "-Wl,-Bsymbolic"
        patch.setattr(build, "FLAGS", flags)
        hooked = library.library.__wrapped__()
        for module in (library, kernels, recording):
            patch.setattr(module, "library", lambda: hooked)
        end: EndMemory = ctypes.CDLL(str(build.build())).end_memory
        end.argtypes = [ctypes.c_long]  # type: ignore[attr-defined]
        yield end


def in_new_thread(run: Callable[[], Any], threads: int) -> Any:
    """A thread that comes with no memory of earlier calls, as do those that OpenMP makes for it."""
    found: list[Any] = []

    def whole() -> None:
        torch.set_num_threads(threads)
        found.append(run())

    before = torch.get_num_threads()
    thread = threading.Thread(target=whole)
    thread.start()
    thread.join()
    torch.set_num_threads(before)
    return found[0]


def calls(dtype: torch.dtype) -> dict[str, Callable[[CpuKernels], Tensor]]:
    """Every kernel that works in memory of its own."""
    torch.manual_seed(3)
    weight, scales = torch.randint(-127, 127, (200, 64), dtype=torch.int8), torch.rand(200)
    rows = torch.randn(90, 64).to(dtype)

    def attend(kernels: CpuKernels, chunks: bool) -> Tensor:
        case = attention_case(random.Random(5), dtype, chunks)
        shape = (*case["query"].shape[:2], case["value_cache"].shape[3])
        out = torch.zeros(shape, dtype=dtype)
        (kernels.attend_chunks if chunks else kernels.attend_rows)(**case, out=out, work=10**4)
        return out

    def seeded(kernels: CpuKernels, chunks: bool) -> Tensor:
        with torch.random.fork_rng():
            torch.manual_seed(5)
            return attend(kernels, chunks)

    keys, values, query = (torch.randn(*shape).to(dtype) for shape in ((16, 2, 16, 32), (16, 2, 16, 32), (8, 4, 32)))
    tables = torch.cat((torch.arange(8).expand(8, 8), torch.arange(8, 16).unsqueeze(1)), 1).to(torch.int32)

    def prefix(kernels: CpuKernels) -> Tensor:
        lens, out = torch.full((8,), 140, dtype=torch.int32), torch.zeros_like(query)
        kernels.attend_rows(query, keys, values, tables, lens, 0.25, 0, 0.0, None, out, 8 * 140)
        return out

    return {
        "prefix": prefix,
        "linear_int8": lambda kernels: kernels.linear_int8(rows, *kernels.pack_int8(weight, scales), None, 200),
        "attend_rows": lambda kernels: seeded(kernels, False),
        "attend_chunks": lambda kernels: seeded(kernels, True),
    }


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", calls(torch.float32))
def test_a_call_without_memory_says_so_and_the_next_is_right(
    end_memory: EndMemory, name: str, dtype: torch.dtype, threads: int
) -> None:
    """Wherever memory ends: at the first allocation of the call, the second, and so on until it suffices."""
    made, call = CpuKernels(), calls(dtype)[name]
    expected = call(made)

    def ended(after: int) -> bool:
        end_memory(after)
        try:
            call(made)
            return False
        except MemoryError:
            return True
        finally:
            end_memory(-1)
            torch.testing.assert_close(call(made), expected, equal_nan=True)

    failures = sum(
        1 for _ in itertools.takewhile(lambda after: in_new_thread(lambda: ended(after), threads), range(99))
    )
    assert 1 <= failures < 99


@pytest.mark.parametrize("eager", [True, False])
def test_the_engine_survives_kernels_without_memory(
    end_memory: EndMemory, eager: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Who needs more than is there ends with the numbers, where no smaller step does; the next request is right."""
    params, short = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True), "The red lamp"
    long = f"{short} stood in the hall. " * 20
    with LLM("tiny", attention_backend="cpu", enforce_eager=eager, enable_prefix_caching=False) as llm:

        def ask(prompt: str, memory: int = -1) -> RequestOutput:
            end_memory(memory)
            output = llm.generate(prompt, params, use_tqdm=False)[0]
            end_memory(-1)
            llm.check()
            return output

        failed = ask(long, 0)
        assert isinstance(failed.error, DeviceMemoryError) and "cpu_memory_utilization" in str(failed.error)
        assert "with 1 tokens of 1 sequences" in str(failed.error) and "found no memory" in str(failed.error)
        assert ask(short).error is None
        caplog.clear()
        in_parts, whole = ask(long, 0), ask(long)  # the first in the room that the short one left
        assert "found no memory" in caplog.text and in_parts.error is None is whole.error
        assert in_parts.outputs[0].text == whole.outputs[0].text


def test_memory_that_torch_or_python_lacks_is_that_of_a_device() -> None:
    """On a CPU torch raises a plain RuntimeError; what it says after its place in the source is what is told."""

    def too_much() -> None:
        torch.empty(2**50, dtype=torch.uint8)

    with pytest.raises(DeviceMemoryError, match=r"\(DefaultCPUAllocator: can't allocate memory: you tried"):
        within_memory(too_much, StepPlan(1, []), torch.device("cpu"))
    assert out_of_memory(MemoryError()) and not out_of_memory(RuntimeError("no memory of that"))

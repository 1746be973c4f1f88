"""A prepared call launches what a first call does: same kernels, grids and parameters, whatever came before."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.gpu.cascade_cases import cascade
from yaie_cuda import launch_cache, sources
from yaie_cuda.attention import paged_attention_decode_kernel
from yaie_cuda.fused import rms_norm_kernel, rotary_embedding_kernel
from yaie_cuda.kernel import Launcher, Specialisation
from yaie_cuda.lab.case import Case, Inventor
from yaie_cuda.lab.cases import BUILDERS
from yaie_cuda.lab.request import ModelSizes
from yaie_cuda.lab.trial import kernel_function
from yaie_cuda.launch_cache import LaunchCache
from yaie_cuda.prepared import Launch, prepared
from yaie_cuda.specialisations.fused import silu_specialisation
from yaie_cuda.workspace import Workspace

CPU = torch.device("cpu")


class Noting:
    """Launches nothing and notes each thread's launches."""

    name = "noting"
    multiprocessors = 132
    max_shared_bytes = 232_448

    def __init__(self) -> None:
        self.prepared = LaunchCache()
        self.workspace = Workspace().take
        self._local = threading.local()

    def launch(self, specialisation: Specialisation, grid: tuple[int, int, int], params: ctypes.Structure) -> None:
        self._local.noted.append((specialisation, grid, bytes(params)))

    def noted(self, call: Callable[[Launcher], object]) -> list[tuple[Specialisation, tuple[int, int, int], bytes]]:
        """What `call` launches."""
        self._local.noted = []
        call(self)  # type: ignore[arg-type]
        return list(self._local.noted)

    def unprepared(self, call: Callable[[Launcher], object]) -> list[Any]:
        """The same with nothing prepared before or after."""
        kept, self.prepared = self.prepared, LaunchCache()
        noted = self.noted(call)
        self.prepared = kept
        return noted


def lab_cases() -> Iterator[Any]:
    builders = dict.fromkeys((*chain.from_iterable(BUILDERS.values()), cascade))
    for case in chain.from_iterable(builder(ModelSizes()) for builder in builders):
        yield pytest.param(case, id=f"{case.op}-{case.title}")


@pytest.mark.parametrize("case", list(lab_cases()))
def test_every_op_launches_the_same_again(case: Case) -> None:
    launcher, kernel, arguments = Noting(), kernel_function(case.op), case.make(Inventor())
    first = launcher.noted(lambda on: kernel(on, *arguments))
    known = len(launcher.prepared)
    assert launcher.noted(lambda on: kernel(on, *arguments)) == first
    assert len(launcher.prepared) == known == (case.op != "copy_blocks")
    moved = [argument.clone() if isinstance(argument, Tensor) else argument for argument in arguments]
    elsewhere = launcher.noted(lambda on: kernel(on, *moved))
    assert elsewhere == launcher.unprepared(lambda on: kernel(on, *moved))
    assert [one[:2] for one in elsewhere] == [one[:2] for one in first]


def decode_arguments(**changed: Any) -> dict[str, Any]:
    """A decode of 3 sequences with tables of 256 blocks, so that parts need room."""
    caches = torch.zeros(2, 9, 2, 16, 64, dtype=torch.bfloat16)
    query = torch.zeros(3, 1, 8, 64, dtype=torch.bfloat16)
    return {
        "query": query, "key_cache": caches[0], "value_cache": caches[1],
        "block_tables": torch.zeros(3, 256, dtype=torch.int32), "context_lens": torch.ones(3, dtype=torch.int32),
        "scale": 0.125, "sliding_window": 0, "softcap": 0.0, "sinks": None,
        "out": torch.zeros_like(query), "lse": None,
    } | changed  # fmt: skip


def decode_variants() -> Mapping[str, dict[str, Any]]:
    """Calls that differ in one thing that a launch depends on."""
    half = {name: tensor.half() for name, tensor in decode_arguments().items() if name in {"key_cache", "value_cache"}}
    query, wide = torch.zeros(3, 1, 8, 64, dtype=torch.bfloat16), torch.zeros(3, 1, 24, 64, dtype=torch.bfloat16)
    few = torch.zeros(2, 1, 8, 64, dtype=torch.bfloat16)
    rows = torch.zeros(3, 5, 8, 64, dtype=torch.bfloat16)
    blocks = torch.zeros(2, 9, 2, 32, 64, dtype=torch.bfloat16)
    spread = torch.zeros(2, 9, 2, 16, 64, dtype=torch.bfloat16)
    tables = torch.zeros(3, 300, dtype=torch.int32)
    return {
        "plain": {},
        "other memory": {"query": query.clone(), "out": query.clone()},
        "fewer sequences": {
            "query": few, "out": few.clone(), "block_tables": tables[:2, :256].clone(),
            "context_lens": torch.ones(2, dtype=torch.int32),
        },
        "strided query": {"query": wide[:, :, 8:16]},
        "wider tables": {"block_tables": tables},
        "strided tables": {"block_tables": tables[:, :256]},
        "short tables": {"block_tables": tables[:, :4].contiguous()},
        "many rows": {"query": rows, "out": rows.clone()},
        "float16": {**half, "query": query.half(), "out": query.half()},
        "blocks of 32": {"key_cache": blocks[0], "value_cache": blocks[1]},
        "every second block": {"key_cache": spread[0, ::2], "value_cache": spread[1, ::2]},
        "lse": {"lse": torch.zeros(3, 1, 8)},
        "wide sinks": {"sinks": torch.zeros(8)},
        "sinks": {"sinks": torch.zeros(8, dtype=torch.bfloat16)},
        "window": {"sliding_window": 40},
        "softcap": {"softcap": 3.0},
        "scale": {"scale": 0.25},
        "lens from the middle": {"context_lens": torch.ones(4, dtype=torch.int32)[1:]},
    }  # fmt: skip


def test_decodes_are_prepared_apart_by_all_that_their_launches_depend_on() -> None:
    launcher = Noting()
    calls = {name: decode_arguments(**changed) for name, changed in decode_variants().items()}
    for name, arguments in [*calls.items()] * 2:

        def call(on: Launcher, arguments: dict[str, Any] = arguments) -> None:
            paged_attention_decode_kernel(on, **arguments)

        wanted = launcher.unprepared(call)
        assert launcher.noted(call) == wanted, name
    assert len(launcher.prepared) == len(calls) - 1, "only the memory differs in one of them"


def test_norms_are_prepared_apart_by_alignment_aliases_and_residuals() -> None:
    launcher = Noting()
    states, weight, out = torch.zeros(4, 128).half(), torch.zeros(128).half(), torch.zeros(4, 128).half()
    shifted = torch.zeros(4 * 128 + 1).half()[1:].view(4, 128)
    calls: list[tuple[Any, ...]] = [
        (states, weight, 1e-6, None, out),
        (states, weight, 1e-6, None, states),
        (out, weight, 1e-6, None, states),
        (states, weight, 1e-5, None, out),
        (states, weight, 1e-6, torch.zeros_like(states), out),
        (shifted, weight, 1e-6, None, out),
        (states, weight, 1e-6, None, shifted),
        (torch.zeros(4, 256).half()[:, :128], weight, 1e-6, None, out),
        (states.float(), weight.float(), 1e-6, None, out.float()),
    ]
    for arguments in calls * 2:
        wanted = launcher.unprepared(lambda on, given=arguments: rms_norm_kernel(on, *given))
        assert launcher.noted(lambda on, given=arguments: rms_norm_kernel(on, *given)) == wanted
    (aligned,) = launcher.noted(lambda on: rms_norm_kernel(on, *calls[0]))
    (narrow,) = launcher.noted(lambda on: rms_norm_kernel(on, *calls[5]))
    assert aligned[0] != narrow[0], "an odd address is read one scalar at a time"


def test_float32_angles_beside_16_bit_heads_are_told_apart_at_16_bytes() -> None:
    launcher = Noting()
    heads, positions = torch.zeros(2, 4, 64).half(), torch.zeros(2, dtype=torch.int64)
    angles = torch.zeros(8 * 64 + 4)
    for begin in (0, 4, 0, 4):
        table = angles[begin : begin + 8 * 64].view(8, 64)
        noted = launcher.noted(lambda on, t=table: rotary_embedding_kernel(on, heads, heads.clone(), t, t, positions))
        assert dict(noted[0][0].defines)["WIDTH"] == ("8" if begin == 0 else "4")


def test_what_is_refused_is_refused_every_time_and_prepares_nothing() -> None:
    launcher = Noting()
    long_lens = decode_arguments(context_lens=torch.ones(3, dtype=torch.int64))
    for _ in range(2):
        with pytest.raises(ValueError, match="context_lens is int64"):
            launcher.noted(lambda on: paged_attention_decode_kernel(on, **long_lens))
        with pytest.raises(ValueError, match="scale is nan"):
            launcher.noted(lambda on: paged_attention_decode_kernel(on, **decode_arguments(scale=float("nan"))))
    assert len(launcher.prepared) == 0
    with pytest.raises(TypeError, match="missing a required argument"):
        launcher.noted(lambda on: rms_norm_kernel(on, torch.zeros(1, 8)))  # type: ignore[call-arg]


def norm(rows: int) -> Callable[[Launcher], None]:
    states, weight = torch.zeros(rows, 64), torch.zeros(64)
    return lambda on: rms_norm_kernel(on, states, weight, 1e-6, None, states)


def test_the_oldest_of_too_many_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_cache, "MOST", 3)
    launcher, cache = Noting(), LaunchCache()
    for rows in (1, 2, 3, 4, 5):
        assert launcher.noted(norm(rows))
        assert len(launcher.prepared) == min(rows, 3)
        cache.keep(rows, str(rows), cache.epoch)
    assert [cache.get(rows) for rows in (1, 2, 3, 4, 5)] == [None, None, "3", "4", "5"]


@pytest.fixture
def replaced() -> Iterator[Callable[[], None]]:
    """Replaces a source; it is restored afterwards."""
    yield lambda: sources.replace("silu_and_mul", sources.text_of("silu_and_mul") + "// other\n")
    sources.restore(["silu_and_mul"])


def test_all_is_forgotten_when_a_source_is_replaced(replaced: Callable[[], None]) -> None:
    launcher, call = Noting(), norm(1)
    first = launcher.noted(call)
    launcher.noted(norm(2))
    assert len(launcher.prepared) == 2
    replaced()
    assert launcher.noted(call) == first
    assert len(launcher.prepared) == 1


def test_what_was_prepared_before_a_replacement_is_not_kept_after_it(replaced: Callable[[], None]) -> None:
    cache = LaunchCache()
    before = cache.epoch
    replaced()
    assert cache.get("key") is None
    cache.keep("key", "old", before)
    assert cache.get("key") is None
    cache.keep("key", "new", cache.epoch)
    assert cache.get("key") == "new"


def test_threads_share_a_launcher() -> None:
    launcher = Noting()
    calls = [norm(rows) for rows in range(1, 9)]
    wanted = [launcher.unprepared(call) for call in calls]
    wrong: list[int] = []

    def work() -> None:
        for turn in range(200):
            at = turn % len(calls)
            if launcher.noted(calls[at]) != wanted[at]:
                wrong.append(at)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_all_is_forgotten_when_a_launch_fails() -> None:
    launcher = Noting()
    launcher.noted(norm(1))

    def fail(*_: object) -> None:
        raise RuntimeError("refused")

    launch, launcher.launch = launcher.launch, fail  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="refused"):
        launcher.noted(norm(1))
    assert len(launcher.prepared) == 0
    launcher.launch = launch  # type: ignore[method-assign]
    assert launcher.noted(norm(1))


@pytest.mark.parametrize("pointers", [{"out": "no_argument"}, {"no_field": "input"}])
def test_a_pointer_must_name_a_field_and_an_argument(pointers: dict[str, str]) -> None:
    @prepared
    def op(launcher: Launcher, input: Tensor, out: Tensor) -> tuple[Launch, ...]:
        return (Launch(silu_specialisation("float32", 4), (1, 1, 1), {}, pointers),)

    with pytest.raises(LookupError, match="silu_and_mul: pointers"):
        op(Noting(), torch.zeros(4), torch.zeros(4))  # type: ignore[arg-type]


def test_one_view_of_a_workspace_serves_until_it_grows() -> None:
    workspace = Workspace()
    small = workspace.take("counters", (4,), torch.int32, CPU)
    assert workspace.take("counters", (4,), torch.int32, CPU) is small
    large = workspace.take("counters", (8,), torch.int32, CPU)
    assert workspace.take("counters", (4,), torch.int32, CPU).data_ptr() == large.data_ptr()

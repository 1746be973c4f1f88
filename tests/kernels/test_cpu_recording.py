"""A function of kernels and torch operations, recorded once: what a replay gives, and what is refused."""

from __future__ import annotations

import gc
import random
import threading
import weakref
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from yaie_cuda.cpu import build
from yaie_cuda.cpu.kernels import CpuKernels
from yaie_cuda.cpu.recording import CHUNK, SPARE, MovedError, Recorder, Recording, RecordingError, Room, active
from yaie_engine.graphs import SIZES_ON_CPU

pytestmark = pytest.mark.skipif(bool(build.unbuildable_reason()), reason=build.unbuildable_reason())
HIDDEN, VOCABULARY = 96, 50


@pytest.fixture(autouse=True)
def _inference() -> Iterator[None]:
    with torch.inference_mode():
        yield


def small_model(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """Ids [rows] to [rows, 128]: an embedding, a norm, a product, a gate, and torch's own operations between them."""
    kernels, draw = CpuKernels(), torch.Generator().manual_seed(0)
    embedding = torch.randn(VOCABULARY, HIDDEN, generator=draw).to(dtype)
    scale, matrix = torch.rand(HIDDEN, generator=draw).to(dtype), torch.randn(256, HIDDEN, generator=draw).to(dtype)
    packed = kernels.pack(matrix)

    def forward(ids: Tensor) -> Tensor:
        hidden = torch.nn.functional.embedding(ids, embedding)
        total = torch.zeros_like(hidden).add_(hidden).mul_(0.5)
        normed = torch.empty_like(hidden)
        kernels.rms_norm(total, scale, 1e-6, hidden, normed)
        both = kernels.linear(normed, packed, None, 256) if packed is not None else normed @ matrix.T
        out = both.new_empty(len(ids), 128)
        kernels.silu_and_mul(both, out)
        return (out + out.flip(1)).view(len(ids), 2, 64).transpose(1, 2).reshape(len(ids), 128)

    return forward


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_replay_computes_on_what_lies_in_the_inputs_now(dtype: torch.dtype) -> None:
    """Several times, after everything that nobody holds has been freed and written over."""
    forward, ids = small_model(dtype), torch.tensor([3, 1, 4])
    result, replay = Recorder()(lambda: forward(ids))
    gc.collect()
    _ = [torch.full((size,), torch.nan) for size in (3 * HIDDEN, 3 * 128, 3 * 256) for _ in range(20)]
    for drawn in ([3, 1, 4], [5, 9, 2], [6, 6, 6]):
        ids.copy_(torch.tensor(drawn))
        result.fill_(torch.nan)
        replay()
        assert torch.equal(result, forward(ids.clone()))


def test_a_replay_takes_the_threads_of_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    forward, ids = small_model(torch.float32), torch.arange(40) % VOCABULARY
    result, replay = Recorder()(lambda: forward(ids))
    expected = result.clone()
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        result.zero_()
        replay()
        assert torch.equal(result, expected)


@pytest.mark.parametrize(
    ("run", "name"),
    [
        (lambda x: x * x.sum().item(), "_local_scalar_dense"),
        (lambda x: x if x.sum() > 0 else -x, "_local_scalar_dense"),
        (lambda x: x[x > 0], "index"),
        (lambda x: torch.where(x > 0)[0].float(), "nonzero"),
        (lambda x: x.nonzero(as_tuple=True)[0].float(), "nonzero"),
        (lambda x: torch.repeat_interleave(x, x.long()), "repeat_interleave"),
        (lambda x: x.tensor_split(x.long())[0], "numbers|else"),
        (lambda x: x + torch.rand(3), "rand"),
        (lambda x: x * 2 if torch.equal(x, x) else x, "equal"),
    ],
)
def test_what_depends_on_numbers_is_refused_by_name(run: Callable[[Tensor], Tensor], name: str) -> None:
    with pytest.raises(RecordingError, match=name):
        Recorder()(lambda: run(torch.ones(3)))
    assert active() is None
    forward, ids = small_model(torch.float32), torch.tensor([1])
    assert Recorder()(lambda: forward(ids))[0].shape == (1, 128)


@pytest.mark.parametrize(
    "run",
    [
        lambda x: torch.nn.functional.dropout(x, 0.5, training=False) * 2,
        lambda x: x[torch.tensor([1, 0, 2])] + x,
        lambda x: torch.stack(x.split(1)).flatten().add_(1),
        lambda x: torch.cat([x.topk(2).values, x.sort().values[:1]]),
        lambda x: x.clone().view(3, 1).transpose(0, 1).mul_(x)[0],
        lambda x: torch.zeros(3).index_add_(0, torch.tensor([0, 1, 2]), x),
    ],
)
def test_what_has_the_same_shape_for_all_numbers_is_recorded(run: Callable[[Tensor], Tensor]) -> None:
    given = torch.tensor([1.0, 2.0, 3.0])
    result, replay = Recorder()(lambda: run(given))
    for numbers in ([5.0, 1.0, -4.0], [0.0, 9.0, 2.0]):
        given.copy_(torch.tensor(numbers))
        replay()
        assert torch.equal(result, run(given.clone()))


def test_what_was_given_and_has_other_memory_now_is_noticed_before_anything_is_written() -> None:
    kernels, scale = CpuKernels(), torch.nn.Parameter(torch.ones(32))
    rows, out = torch.randn(2, 32), torch.empty(2, 32)

    def run() -> Tensor:
        kernels.rms_norm(rows, scale, 1e-6, None, out)
        return out

    _, replay = Recorder()(run)
    replay()
    scale.data = scale.data.clone()
    out.fill_(7)
    with pytest.raises(MovedError, match=r"\[32\]"):
        replay()
    assert bool((out == 7).all())


def test_recordings_take_turns_in_one_room() -> None:
    """That of the largest; each gives what it gave alone, in whatever order they run."""
    forward, recorder, draw = small_model(torch.float32), Recorder(), random.Random(0)
    given = [torch.tensor([draw.randrange(VOCABULARY) for _ in range(rows)]) for rows in (3, 1, 40, 7)]
    expected = [forward(ids) for ids in given]
    taken, made = [], []
    for ids in given:
        made.append(recorder(lambda ids=ids: forward(ids)))  # type: ignore[misc]
        taken.append(recorder.room.num_bytes)
    assert taken == [CHUNK] * 4
    for _ in range(20):
        place = draw.randrange(len(given))
        result, replay = made[place]
        replay()
        torch.testing.assert_close(result, expected[place], rtol=1e-6, atol=1e-6)


def test_a_room_is_hardly_larger_than_the_largest_recording() -> None:
    """Also where every recording has a piece that is larger than a chunk, and larger than those before."""
    room, taken = Room(), 0
    for rows in SIZES_ON_CPU:
        room.begin()
        for width in (4096, 262_144):
            piece = room.like(torch.empty(rows, width, dtype=torch.bfloat16))
        taken = max(taken, piece.nbytes)
    assert room.num_bytes <= CHUNK + SPARE * taken


def test_a_room_goes_with_the_last_recording() -> None:
    recorder, ids = Recorder(), torch.tensor([3])
    forward = small_model(torch.float32)
    made = [recorder(lambda: forward(ids)) for _ in range(2)]
    room = weakref.ref(recorder.room)
    made.pop()
    gc.collect()
    assert room() is recorder.room
    made.clear()
    gc.collect()
    assert room() is None


def test_weights_that_are_replaced_while_a_replay_reads_them_stay_until_the_next() -> None:
    scale = torch.ones(64)
    kernels, rows, out = CpuKernels(), torch.randn(3, 64), torch.empty(3, 64)
    old = scale.data_ptr()

    def run() -> Tensor:
        kernels.rms_norm(rows, scale, 1e-6, None, out)
        return out

    _, replay = Recorder()(run)
    scale.data = torch.zeros(64)
    others = [torch.empty(64) for _ in range(100)]
    assert old not in [one.data_ptr() for one in others]
    with pytest.raises(MovedError):
        replay()


def test_a_result_that_grows_is_not_in_the_room() -> None:
    def run() -> Tensor:
        grown, beside = torch.empty(0), torch.empty(4).fill_(1)
        torch.add(torch.ones(4), 2, out=grown)
        return torch.stack((grown, beside))

    result, replay = Recorder()(run)
    for _ in range(2):
        assert result.tolist() == [[3.0] * 4, [1.0] * 4]
        replay()


def test_a_room_grows_by_what_does_not_fit_and_keeps_strides() -> None:
    room = Room()
    shapes = [torch.empty(3, 5), torch.empty(CHUNK, dtype=torch.int8), torch.empty(7, 2).t(), torch.empty(0)]
    for _ in range(2):
        room.begin()
        pieces = [room.like(one).fill_(number) for number, one in enumerate(shapes)]
        assert all(bool((piece == number).all()) for number, piece in enumerate(pieces))
        for piece, one in zip(pieces, shapes, strict=True):
            assert (piece.shape, piece.stride(), piece.dtype) == (one.shape, one.stride(), one.dtype)
            assert piece.data_ptr() % 64 == 0 or not piece.numel()
        assert room.num_bytes == 3 * CHUNK


def test_what_another_thread_calls_meanwhile_is_not_recorded() -> None:
    forward, ids, seen = small_model(torch.float32), torch.tensor([3]), []
    recording = Recording(Room())

    def other() -> None:
        seen.append(active())
        forward(torch.tensor([7, 8]))

    with recording.running():
        result = forward(ids)
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(60)
        with pytest.raises(RecordingError, match="already"), Recording(Room()).running():
            pass
    assert seen == [None]
    expected = result.clone()
    recording.finish()()
    assert torch.equal(result, expected)

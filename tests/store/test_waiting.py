"""No thread waits for room: a record is read when its request would be admitted, and the store costs nobody more."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.conftest import GREEDY, Open, ask, tokens
from tests.store.held_reads import Reads
from tests.store.test_restore import PREFIX
from yaie_engine import LLM, SamplingParams
from yaie_engine.store import reading

FEW = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)


def prefix_of(number: int) -> list[int]:
    return [number, *PREFIX[1:]]


PROMPTS = [[*prefix_of(number), 5] for number in range(8)]


@pytest.fixture
def cold(open_llm: Open) -> list[tuple[int, ...]]:
    """Eight records, and what their prompts are answered with."""
    with open_llm(num_blocks=128) as first:
        answers = [tokens(ask(first, prompt)) for prompt in PROMPTS]
        for number in range(8):
            first.save_prefix(prefix_of(number))
    return answers


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reads]:
    made = Reads(monkeypatch)
    made.go.set()
    yield made
    made.go.set()


def test_records_that_do_not_fit_together_are_read_one_after_another(
    open_llm: Open, cold: list[tuple[int, ...]], reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight prefixes of ten blocks, twenty-four blocks: what is read for one must not be gone when its turn comes."""
    monkeypatch.setattr(reading, "ROOM_S", 60.0)
    llm = open_llm(num_blocks=24)
    outputs = [handle.result(60) for handle in [llm.submit(prompt, GREEDY) for prompt in PROMPTS]]
    assert [tokens(output) for output in outputs] == cold
    assert [(output.metrics.reuse, output.num_cached_tokens) for output in outputs] == [("store", len(PREFIX))] * 8
    assert len(reads.names) == len(set(reads.names)) == 8


def test_who_has_no_room_is_computed_as_soon_as_its_first_chunk_fits(
    open_llm: Open, cold: list[tuple[int, ...]], reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "ROOM_S", 0.0)
    llm = open_llm(num_blocks=24)
    outputs = [handle.result(60) for handle in [llm.submit(prompt, GREEDY) for prompt in PROMPTS]]
    assert [tokens(output) for output in outputs] == cold
    assert len(reads.names) == len(set(reads.names)) < 8


@pytest.mark.parametrize("stale", [False, True])
def test_while_every_reader_is_busy_others_are_answered(
    open_llm: Open, cold: list[tuple[int, ...]], reads: Reads, tmp_path: Path, stale: bool
) -> None:
    """Four records whose reads take long, then a prompt without a record, also when the folder has changed."""
    reads.go.clear()
    llm = open_llm(num_blocks=128)
    four = [llm.submit(prompt, GREEDY) for prompt in PROMPTS[:4]]
    while len(reads.names) < reading.MOST_READERS:
        time.sleep(0.001)
    if stale:
        (tmp_path / "store" / "note").touch()
    assert len(tokens(ask(llm, [*range(100, 120)]))) == 6
    fifth = llm.submit(PROMPTS[4], GREEDY)  # its record waits for a reader
    assert len(tokens(ask(llm, [*range(120, 140)]))) == 6
    assert not any(handle.done for handle in [*four, fifth]) and len(reads.names) == reading.MOST_READERS
    reads.go.set()
    assert [tokens(handle.result(60)) for handle in [*four, fifth]] == cold[:5]
    assert len(reads.names) == len(set(reads.names)) == 5


def test_a_full_pool_keeps_no_reader_busy(
    open_llm: Open, cold: list[tuple[int, ...]], reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has no room is not begun to be read, and can leave."""
    monkeypatch.setattr(reading, "ROOM_S", 60.0)
    llm = open_llm(num_blocks=24)
    begun, go = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        assert go.wait(60)

    holder = threading.Thread(target=lambda: llm._engine.call(hold))
    holder.start()
    assert begun.wait(60)
    long = llm.submit([*range(150, 200)], FEW)  # thirteen blocks: beside it there is room for one of ten
    handles = [llm.submit(prompt, GREEDY) for prompt in PROMPTS[:5]]
    handles[1].cancel()
    go.set()
    holder.join(60)
    assert handles[1].result(60).outputs[0].finish_reason == "cancelled"
    outputs = [handles[number].result(60) for number in (0, 2, 3, 4)]
    assert [tokens(output) for output in outputs] == [cold[number] for number in (0, 2, 3, 4)]
    assert [output.metrics.reuse for output in outputs] == ["store"] * 4
    assert len(tokens(long.result(60))) == 2 and len(reads.names) == len(set(reads.names)) == 4


def test_a_request_that_never_gets_a_reader_is_computed(
    open_llm: Open, cold: list[tuple[int, ...]], reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "READ_S", 0.3)
    reads.go.clear()
    llm = open_llm(num_blocks=128)
    outputs = [handle.result(60) for handle in [llm.submit(prompt, GREEDY) for prompt in PROMPTS]]
    assert [tokens(output) for output in outputs] == cold
    assert [output.metrics.reuse for output in outputs] == ["none"] * 8


def test_of_a_disk_that_hangs_nobody_waits_for_another_record(
    open_llm: Open, cold: list[tuple[int, ...]], reads: Reads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who began to wait later does not wait until its own time is over."""
    monkeypatch.setattr(reading, "READ_S", 600.0)
    reads.go.clear()
    llm = open_llm(num_blocks=128)
    handles = [llm.submit(prompt, GREEDY) for prompt in PROMPTS[:2]]
    while len(reads.names) < 2:
        time.sleep(0.001)
    monkeypatch.setattr(reading, "READ_S", 0.0)
    reader = llm.prefixes._reader  # type: ignore[union-attr]
    with reader._stirred:
        reader._stirred.notify()
    assert [tokens(handle.result(20)) for handle in handles] == cold[:2]
    assert tokens(ask(llm, PROMPTS[2])) == cold[2] and len(reads.names) == 2


def test_what_an_engine_writes_itself_is_no_news_to_it(open_llm: Open) -> None:
    """Or every request after it would wait for a look at the folder."""
    llm = open_llm()
    llm.save_prefix(PREFIX)
    store = llm.prefixes.store  # type: ignore[union-attr]
    deadline = time.monotonic() + 60
    while store.stale and time.monotonic() < deadline:
        time.sleep(0.001)
    assert not store.stale


def test_a_computed_prefix_that_has_a_record_came_from_the_blocks(open_llm: Open) -> None:
    """`metrics.reuse` tells what was read for a request, not what lies on the disk as well."""
    llm = open_llm(num_blocks=64, max_num_seqs=1)
    llm.prefixes.store.want(PREFIX)  # type: ignore[union-attr]
    first = llm.submit([*PREFIX, 1], SamplingParams(temperature=0, max_tokens=60, ignore_eos=True))
    second = llm.submit([*PREFIX, 2], GREEDY)
    assert first.result(60).metrics.reuse == "none" and second.result(60).metrics.reuse == "radix"


def test_six_siblings_of_a_long_prefix_read_it_once(tmp_path: Path, reads: Reads) -> None:
    """The bundled model, a folder that is opened anew, and all six at once; none computes a token of the prefix."""
    store, draw = str(tmp_path / "store"), [(31 * i + 7) % 500 for i in range(1024)]
    prompts = [[*draw, 10 + i, 20 + i, 30 + i] for i in range(6)]
    with LLM("tiny", prefix_store=store) as first:
        expected = [tokens(output) for output in first.generate(prompts, FEW, use_tqdm=False)]
        first.save_prefix(draw)
    with LLM("tiny", prefix_store=store) as llm:
        handles = [llm.submit(prompt, FEW) for prompt in prompts]
        outputs = [handle.result(60) for handle in handles]
        llm.check()
    assert [tokens(output) for output in outputs] == expected
    assert [(output.metrics.reuse, output.num_cached_tokens) for output in outputs] == [("store", len(draw))] * 6
    assert len(reads.names) == 1

"""Records are read beside the engine: others go on, who waits can leave, and what failed is never kept."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.store.conftest import GREEDY, Open, ask, tokens
from tests.store.held_reads import Reads
from tests.store.test_restore import ASK, PREFIX, records, saved
from yaie_engine import LLM, ModelLoadError, SamplingParams
from yaie_engine.store import reading
from yaie_engine.store.folder import RecordFolder
from yaie_engine.store.prefix_store import PrefixStore

LONG = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reads]:
    made = Reads(monkeypatch)
    yield made
    made.go.set()


def test_others_run_while_a_record_is_read(open_llm: Open, slow: Reads) -> None:
    slow.go.set()
    cold = saved(open_llm)
    slow.go.clear()
    slow.begun.clear()
    llm = open_llm()
    handle = llm.submit(ASK, GREEDY)
    assert slow.begun.wait(60) and not handle.done
    other = ask(llm, [1, 2, 3, 4], LONG)  # comes later, and ends before
    assert len(tokens(other)) == 60 and not handle.done
    assert llm.snapshot().queue.waiting == 1
    llm.check()
    slow.go.set()
    output = handle.result(60)
    assert (tokens(output), output.metrics.reuse) == (cold, "store")


def test_who_waits_for_a_record_can_leave(open_llm: Open, slow: Reads) -> None:
    slow.go.set()
    cold = saved(open_llm)
    slow.go.clear()
    slow.begun.clear()
    llm = open_llm()
    handles = [llm.submit(ASK, GREEDY), llm.submit(ASK, GREEDY)]
    assert slow.begun.wait(60)
    handles[0].cancel()
    assert handles[0].result(60).outputs[0].finish_reason == "cancelled"
    slow.go.set()
    assert tokens(handles[1].result(60)) == cold


@pytest.mark.parametrize("end", ["close", "sleep", "reset"])
def test_the_engine_ends_or_empties_while_a_record_is_read(open_llm: Open, slow: Reads, end: str) -> None:
    slow.go.set()
    cold = saved(open_llm)
    slow.go.clear()
    slow.begun.clear()
    llm = open_llm()
    handle = llm.submit(ASK, GREEDY)
    assert slow.begun.wait(60)
    threading.Timer(0.2, slow.go.set).start()
    if end == "close":
        llm.close()
        assert handle.result(60).outputs[0].finish_reason == "cancelled"
        assert not any(thread.name == "yaie-prefix-reader" and thread.is_alive() for thread in threading.enumerate())
        return
    if end == "sleep":
        llm.sleep(force=True)
        assert handle.result(60).outputs[0].finish_reason == "cancelled"
        llm.wake_up()
    else:
        llm.reset()
        assert tokens(handle.result(60)) == cold
    assert tokens(ask(llm, ASK)) == cold


def test_siblings_that_waited_say_what_gave_the_match(open_llm: Open, slow: Reads) -> None:
    slow.go.set()
    saved(open_llm)
    slow.go.clear()
    llm = open_llm(num_blocks=64)
    handles = [llm.submit([*PREFIX, 100 + i, 5], GREEDY) for i in range(6)]
    slow.go.set()
    outputs = [handle.result(60) for handle in handles]
    assert [(o.metrics.reuse, o.num_cached_tokens) for o in outputs] == [("store", len(PREFIX))] * 6
    assert ask(llm, [*PREFIX, 99]).metrics.reuse == "radix"


class Hung:
    """Reads of one record hang until the end of the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, token_ids: list[int]) -> None:
        self.go, self.begun, self.reads = threading.Event(), threading.Event(), 0
        read = PrefixStore.read

        def hung(store: PrefixStore[Any], entry: Any) -> Any:
            self.reads += 1
            if list(entry.token_ids) == token_ids:
                self.begun.set()
                assert self.go.wait(60)
            return read(store, entry)

        monkeypatch.setattr(PrefixStore, "read", hung)


def test_a_read_that_hangs_holds_up_nobody_else(open_llm: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    cold, other = saved(open_llm), [*range(40)]
    with open_llm() as first:
        first.save_prefix(other)
    hung = Hung(monkeypatch, PREFIX)
    monkeypatch.setattr(reading, "READ_S", 60.0)
    llm = open_llm(num_blocks=64)
    handle = llm.submit(ASK, GREEDY)
    assert hung.begun.wait(60)
    assert ask(llm, [*other, 5]).metrics.reuse == "store" and not handle.done
    hung.go.set()
    output = handle.result(60)
    assert (tokens(output), output.metrics.reuse) == (cold, "store")


def test_nobody_waits_for_ever_for_a_disk(open_llm: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    cold = saved(open_llm)
    hung = Hung(monkeypatch, PREFIX)
    monkeypatch.setattr(reading, "READ_S", 0.1)
    llm = open_llm()
    output = ask(llm, ASK)
    assert hung.begun.is_set() and (tokens(output), output.num_cached_tokens) == (cold, 0)
    llm.reset()
    time.sleep(reading.READ_S)
    monkeypatch.setattr(reading, "LOOK_S", 60.0)  # nothing is awaited by now
    submitted = [llm.submit(ASK, GREEDY), llm.submit([*PREFIX, 5], GREEDY)]
    assert tokens(submitted[0].result(60)) == cold and submitted[1].result(60).error is None
    assert hung.reads == 1
    hung.go.set()


def test_a_folder_that_hangs_holds_up_no_submission(
    open_llm: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Somebody else writes a record, and listing the folder takes for ever."""
    saved(open_llm)
    llm, go, begun = open_llm(), threading.Event(), threading.Event()
    files = RecordFolder.files

    def hung(folder: RecordFolder) -> Any:
        if threading.current_thread().name == "yaie-prefix-look":
            begun.set()
            assert go.wait(60)
        return files(folder)

    monkeypatch.setattr(RecordFolder, "files", hung)
    monkeypatch.setattr(reading, "LOOK_S", 0.3)
    (tmp_path / "store" / "note").touch()
    first = llm.submit([*range(50, 70)], GREEDY)
    assert begun.wait(60)
    assert ask(llm, [4, 5, 6]).error is None  # too short for a record
    assert ask(llm, ASK).metrics.reuse == "store"  # which is known
    assert first.result(60).error is None and not go.is_set()
    assert ask(llm, [*range(60, 80)]).error is None
    go.set()


def test_a_large_record_comes_in_slices_between_steps(open_llm: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    cold = saved(open_llm)
    monkeypatch.setattr(reading, "PIECE_BYTES", 1)
    llm, grafts = open_llm(), []
    graft = reading.graft

    def noting(tree: Any, token_ids: list[int], write: Any, least: int) -> int:
        grafts.append((llm.step, len(token_ids)))
        return graft(tree, token_ids, write, least=least)

    monkeypatch.setattr(reading, "graft", noting)
    other = llm.submit([1, 2, 3, 4], LONG)
    next(iter(other))
    output = ask(llm, ASK)
    assert (tokens(output), output.metrics.reuse, output.num_cached_tokens) == (cold, "store", len(PREFIX))
    assert [count for _, count in grafts] == [*range(4, len(PREFIX), 4), len(PREFIX)]
    assert len(tokens(other.result(60))) == 60


def test_a_reader_that_stumbles_lets_the_request_go_on(open_llm: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    cold = saved(open_llm)
    llm = open_llm()

    def broken(store: PrefixStore, entry: Any) -> Any:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(PrefixStore, "read", broken)
        output = ask(llm, ASK)
    assert tokens(output) == cold and output.num_cached_tokens == 0
    llm.reset()
    assert ask(llm, ASK).metrics.reuse == "store"


@pytest.mark.parametrize("watched", [True, False])
def test_rejected_and_anomalous_requests_are_never_kept(open_llm: Open, watched: bool) -> None:
    """Their KV may look sound: here only the logits are not."""
    llm = open_llm()
    assert llm.prefixes is not None
    store = llm.prefixes.store  # type: ignore[union-attr]
    llm.detect_anomaly(watched)
    head = llm._engine.runner._weights.loaded.model.get_output_embeddings()  # type: ignore[attr-defined]
    before = head.weight.detach().clone()
    store.want(ASK)
    head.weight.data.fill_(torch.nan)  # by `.data`, which nobody notices: what is noticed stops the store
    assert llm.generate([ASK], GREEDY, use_tqdm=False)[0].error is not None
    head.weight.data.copy_(before)
    assert store._queue.empty() and not store._pending
    ask(llm, ASK)  # and the next one that is sound is
    deadline = time.monotonic() + 60
    while not records(llm) and time.monotonic() < deadline:
        time.sleep(0.01)
    [entry] = store.entries()
    assert list(entry.token_ids) == ASK


def test_a_load_that_fails_leaves_no_descriptor(open_llm: Open, tmp_path: Any) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text('{"model_type": "llama"}')
    open_llm().close()  # whatever is opened once
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(ModelLoadError):
            LLM(str(tmp_path / "broken"), prefix_store=str(tmp_path / "store"))
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("order", [1, -1])
def test_of_several_records_the_one_of_most_use_is_read(
    open_llm: Open, monkeypatch: pytest.MonkeyPatch, order: int
) -> None:
    """As much in common and less to read; and not none, because the longest has too little in common."""
    start, common = PREFIX[:20], PREFIX[:30]
    lengths = [[*common, *range(60)], [*common, 3], [*start, *range(100, 200)]]
    with open_llm(num_blocks=128) as first:
        for prefix in lengths[::order]:
            first.save_prefix(prefix)
    reads, read = list[int](), PrefixStore.read

    def counted(store: PrefixStore[Any], entry: Any) -> Any:
        reads.append(len(entry.token_ids))
        return read(store, entry)

    monkeypatch.setattr(PrefixStore, "read", counted)
    llm = open_llm()
    assert ask(llm, [*common, 250, 251]).num_cached_tokens == 30 and reads == [31]
    with open_llm() as other:
        other.prefixes.clear([entry.label for entry in other.prefixes.entries() if len(entry.token_ids) < 100])  # type: ignore[union-attr]
        other.save_prefix(PREFIX[:18])
    llm, reads[:] = open_llm(), []
    assert ask(llm, [*start, 250, 251]).num_cached_tokens == 18 and reads == [18]

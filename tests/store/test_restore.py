"""Prefixes that outlive their engine: what is restored answers as what was computed, and what is damaged not at all."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.models import random_llama
from tests.store.conftest import Open, ask, tokens
from yaie_engine import LLM, ConfigError, SamplingParams, StoreError, YaieError
from yaie_engine.store import folder as folder_module
from yaie_engine.store import prefix_store, record
from yaie_magic.subcommands.cache import summary

PREFIX = [(7 * i + 3) % 250 for i in range(37)]
ASK = [*PREFIX, 9, 8, 7]


def records(llm: LLM) -> list[Path]:
    assert llm.prefixes is not None
    return sorted(llm.prefixes.store.folder.path.glob("*.kv"))


def saved(open_llm: Open, prefix: list[int] = PREFIX) -> tuple[int, ...]:
    """Save the prefix with an engine that is gone afterwards; the answer of an engine without a store."""
    with open_llm(prefix_store=None) as plain:
        cold = tokens(ask(plain, ASK))
    with open_llm() as first:
        entry = first.save_prefix(prefix)
        assert len(entry.token_ids) == len(prefix) and len(records(first)) == 1
    return cold


@pytest.mark.parametrize("block_size", [1, 4, 5, 16])
def test_a_restart_finds_it_whatever_the_block_size(open_llm: Open, block_size: int) -> None:
    cold = saved(open_llm)
    llm = open_llm(block_size=block_size, num_blocks=128)
    output = ask(llm, ASK)
    assert (tokens(output), output.num_cached_tokens, output.metrics.reuse) == (cold, len(PREFIX), "store")
    again = ask(llm, ASK)
    assert tokens(again) == cold and again.metrics.reuse == "radix"
    llm.tape()


def test_a_whole_prompt_and_a_part_of_a_record(open_llm: Open) -> None:
    with open_llm(prefix_store=None) as plain:
        whole, part = tokens(ask(plain, PREFIX)), tokens(ask(plain, [*PREFIX[:30], 1, 2]))
    saved(open_llm)
    output = ask(open_llm(), PREFIX)
    assert (tokens(output), output.num_cached_tokens) == (whole, len(PREFIX) - 1)
    output = ask(open_llm(), [*PREFIX[:30], 1, 2])
    assert (tokens(output), output.num_cached_tokens, output.metrics.reuse) == (part, 30, "store")


def test_siblings_at_once_all_hit(open_llm: Open) -> None:
    saved(open_llm)
    llm, outputs = open_llm(num_blocks=64), []
    threads = [threading.Thread(target=lambda i=i: outputs.append(ask(llm, [*PREFIX, 100 + i, 5]))) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [output.num_cached_tokens for output in outputs] == [len(PREFIX)] * 6
    with open_llm(prefix_store=None) as plain:
        for output in outputs:
            assert tokens(output) == tokens(ask(plain, list(output.prompt_token_ids)))


def test_it_joins_what_the_tree_has(open_llm: Open) -> None:
    cold = saved(open_llm)
    llm = open_llm()
    ask(llm, [*PREFIX[:19], 3], SamplingParams(temperature=0, max_tokens=1))
    before = llm.snapshot().blocks.cached
    output = ask(llm, ASK)
    assert (tokens(output), output.num_cached_tokens) == (cold, len(PREFIX))
    assert llm.snapshot().blocks.cached > before


@pytest.mark.parametrize("num_blocks", [10, 11, 12, 13])
def test_in_a_pool_that_hardly_fits_a_request(open_llm: Open, num_blocks: int) -> None:
    cold = saved(open_llm)
    llm = open_llm(num_blocks=num_blocks)
    ask(llm, list(range(30)), SamplingParams(temperature=0, max_tokens=2))  # others' prefixes make room
    few = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)
    assert tokens(ask(llm, ASK, few)) == cold[:1]
    assert tokens(ask(llm, ASK, few)) == cold[:1]


DAMAGES = {
    "cut": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "a bit of the head": lambda data: data[:90] + bytes([data[90] ^ 1]) + data[91:],
    "a bit of the data": lambda data: data[:-40] + bytes([data[-40] ^ 16]) + data[-39:],
    "another version": lambda data: data[:8] + b"\x02" + data[9:],
}


@pytest.mark.parametrize(
    ("damage", "late"), [*((name, True) for name in DAMAGES), ("another version", False), ("cut", False)]
)
def test_a_damaged_record_is_a_miss_with_one_warning(
    open_llm: Open, caplog: pytest.LogCaptureFixture, damage: str, late: bool
) -> None:
    """Before the engine opens the store, and after it has listed the record."""
    cold = saved(open_llm)
    llm = open_llm() if late else None
    [path] = (llm and records(llm)) or records(open_llm())
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    llm = llm or open_llm()
    for _ in range(2):
        output = ask(llm, ASK)
        assert tokens(output) == cold
        llm.reset()
    assert output.num_cached_tokens == 0
    warned = [entry for entry in caplog.records if entry.levelno == logging.WARNING]
    assert len(warned) == 1 and "is not used" in warned[0].getMessage()
    assert records(llm) == [] and path.with_name(path.name + ".damaged").exists()


def test_a_missing_record_is_a_quiet_miss(open_llm: Open, caplog: pytest.LogCaptureFixture) -> None:
    cold = saved(open_llm)
    llm = open_llm()
    records(llm)[0].unlink()
    assert tokens(ask(llm, ASK)) == cold and not caplog.records


def test_records_of_another_model_are_left_alone(open_llm: Open, tmp_path: Path, folder: Path) -> None:
    saved(open_llm)
    torch.manual_seed(99)
    other = tmp_path / "other"
    for file in folder.iterdir():
        (tmp_path / "other").mkdir(exist_ok=True)
        (other / file.name).write_bytes(file.read_bytes())
    model = random_llama()
    with torch.no_grad():
        next(iter(model.parameters())).mul_(1.5)
    model.save_pretrained(other)
    llm = open_llm(model=str(other))
    assert ask(llm, ASK).num_cached_tokens == 0
    assert llm.prefixes is not None and llm.prefixes.store.others()[0] == 1 and len(records(llm)) == 1
    assert ask(open_llm(dtype="bfloat16"), ASK).num_cached_tokens == 0


def test_equal_hashes_are_no_equal_prefixes(open_llm: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every record under one name: tokens are compared, and the other prefix is computed."""
    same = "0" * 32
    with open_llm(prefix_store=None) as plain:
        cold = tokens(ask(plain, ASK))

    def collide(identity: str, token_ids: Any) -> str:
        return f"{identity[:16]}-{same}"

    for module in (record, folder_module, prefix_store):
        monkeypatch.setattr(module, "content_name", collide, raising=module is not prefix_store)
    llm = open_llm()
    llm.save_prefix(PREFIX)
    other = [*PREFIX[:20], *range(100, 117)]
    llm.save_prefix(other)
    llm.close()
    llm = open_llm()
    output = ask(llm, ASK)
    assert tokens(output) == cold and output.num_cached_tokens == 20  # what both have in common
    llm.close()


def test_salted_prompts_never_reach_the_disk(open_llm: Open) -> None:
    llm = open_llm()
    assert llm.prefixes is not None
    llm.prefixes.store.want(PREFIX)
    ask(llm, ASK, SamplingParams(temperature=0, max_tokens=2, cache_salt="secret"))
    llm.close()
    assert records(llm) == []
    saved(open_llm)
    salted = ask(open_llm(), ASK, SamplingParams(temperature=0, max_tokens=2, cache_salt="secret"))
    assert salted.num_cached_tokens == 0


def test_two_engines_share_a_folder(open_llm: Open) -> None:
    cold = saved(open_llm, [*range(40)])
    one, two = open_llm(), open_llm()
    assert ask(two, ASK).num_cached_tokens == 0
    two.reset()
    one.save_prefix(PREFIX)
    output = ask(two, ASK)
    assert (tokens(output), output.metrics.reuse) == (cold, "store")


def test_a_full_disk_stops_writing_and_nothing_else(
    open_llm: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with open_llm(prefix_store=None) as plain:
        cold = tokens(ask(plain, ASK))
    llm = open_llm()
    assert llm.prefixes is not None

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        for _ in range(2):
            with pytest.raises(StoreError, match="No space left"):
                llm.save_prefix(PREFIX)
            assert tokens(ask(llm, ASK)) == cold
    assert sum(entry.levelno == logging.WARNING for entry in caplog.records) == 1
    assert os.listdir(llm.prefixes.store.folder.path) == [] and llm.prefixes.store.off
    assert summary(llm).endswith("; nothing more is written: No space left on device")
    llm.save_prefix(PREFIX)
    assert len(records(llm)) == 1 and not llm.prefixes.store.off and "nothing more" not in summary(llm)


def test_a_folder_that_cannot_be_read_shows_while_it_cannot(open_llm: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    llm = open_llm()
    assert llm.prefixes is not None
    store = llm.prefixes.store

    def refuse() -> Any:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(store.folder, "files", refuse)
        store._look()
    assert summary(llm).endswith("; the folder cannot be read: Permission denied")
    store._look()
    assert "cannot be read" not in summary(llm)
    monkeypatch.setattr("yaie_cuda.sources.replaced", lambda: True)
    assert summary(llm).endswith("; nothing is stored while a kernel is edited")


def test_kv_that_is_not_finite_is_not_kept(open_llm: Open) -> None:
    llm = open_llm()
    ask(llm, PREFIX)
    for key, _ in llm._engine.runner.cache.layers.values():  # type: ignore[attr-defined]
        key[llm.snapshot().tree[1].blocks[0]] = torch.nan
    with pytest.raises(YaieError, match="NaN"):
        llm.save_prefix(PREFIX)
    llm.close()
    assert records(llm) == []


def test_the_system_part_of_a_chat_is_kept(tmp_path: Path) -> None:
    rules = " ".join(f"Rule {i}: garden {i} is open." for i in range(20))
    store = str(tmp_path / "store")

    def conversation(question: str, system: str = rules) -> list[dict[str, Any]]:
        return [{"role": "system", "content": system}, {"role": "user", "content": question}]

    params = SamplingParams(temperature=0, max_tokens=4)
    with LLM("tiny", prefix_store=store, num_blocks=128) as llm:
        first = llm.chat(conversation("Hello"), params, use_tqdm=False)[0]
        llm.chat(conversation("Hello", "Be brief."), params, use_tqdm=False)  # too short to be kept
        cold = llm.chat(conversation("What is open?"), params, use_tqdm=False)[0]
    assert first.num_cached_tokens == 0
    with LLM("tiny", prefix_store=store, num_blocks=128) as llm:
        [entry] = llm.prefixes.store.entries() if llm.prefixes else []
        warm = llm.chat(conversation("What is open?"), params, use_tqdm=False)[0]
        assert warm.metrics.reuse == "store" and warm.num_cached_tokens == len(entry.token_ids) >= 256
        assert tokens(warm) == tokens(cold)
        llm.sleep()
        llm.wake_up()
        assert llm.chat(conversation("What is open?"), params, use_tqdm=False)[0].metrics.reuse == "store"
        llm.check()


def test_settings_that_store_nothing_are_refused(folder: Path, tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    with pytest.raises(ConfigError, match="enable_prefix_caching"):
        LLM(str(folder), prefix_store=store, enable_prefix_caching=False)
    with pytest.raises(StoreError, match="give a folder of your own"):
        LLM(str(folder), prefix_store=str(folder / "config.json"))
    with LLM(str(folder), num_blocks=16) as llm, pytest.raises(StoreError, match="has no prefix store"):
        llm.save_prefix(PREFIX)
    with LLM(str(folder), num_blocks=16, prefix_store=store) as llm, pytest.raises(StoreError, match="at least 16"):
        llm.save_prefix(PREFIX[:9])


def test_two_savers_of_one_prefix_and_a_third_after_them(open_llm: Open) -> None:
    """Every one is told, and the writer lives on: the prefix is copied once, whoever else begins with it."""
    llm = open_llm()
    assert llm.prefixes is not None
    store = llm.prefixes.store
    futures = [store.ask(PREFIX), store.ask(PREFIX, pinned=True)]
    seqs = [list(PREFIX) for _ in range(2)]
    for seq in seqs:
        ask(llm, seq)
    entries = [future.result(20) for future in futures]
    assert entries[0] is entries[1] and entries[0].pinned
    assert len(llm.save_prefix(PREFIX[::-1]).token_ids) == len(PREFIX)


def test_requests_queued_together_do_not_write_twice(open_llm: Open) -> None:
    llm = open_llm()
    assert llm.prefixes is not None
    future = llm.prefixes.store.ask(PREFIX)
    llm.generate([[*PREFIX, 1], [*PREFIX, 2], [*PREFIX, 3]], SamplingParams(max_tokens=1), use_tqdm=False)
    assert len(future.result(20).token_ids) == len(PREFIX)
    assert len(llm.save_prefix(PREFIX[::-1]).token_ids) == len(PREFIX)


def test_what_a_leaf_is_grown_by_counts_as_restored(open_llm: Open) -> None:
    saved(open_llm)
    llm = open_llm(block_size=4, num_blocks=64)
    ask(llm, PREFIX[:8], SamplingParams(temperature=0, max_tokens=1))
    output = ask(llm, ASK)
    assert (output.num_cached_tokens, output.metrics.reuse) == (len(PREFIX), "store")


def test_the_writer_keeps_no_openmp_workers(open_llm: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def note() -> None:
        if threading.current_thread().name == "yaie-prefix-store":
            released.set()

    monkeypatch.setattr(prefix_store, "release_workers", note)
    open_llm().save_prefix(PREFIX)
    assert released.wait(60)

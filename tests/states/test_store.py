"""States outlive their engine, too: what is read again answers as what was computed, and what is damaged not at all."""

from __future__ import annotations

import hashlib
import json
import logging
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.states.conftest import GREEDY, OWN, PROMPT, Open, ask, cold, tokens
from tests.states.test_reuse import SLOW
from yaie_engine import LLM, ConfigError, SamplingParams, StoreError
from yaie_engine.states import schema
from yaie_engine.states.stored import StoredStates
from yaie_engine.store.record import FIXED_BYTES

FEW = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)
TURN = [*PROMPT, 7, 8]
NAMES = ["lfm2", *OWN, *(pytest.param(name, marks=pytest.mark.full) for name in ("mamba", *SLOW))]
DAMAGES = [
    *("a bit", "another shape"),
    *(pytest.param(name, marks=pytest.mark.full) for name in ("cut", "another name", "another dtype")),
]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warnings reach `caplog`, whatever other tests have set."""
    monkeypatch.setattr(logging.getLogger("yaie"), "propagate", True)


def stored(llm: LLM) -> StoredStates:
    assert isinstance(llm.prefixes, StoredStates)
    return llm.prefixes


def saved(open_llm: Open, place: Path, name: str = "lfm2") -> Path:
    """The record of PROMPT, written by an engine that is gone."""
    with open_llm(name, prefix_store=str(place)) as llm:
        assert llm.save_prefix(PROMPT).num_bytes > 0
    [path] = place.glob("*.kv")
    return path


@pytest.mark.parametrize("name", NAMES)
def test_a_restart_answers_as_what_was_computed(open_llm: Open, place: Path, name: str) -> None:
    """The prompt itself, of which no token is computed, and a longer one."""
    saved(open_llm, place, name)
    llm = open_llm(name, prefix_store=str(place))
    output = ask(llm, PROMPT)
    assert (tokens(output), output.num_cached_tokens) == (cold(open_llm, name, PROMPT), len(PROMPT) - 1)
    assert output.metrics.reuse == "store" and output.metrics.num_computed_tokens == GREEDY.max_tokens
    turn = ask(llm, TURN)
    assert (tokens(turn), turn.num_cached_tokens) == (cold(open_llm, name, TURN), len(PROMPT))
    assert turn.metrics.reuse == "state"  # it is in memory by now


def test_six_at_once_after_a_restart_all_hit(open_llm: Open, place: Path) -> None:
    saved(open_llm, place)
    llm, outputs = open_llm(prefix_store=str(place), max_num_seqs=4), []
    prompts = [[*PROMPT, 30 + i, 5] for i in range(6)]
    threads = [threading.Thread(target=lambda p=prompt: outputs.append(ask(llm, p))) for prompt in prompts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(output.num_cached_tokens for output in outputs) == [len(PROMPT)] * 6
    assert "store" in {output.metrics.reuse for output in outputs}
    assert {tuple(o.prompt_token_ids): tokens(o) for o in outputs} == {
        tuple(prompt): cold(open_llm, "lfm2", prompt) for prompt in prompts
    }


def sealed(path: Path, header: dict[str, object] | None, num_tokens: int | None = None) -> None:
    """Change the description of the tensors, or the number of tokens, with all checksums right."""
    raw = path.read_bytes()
    meta_bytes, count = struct.unpack_from("<II", raw, 12)
    start = FIXED_BYTES + meta_bytes + 4 * count
    size = int.from_bytes(raw[start : start + 8], "little")
    known, data = json.loads(raw[start + 8 : start + 8 + size]), raw[start + 8 + size :]
    text = json.dumps(known | (header or {}), separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    body = len(text).to_bytes(8, "little") + text + data
    fixed = raw[:24] + struct.pack("<Q", len(body)) + hashlib.sha256(body).digest()
    rest = raw[FIXED_BYTES:start]
    path.write_bytes(fixed + hashlib.sha256(fixed + rest).digest() + rest + body)


def described(path: Path) -> dict[str, dict[str, list[int]]]:
    raw = path.read_bytes()
    meta_bytes, count = struct.unpack_from("<II", raw, 12)
    start = FIXED_BYTES + meta_bytes + 4 * count
    size = int.from_bytes(raw[start : start + 8], "little")
    found: dict[str, dict[str, list[int]]] = json.loads(raw[start + 8 : start + 8 + size])
    return found


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_or_foreign_record_is_a_miss_with_one_warning(
    open_llm: Open, place: Path, caplog: pytest.LogCaptureFixture, heard: None, damage: str
) -> None:
    path = saved(open_llm, place)
    raw, known = path.read_bytes(), described(path)
    if damage == "a bit":
        path.write_bytes(raw[:-40] + bytes([raw[-40] ^ 16]) + raw[-39:])
    elif damage == "cut":
        path.write_bytes(raw[:-8])
    elif damage == "another shape":  # as many numbers
        keys = known["layers.1.keys"]
        sealed(path, {"layers.1.keys": {**keys, "shape": [keys["shape"][0], *keys["shape"][:0:-1]]}})
    elif damage == "another name":
        sealed(path, {"more": {**known["layers.1.keys"]}})
    else:
        sealed(path, {"layers.1.keys": {**known["layers.1.keys"], "dtype": "I32"}})
    llm = open_llm(prefix_store=str(place))
    for _ in range(2):
        output = ask(llm, PROMPT, FEW)
        llm.reset()
    assert output.num_cached_tokens == 0 and tokens(output) == cold(open_llm, "lfm2", PROMPT, FEW)
    warned = [entry.getMessage() for entry in caplog.records if entry.levelno == logging.WARNING]
    assert len(warned) == 1 and "is not used" in warned[0]
    assert list(place.glob("*.kv")) == [] and path.with_name(path.name + ".damaged").exists()


def test_states_of_another_model_are_left_alone(open_llm: Open, place: Path) -> None:
    path = saved(open_llm, place)
    llm = open_llm("mamba", prefix_store=str(place))
    assert ask(llm, PROMPT, FEW).num_cached_tokens == 0 and path.exists()
    assert stored(llm).store.entries() == [] and stored(llm).store.others()[0] == 1


def test_the_wanted_start_of_a_prompt_is_written_and_serves_others(open_llm: Open, place: Path) -> None:
    """As the system part of a chat; the file comes when the engine is closed at the latest."""
    with open_llm(prefix_store=str(place)) as llm:
        for keeper in (stored(llm).store, stored(llm).kept):
            keeper.want(PROMPT[:21])
        ask(llm, PROMPT, FEW)
        assert "state" in stored(llm).beside
    llm = open_llm(prefix_store=str(place))
    other = [*PROMPT[:21], *range(50, 60)]
    output = ask(llm, other)
    assert (output.num_cached_tokens, output.metrics.reuse) == (21, "store")
    assert tokens(output) == cold(open_llm, "lfm2", other)


@pytest.mark.parametrize("name", ["mamba", pytest.param("jamba", marks=pytest.mark.full)])
def test_the_wanted_start_of_a_prompt_that_goes_in_whole_is_written_too(open_llm: Open, place: Path, name: str) -> None:
    """With the first prompt that is long beside what follows it, and with none before."""
    part = PROMPT[:36]
    with open_llm(name, prefix_store=str(place)) as llm:
        for keeper in (stored(llm).store, stored(llm).kept):
            keeper.want(part)
        long = [*part, *range(50, 70)]
        assert tokens(ask(llm, long)) == cold(open_llm, name, long)
        assert stored(llm).kept.get(part) is None, "twenty tokens one by one are no gain"
        output = ask(llm, PROMPT)
        assert tokens(output) == cold(open_llm, name, PROMPT) and output.num_cached_tokens == 0
        assert stored(llm).kept.get(part) is not None
        lengths = sorted(len(each.token_ids) for each in stored(llm).kept.entries())
        assert lengths.count(36) == 1 and not {37, 38, 39} & set(lengths)
    llm, other = open_llm(name, prefix_store=str(place)), [*part, 90, 91]
    output = ask(llm, other)
    assert (output.num_cached_tokens, output.metrics.reuse) == (36, "store")
    assert tokens(output) == cold(open_llm, name, other)


def test_what_memory_has_is_saved_without_computing(open_llm: Open, place: Path) -> None:
    llm = open_llm(prefix_store=str(place))
    ask(llm, PROMPT, FEW)
    before = llm.snapshot().counters.computed_tokens
    entry = llm.save_prefix(PROMPT, pinned=True)
    assert entry.pinned and llm.snapshot().counters.computed_tokens - before <= 1
    assert stored(llm).load([entry.label]) == [0]
    llm.reset()
    assert stored(llm).load([entry.label]) == [len(PROMPT)]
    assert ask(llm, PROMPT, FEW).metrics.reuse == "state"


def test_salted_prompts_stay_in_memory(open_llm: Open, place: Path) -> None:
    salted = SamplingParams(temperature=0, max_tokens=1, cache_salt="secret")
    llm = open_llm(prefix_store=str(place))
    stored(llm).store.want(PROMPT)
    ask(llm, PROMPT, salted)
    llm.close()
    assert list(place.glob("*")) == []
    saved(open_llm, place)
    assert ask(open_llm(prefix_store=str(place)), PROMPT, salted).num_cached_tokens == 0


def test_settings(open_llm: Open, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="state_cache_gib=0"):
        open_llm(prefix_store=str(place), state_cache_gib=0)
    llm = open_llm(state_cache_gib=0)
    assert llm.prefixes is None
    for _ in range(2):
        assert ask(llm, PROMPT, FEW).num_cached_tokens == 0
    llm = open_llm(prefix_store=str(place), state_cache_gib=2**-20)  # 1 KiB: no state fits
    assert llm.save_prefix(PROMPT).num_bytes > 1024 and "0 states in memory" in stored(llm).beside
    assert ask(llm, PROMPT, FEW).num_cached_tokens == 0
    llm.detect_anomaly()
    with pytest.raises(StoreError, match="anomaly mode"):
        llm.save_prefix(PROMPT[1:])
    assert stored(llm).trouble == "nothing is kept or used while each token is looked at"
    llm.detect_anomaly(False)
    assert stored(llm).trouble == ""


def test_a_state_that_counts_something_is_refused(open_llm: Open, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no tensor has to be the same after any number of tokens, or a record could not give it back."""
    chunk = schema.ForwardCall.chunk

    def counting(*args: object) -> tuple[torch.Tensor, object]:
        rows, state = chunk(*args)  # type: ignore[arg-type]
        state.seen = 2 * args[1].stop  # type: ignore[attr-defined]
        return rows, state

    monkeypatch.setattr(schema.ForwardCall, "chunk", counting)
    with pytest.raises(ConfigError, match="seen of its state is another one after each token"):
        open_llm(prefix_store=str(place))


@pytest.mark.parametrize(
    ("name", "length"), [("window-6", 16), ("window-12", 16), *(("window-30", length) for length in (28, 29, 30, 40))]
)
def test_a_sliding_window_is_written_before_and_behind_its_end(
    open_llm: Open, place: Path, name: str, length: int
) -> None:
    """How many tokens it holds, and how many there were: both are what the next token needs."""
    with open_llm(name, prefix_store=str(place)) as llm:
        stored(llm).store.want(PROMPT[:length])
        ask(llm, PROMPT[:length], FEW)
    llm, other = open_llm(name, prefix_store=str(place)), [*PROMPT[:length], *range(50, 58)]
    output = ask(llm, other)
    assert (output.num_cached_tokens, output.metrics.reuse) == (length, "store")
    assert tokens(output) == cold(open_llm, name, other)


def test_a_window_that_holds_something_else_is_not_written(
    open_llm: Open, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should transformers keep another number of tokens one day."""
    windows = schema._windows
    monkeypatch.setattr(schema, "_windows", lambda state: {at: most + 2 for at, most in windows(state).items()})
    llm = open_llm("window-30", prefix_store=str(place))
    with pytest.raises(StoreError, match="was expected"):
        llm.save_prefix(PROMPT)
    assert list(place.glob("*.kv")) == []
    assert tokens(ask(llm, PROMPT)) == cold(open_llm, "window-30", PROMPT)


def test_a_count_that_is_wrong_is_not_written(open_llm: Open, place: Path) -> None:
    llm = open_llm("window-6", prefix_store=str(place))
    ask(llm, PROMPT, FEW)
    [state] = [each for each in stored(llm).kept.entries() if list(each.token_ids) == PROMPT]
    state.state.layers[1].cumulative_length += 1  # type: ignore[attr-defined]
    with pytest.raises(StoreError, match="cumulative_length of this state is not what 40 tokens lead to"):
        llm.save_prefix(PROMPT)


class Noted:
    """Every state has one thing more, by the number of its tokens."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, make: Callable[[int], object]) -> None:
        chunk = schema.ForwardCall.chunk

        def noting(*args: object) -> tuple[torch.Tensor, object]:
            rows, state = chunk(*args)  # type: ignore[arg-type]
            state.more = make(args[1].stop)  # type: ignore[attr-defined]
            return rows, state

        monkeypatch.setattr(schema.ForwardCall, "chunk", noting)


def test_a_flag_that_flips_behind_the_probes_is_not_written(
    open_llm: Open, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record could only give back what it was for the few tokens at load."""
    Noted(monkeypatch, lambda count: {"full": count > 20, "last": [None, 1][count > 30]})
    llm = open_llm(prefix_store=str(place))
    assert llm.save_prefix(PROMPT[:16]).num_bytes
    for length, name in ((24, "more.full"), (40, "more.full")):
        with pytest.raises(StoreError, match=f"{name} of this state is not what {length} tokens lead to"):
            llm.save_prefix(PROMPT[:length])
    assert len(list(place.glob("*.kv"))) == 1


def test_names_with_dots_are_names(open_llm: Open, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Noted(monkeypatch, lambda count: {"a.b": count, "a": {"c": [count + 1]}, 7: {"x.y.z": count}})
    saved(open_llm, place)
    llm = open_llm(prefix_store=str(place))
    assert ask(llm, PROMPT, FEW).metrics.reuse == "store"
    [entry] = stored(llm).store.entries()
    state = stored(llm).store.read(entry)
    assert state is not None
    assert state[0].more == {"a.b": 40, "a": {"c": [41]}, 7: {"x.y.z": 40}}  # type: ignore[attr-defined]


@pytest.mark.parametrize("more", [lambda count: {"a.b": count, "a": {"b": count}}, lambda count: (count,)])
def test_a_count_without_a_place_of_its_own_is_refused_in_words(
    open_llm: Open, place: Path, monkeypatch: pytest.MonkeyPatch, more: Callable[[int], object]
) -> None:
    Noted(monkeypatch, more)
    with pytest.raises(ConfigError, match="cannot be stored: more"):
        open_llm(prefix_store=str(place))

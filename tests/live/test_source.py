"""What a view is told of an engine: the recording, what came after, and what is left when the engine is gone."""

from __future__ import annotations

import gc
import json
import time
import weakref
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from tests.engine.fakes import eventually
from tests.live.runs import QUESTIONS, Script, sized
from yaie_engine import LLM, SamplingParams
from yaie_engine.increment import facts_of
from yaie_widgets.live.recorded import frame_of, tape_of
from yaie_widgets.live.recording import MAX_STEPS, facts_json
from yaie_widgets.live.recording_check import check_recording
from yaie_widgets.live.source import EngineSource, source_of


def engine(**settings: Any) -> LLM:
    return LLM("tiny", **{"num_blocks": 64, "max_num_batched_tokens": 64, **settings})


def ask(llm: LLM, text: str = QUESTIONS[4], tokens: int = 6, **settings: Any) -> str:
    return llm.generate(text, sized(tokens, **settings), use_tqdm=False)[0].request_id


def merged(recording: dict[str, Any], delta: dict[str, Any]) -> dict[str, Any]:
    """A recording with a delta, as a page has it."""
    parts = {key: {**recording[key], **delta[key]} for key in ("vocab", "engine")}
    known = recording["requests"]
    parts["requests"] = known | {label: known.get(label, {}) | facts for label, facts in delta["requests"].items()}
    return {**recording, **parts, "steps": recording["steps"] + delta["steps"]}


def settled(llm: LLM) -> None:
    """Ended requests are told with the step after, or at rest."""
    eventually(lambda: not llm.running())


def test_the_recording_is_the_tape_and_the_records() -> None:
    with engine() as llm:
        Script(llm)
        ask(llm)
        settled(llm)
        recording = json.loads(json.dumps(source_of(llm).recording()))
        tape = llm.tape()
        assert tape_of(recording) == replace(
            tape, steps=tuple(replace(step, at=round(step.at, 6)) for step in tape.steps)
        )
        records = llm.snapshot().steps
        assert [step["batch"] for step in recording["steps"]] == [
            [[entry.request_id, entry.kind, entry.num_tokens] for entry in record.batch] for record in records
        ]
        assert recording["engine"]["max_num_batched_tokens"] == 64 and recording["engine"]["num_blocks"] == 64


def test_texts_that_are_no_unicode_never_reach_a_message() -> None:
    """The name of a folder or an error may hold lone surrogates: they are escaped where the recording is built."""
    with engine() as llm:
        Script(llm)
        odd = "a\ud800\udfff"
        llm._engine.info = replace(llm._engine.info, name=odd)
        ask(llm)
        settled(llm)
        source = source_of(llm)
        recording = source.recording()
        json.dumps(recording, ensure_ascii=False).encode()
        escaped = "a\\ud800\\udfff"
        assert recording["engine"]["name"] == escaped
        check_recording({**recording, "engine": {**recording["engine"], "state": "recorded"}})
        facts = replace(facts_of(llm.history()[0])[0], error=odd, stop_reason=odd * 900)
        told = facts_json(replace(facts, prompt=None), odd)
        assert told["error"] == told["text"] == escaped and len(told["stop_reason"]) == 2000


def test_an_interrupt_leaves_no_step_out_and_none_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    with engine() as llm:
        Script(llm)
        source = source_of(llm)
        ask(llm)
        settled(llm)

        def interrupted(*given: Any) -> None:
            raise KeyboardInterrupt

        for name in ("_learn", "_roll", "_take_requests"):
            with monkeypatch.context() as patch:
                patch.setattr(source, name, interrupted)
                with suppress(KeyboardInterrupt):
                    source.pull()
        steps = [step["step"] for step in source.recording()["steps"]]
        assert steps == [record.step for record in llm.snapshot().steps]


def test_a_recording_and_its_deltas_are_the_later_recording() -> None:
    with engine() as llm:
        Script(llm)
        source = source_of(llm)
        known, revision = source.recording(), source.pull()
        for question in QUESTIONS[:4]:
            ask(llm, question)
            settled(llm)
            now = source.pull()
            delta = source.since(revision)
            assert delta is not None and delta["steps"] and delta["vocab"] and list(delta["requests"]) != []
            known, revision = merged(known, delta), now
        assert known == source.recording()
        assert not any((source.since(source.pull()) or {"": 1}).values())


def test_facts_of_a_request_are_those_of_its_result() -> None:
    with engine() as llm:
        Script(llm)
        output = llm.generate(QUESTIONS[0], sized(5, n=2), use_tqdm=False)[0]
        settled(llm)
        facts = source_of(llm).recording()["requests"]
        first, second = facts[output.request_id], facts[f"{output.request_id}/1"]
        assert first["text"] == QUESTIONS[0][:200] and len(first["text"]) < len(QUESTIONS[0])
        assert first["num_prompt_tokens"] == second["num_prompt_tokens"] == len(output.prompt_token_ids)
        assert first["num_output_tokens"] == 5 and first["state"] == "finished" and first["finish_reason"] == "length"
        assert first["num_cached_tokens"] == 0 < second["num_cached_tokens"]
        assert 0 <= first["queue_s"] <= first["ttft_s"] <= first["total_s"]


def test_a_request_that_runs_has_its_state_and_an_unknown_end() -> None:
    with engine() as llm:
        Script(llm, 0.002)
        handle = llm.submit(llm.tokenize(QUESTIONS[1]), sized(300))
        source = source_of(llm)
        eventually(lambda: source.recording()["requests"].get(handle.request_id, {}).get("state") == "decode")
        facts = source.recording()["requests"][handle.request_id]
        assert facts["finish_reason"] is None and facts["total_s"] is None and facts["ttft_s"] > 0
        assert facts["text"].startswith("Review the following Python function")
        handle.cancel()
        settled(llm)
        eventually(lambda: source.recording()["requests"][handle.request_id]["state"] == "cancelled")


def test_a_view_that_was_away_too_long_gets_the_whole() -> None:
    with engine(recorder_steps=8) as llm:
        Script(llm)
        source = source_of(llm)
        revision = source.pull()
        ask(llm, tokens=40)
        settled(llm)
        source.pull()
        assert source.since(revision) is None
        recording = source.recording()
        assert len(recording["steps"]) == 8
        assert frame_of(recording["base"]).nodes == llm.tape().base.nodes


def test_more_steps_than_a_recording_holds_roll_into_its_base(monkeypatch: Any) -> None:
    assert MAX_STEPS == 4096
    monkeypatch.setattr("yaie_widgets.live.source.MAX_STEPS", 10)
    with engine() as llm:
        Script(llm)
        source = source_of(llm)
        for question in QUESTIONS[:3]:
            ask(llm, question, 20)
            settled(llm)
            source.pull()
        recording = source.recording()
        frames = {frame.step: frame.nodes for frame in (each.copy() for each in llm.tape().frames())}
        assert len(recording["steps"]) == 10
        assert frame_of(recording["base"]).nodes == frames[recording["base"]["step"]]
        assert len(recording["requests"]) == 1  # those that ended before the ring are forgotten


def test_a_recording_for_a_page_has_a_bounded_number_of_entries() -> None:
    with engine() as llm:
        Script(llm)
        bounded, whole = EngineSource(llm, most_entries=50), EngineSource(llm, most_entries=float("inf"))
        llm.generate(list(QUESTIONS[:6]), sized(30), use_tqdm=False)
        settled(llm)
        some, every = bounded.recording(), whole.recording()
        assert (
            40 < sum(len(step["batch"]) for step in some["steps"]) <= 50 < sum(len(s["batch"]) for s in every["steps"])
        )
        assert some["steps"] == every["steps"][-len(some["steps"]) :]
        frames = {frame.step: frame.copy() for frame in llm.tape().frames()}
        assert frame_of(some["base"]) == frames[some["base"]["step"]]


def test_an_engine_that_was_closed_or_failed_is_told() -> None:
    llm = engine()
    Script(llm)
    ask(llm)
    source = source_of(llm)
    before = source.recording()
    revision = source.pull()
    llm.close()
    source.pull()
    delta = source.since(revision)
    assert delta is not None and delta["engine"] == {"state": "closed"} and not delta["steps"]
    assert source.recording()["steps"] == before["steps"] and not source.alive


def test_a_source_keeps_no_engine_alive() -> None:
    llm = engine()
    Script(llm)
    ask(llm)
    source = source_of(llm)
    assert source_of(llm) is source
    watch, tokenizer = weakref.ref(llm), weakref.ref(llm.tokenizer)
    llm.close()
    del llm
    gc.collect()
    assert watch() is None and tokenizer() is None
    source.pull()
    assert source.recording()["engine"]["state"] == "closed" and source.recording()["steps"]


def test_nothing_secret_is_recorded() -> None:
    with engine() as llm:
        Script(llm)
        llm.generate(QUESTIONS[4], SamplingParams(max_tokens=3, cache_salt="hunter2"), use_tqdm=False)
        settled(llm)
        text = json.dumps(EngineSource(llm).recording())
        assert "hunter2" not in text and "salt:" in text


def test_asking_does_not_wait_for_the_engine() -> None:
    with engine() as llm:
        script = Script(llm, 0.5)
        script.arrivals = {0: [(QUESTIONS[4], sized(3))]}
        handle = llm.submit(QUESTIONS[4], sized(3))
        eventually(lambda: script.runner.steps > 0)
        start = time.monotonic()
        EngineSource(llm).recording()
        assert time.monotonic() - start < 0.25
        handle.result(60)

"""Parts of a model that somebody replaces after the load, with a cache: what was cached before answers for nobody."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.architectures.peers import word_tokenizer
from tests.engine.conftest import Make
from tests.engine.fakes import assert_idle, eventually, greedy, tokens
from tests.engine.test_cpu_graphs import graphs_of
from tests.engine.test_parts import (
    CHANGES,
    PROMPTS,
    Change,
    drawn,
    engine,
    expected,
    found,
    kernels,
    model_of,
    plain,
    set_layer,
    set_parameter,
    set_submodule,
)
from tests.states.conftest import build
from yaie_engine import LLM, parts, runner
from yaie_engine.plan import StepPlan
from yaie_engine.renewal import BEFORE

BACKENDS = ["reference", pytest.param("cpu", marks=kernels)]


def both(llm: LLM, truth: Any, change: Change) -> None:
    for model in (model_of(llm), truth):
        change(model)


def cached_of_first(llm: LLM) -> int:
    """Of the last answer to the first prompt; the second one is its beginning."""
    found = [record for record in llm.history(2) if len(record.prompt_token_ids) == len(PROMPTS[0])]
    return found[0].num_cached_tokens


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("change", CHANGES)
def test_the_same_prompts_are_computed_anew(folder: Path, make_llm: Make, change: Change, backend: str) -> None:
    llm = engine(make_llm, attention_backend=backend, enable_prefix_caching=True)
    truth, before = plain(folder), found(llm)
    assert found(llm) == before == expected(truth) and llm.history()[-1].num_cached_tokens
    assert not llm._engine.runner.changed
    both(llm, truth, change)
    after = expected(truth)
    assert after != before and found(llm) == after and llm._engine.runner.changed
    assert cached_of_first(llm) == 0
    assert found(llm) == after and cached_of_first(llm) == len(PROMPTS[0]) - 1, "it is cached anew"


def test_what_went_to_host_blocks_does_not_come_back(folder: Path, make_llm: Make) -> None:
    llm = make_llm(num_blocks=13, num_cpu_blocks=64)
    truth = plain(folder)
    before = found(llm)
    for start in (60, 110, 160):
        llm.generate([list(range(start, start + 40))], greedy(2), use_tqdm=False)
    assert llm.host_blocks is not None and llm.host_blocks.cached
    both(llm, truth, set_layer)
    assert found(llm) == expected(truth) != before and cached_of_first(llm) == 0


@pytest.mark.parametrize("name", ["lfm2", "mamba"])
def test_kept_states_are_forgotten(name: str) -> None:
    settings: dict[str, Any] = {"block_size": 4, "num_blocks": 128, "long_prefill_token_threshold": 8}
    prompt = [(5 * i + i * i) % 90 + 3 for i in range(40)]
    with LLM(build(name), tokenizer=word_tokenizer(), **settings) as llm:
        first = llm.generate([prompt], greedy(6), use_tqdm=False)[0]
        assert llm.generate([prompt], greedy(6), use_tqdm=False)[0].num_cached_tokens == len(prompt) - 1
        rows = model_of(llm).get_input_embeddings()
        rows.weight = type(rows.weight)(drawn(rows.weight), requires_grad=False)
        again = llm.generate([prompt], greedy(6), use_tqdm=False)[0]
        assert again.num_cached_tokens == 0 and tokens(again) != tokens(first) and llm._engine.runner.changed
        once_more = llm.generate([prompt], greedy(6), use_tqdm=False)[0]
        assert once_more.num_cached_tokens == len(prompt) - 1 and tokens(once_more) == tokens(again)
        llm.check()


@pytest.mark.usefixtures("overlap")
@pytest.mark.parametrize("salt", [None, "mine"])
def test_who_runs_goes_on_and_leaves_nothing(folder: Path, make_llm: Make, salt: str | None) -> None:
    """The change comes amid an answer; then the same prompt, which still runs, is asked again."""
    llm, truth = make_llm(num_blocks=64), plain(folder)
    at, go = threading.Event(), threading.Event()
    run = llm._engine.runner.run

    def holding(plan: StepPlan, *args: Any) -> Any:
        if any(entry.seq.num_output_tokens == 4 for entry in plan.batch) and not at.is_set():
            at.set()
            go.wait(30)
        return run(plan, *args)

    llm._engine.runner.run = holding  # type: ignore[method-assign]
    params = greedy(40, ignore_eos=True, cache_salt=salt)
    running = llm.submit(PROMPTS[0], params)
    assert at.wait(30)
    both(llm, truth, set_submodule)
    asked = [llm.submit(prompt, greedy(8, cache_salt=salt)) for prompt in PROMPTS]
    go.set()
    outputs = [handle.result(60) for handle in asked]
    assert [tuple(tokens(output)) for output in outputs] == expected(truth)
    assert outputs[0].num_cached_tokens == 0
    result = running.result(60)
    assert result.error is None and len(tokens(result)) == 40 and result.metrics.num_preemptions == 0
    assert_idle(llm)
    assert not any(name.startswith(BEFORE) for name in llm._scheduler.tree.roots)
    turn = [*PROMPTS[0], *tokens(result)]
    output = llm.generate([turn], greedy(1, cache_salt=salt), use_tqdm=False)[0]
    assert output.num_cached_tokens < len(PROMPTS[0]) + 9, "what it computed of both models is not there"


def test_what_a_step_notices_counts_before_the_next_request(
    folder: Path, make_llm: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that is undone again before somebody looks at all parts: some steps ran over it."""
    monkeypatch.setattr(parts, "SHARES", 1)
    llm, steps = make_llm(num_blocks=64), list[int]()
    run, old = llm._engine.runner.run, model_of(llm).model.norm.weight

    def counting(*args: Any) -> Any:
        steps.append(1)
        if len(steps) == 6:
            set_parameter(model_of(llm))
        if len(steps) == 9:
            model_of(llm).model.norm.weight = old
        return run(*args)

    llm._engine.runner.run = counting  # type: ignore[method-assign]
    found(llm, 1)
    llm._engine.runner.run = run  # type: ignore[method-assign]
    assert found(llm, 1)[0] == expected(plain(folder))[0] and not llm.history()[-1].num_cached_tokens


def test_a_change_before_or_amid_a_sleep_is_known_until_the_weights_are_read_again(make_llm: Make) -> None:
    llm = make_llm()
    for change in (lambda: set_parameter(model_of(llm)), None):
        llm.generate([PROMPTS[0]], greedy(1), use_tqdm=False)
        assert not llm._engine.runner.changed
        model = llm._engine.runner._weights.loaded.model  # type: ignore[attr-defined]
        if change is not None:
            change()
        llm.sleep(1)
        if change is None:
            set_parameter(model)
        llm.wake_up()
        assert llm._engine.runner.changed
        llm.sleep(2)
        llm.wake_up()
        assert not llm._engine.runner.changed
    llm.sleep(1)
    llm.wake_up()
    assert not llm._engine.runner.changed, "sleep moves weights itself"


@kernels
def test_a_sweep_of_replacements_stays_recorded(folder: Path, make_llm: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the answers are short: only a model that replaces parts itself is recorded no more."""
    monkeypatch.setattr(runner, "MOST_RENEWALS", 3)
    llm, truth = engine(make_llm), plain(folder)
    for _ in range(8):
        both(llm, truth, set_parameter)
        assert found(llm) == expected(truth)
    graphs = graphs_of(llm)
    assert graphs is not None and graphs.captured and runner.CHANGING not in llm.snapshot().model.reason


@kernels
def test_a_model_that_stops_to_change_itself_is_recorded_again(make_llm: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "MOST_RENEWALS", 2)
    llm = engine(make_llm)
    rotary = model_of(llm).model.rotary_emb
    hook = rotary.register_forward_pre_hook(lambda module, _: setattr(module, "inv_freq", module.inv_freq.clone()))

    def gave_up() -> bool:
        found(llm)
        return runner.CHANGING in llm.snapshot().model.reason

    eventually(gave_up)
    hook.remove()
    found(llm)  # what the last forward replaced
    set_parameter(model_of(llm))
    found(llm)
    graphs = graphs_of(llm)
    assert graphs is not None and graphs.captured and runner.CHANGING not in llm.snapshot().model.reason

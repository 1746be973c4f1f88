"""What a caller gives to LLM never disagrees in silence, and what is wrong is named with its place."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.engine.conftest import CHEAP, Make
from tests.engine.fakes import Formula
from yaie_engine import LLM, ConfigError, EngineConfig, ModelLoadError, RequestError, SamplingParams, YaieError
from yaie_engine.stop import _kept_automaton


def test_a_path_is_a_model(folder: Path) -> None:
    with LLM(folder, **CHEAP) as llm:
        assert llm.config.model == str(folder)


@pytest.mark.parametrize(
    ("arguments", "keywords", "message"),
    [
        (("other",), {"config": EngineConfig(model="tiny")}, "model='other' is given, and config says 'tiny'"),
        ((), {"config": EngineConfig(), "tokenizer": "other"}, "tokenizer='other' is given, and config says None"),
        ((), {"config": 5}, "config=int: an EngineConfig is needed"),
        ((), {"config": {"block_size": 4}}, "config=dict: an EngineConfig is needed"),
        (("tiny",), {"config": EngineConfig(), "block_size": 4}, "either config or keywords"),
        ((object(),), {}, "model=object: a name, a path or a model of transformers is needed"),
        ((5,), {"tokenizer": "x"}, "model=int: a name, a path"),
        (("tiny",), {"tokenizer": 5}, "tokenizer=int: a folder, a Hub id, or a tokenizer"),
    ],
)
def test_arguments_that_disagree_are_refused(arguments: Any, keywords: Any, message: str) -> None:
    with pytest.raises(ConfigError, match="LLM: ") as caught:
        LLM(*arguments, **keywords)
    assert message in str(caught.value)


@pytest.mark.parametrize("tokenizer", [None, "a-name"])
@pytest.mark.parametrize("config", [None, EngineConfig()])
def test_a_model_object_needs_its_tokenizer_object(folder: Path, tokenizer: Any, config: Any) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    with pytest.raises(ConfigError, match="a model object needs its tokenizer object"):
        LLM(model, tokenizer=tokenizer, config=config)


@pytest.mark.parametrize("params", [[], {}, 5, "x", [SamplingParams(), 3], [SamplingParams()] * 2])
def test_params_that_are_none_are_not_the_defaults(llm: LLM, params: Any) -> None:
    for call in (llm.generate, llm.submit):
        with pytest.raises(RequestError, match="params"):
            call("abc", params)


def test_the_wrong_conversation_is_named(llm: LLM) -> None:
    good, bad = [{"role": "user", "content": "hi"}], [{"role": "bad", "content": "hi"}]
    for wrong in (bad, 5, []):
        with pytest.raises(RequestError, match="conversation 1: "):
            llm.chat([good, wrong])
    with pytest.raises(RequestError, match="chat_template: a template belongs to the engine"):
        llm.chat(good, chat_template="{{ x }}")


@pytest.mark.parametrize("token_id", [-1, 10**9, True, 1.5, "3", None])
def test_detokenize_names_the_id(llm: LLM, token_id: Any) -> None:
    with pytest.raises(RequestError, match=r"token_ids\[1\]="):
        llm.detokenize([5, token_id])


def test_batches_of_two_threads_share_a_short_queue(make_llm: Make) -> None:
    llm = make_llm(max_waiting=2, max_num_seqs=2)
    results: list[Any] = []

    def work() -> None:
        try:
            results.append(
                llm.generate([f"prompt {i}" for i in range(10)], SamplingParams(max_tokens=3), use_tqdm=False)
            )
        except YaieError as error:
            results.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [len(result) for result in results] == [10] * 3


def test_a_failed_step_preempts_nobody_and_a_reset_evicts_nothing(llm: LLM, formula: Formula) -> None:
    before = llm.snapshot().counters
    formula.runner.before = lambda plan: (_ for _ in ()).throw(RuntimeError("planted"))
    outputs = llm.generate(["abc", "abd"], SamplingParams(max_tokens=3), use_tqdm=False)
    assert [output.outputs[0].finish_reason for output in outputs] == ["error"] * 2
    formula.runner.before = None
    llm.generate("abc", SamplingParams(max_tokens=3, seed=1), use_tqdm=False)
    assert llm.reset() > 0
    llm.generate("abc", SamplingParams(max_tokens=3, seed=1), use_tqdm=False)
    after = llm.snapshot().counters
    assert (after.preemptions, after.evictions) == (before.preemptions, before.evictions)
    assert all(output.metrics.num_preemptions == 0 for output in outputs)


def test_what_is_not_built_is_refused() -> None:
    with pytest.raises(ConfigError, match="not built yet"):
        EngineConfig(speculative="eagle")


def test_devices_in_any_case() -> None:
    assert EngineConfig(device="CPU").device == "cpu" and EngineConfig(device="CUDA:1").device == "cuda:1"
    with pytest.raises(ConfigError, match="device='tpu': one of auto, cpu, cuda"):
        EngineConfig(device="tpu")


@pytest.mark.parametrize("value", [1, "1", 1.0])
def test_old_settings_as_text(value: Any) -> None:
    EngineConfig(tensor_parallel_size=value, swap_space="0")
    with pytest.raises(ConfigError, match="one engine uses one device"):
        EngineConfig(tensor_parallel_size="2")


@pytest.mark.parametrize("name", ["x" * 5000, "x" * 300, "a/" * 400, "~nobody-at-all/x", "nul\0name"])
def test_names_that_no_file_system_takes(name: str) -> None:
    with pytest.raises(ModelLoadError) as caught:
        LLM(name)
    assert "\n" not in str(caught.value)


def test_a_template_that_is_no_file_is_refused_at_load(folder: Path) -> None:
    with pytest.raises(ConfigError, match="chat_template='nofile'"):
        LLM(folder, chat_template="nofile", **CHEAP)


def test_overlapping_loads_restore_what_they_found() -> None:
    from huggingface_hub import constants

    from yaie_engine.models.weights import offline_and_quiet

    before = constants.HF_HUB_OFFLINE
    first, second = offline_and_quiet(), offline_and_quiet()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert constants.HF_HUB_OFFLINE is True
    second.__exit__(None, None, None)
    assert before == constants.HF_HUB_OFFLINE


def test_large_stop_lists_are_not_kept(llm: LLM) -> None:
    kept = _kept_automaton.cache_info().currsize
    for i in range(3):
        stop = [f"{i}{k}" + "x" * 1000 for k in range(64)]
        llm.generate("abc", SamplingParams(max_tokens=2, stop=stop), use_tqdm=False)
    assert _kept_automaton.cache_info().currsize == kept

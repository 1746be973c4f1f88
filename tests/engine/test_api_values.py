"""Everything a person types is checked before anything runs: bounds, unknown names, old names, features to come."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest

from tests.engine.models import random_llama, tokenizer
from yaie_engine import LLM, ConfigError, EngineConfig, RequestError, SamplingParams, YaieError

HUGE = 10**30
NUMBERS: dict[str, tuple[list[Any], list[Any]]] = {
    # field: (allowed at the edges, refused)
    "n": ([1, 128], [0, -1, 129]),
    "max_tokens": ([None, 1, 2**31 - 1], [0, -5, HUGE]),
    "min_tokens": ([0, 100], [-1, HUGE]),
    "temperature": ([0, 1e-8, 100], [-0.1, 101]),
    "top_p": ([0, 1], [-0.1, 1.1]),
    "top_k": ([-1, 0, 10**6], [-2, HUGE]),
    "min_p": ([0, 1], [-0.1, 1.1]),
    "repetition_penalty": ([0.01, 100], [0, -1, 101]),
    "presence_penalty": ([-2, 2], [-2.1, 2.1]),
    "frequency_penalty": ([-2, 2], [-2.1, 2.1]),
    "seed": ([None, -(2**63), 0, 2**64 - 1], [2**64, -(2**63) - 1]),
    "logprobs": ([None, 0, 100], [-1, 101]),
    "prompt_logprobs": ([None, 0, 100], [-1, 101]),
    "priority": ([-(2**31), 0, 2**31 - 1], [2**31, -(2**31) - 1]),
    "timeout": ([None, 0.001, 604_800], [0, -1, 604_801]),
}
OTHERS: dict[str, tuple[list[Any], list[Any]]] = {
    "logit_bias": ([{}, {5: 100, 6: -100}], [{5: 100.1}, {5: -101}, {"abc": 1}, {5: math.nan}, {5: "x"}, [5], 3]),
    "stop": ([[], "x", ["x", "y" * 1024]], [[""], [1], 3, ["y" * 1025], ["x"] * 65]),
    "stop_token_ids": ([[], [5]], [["x"], 5, [1.5], [True]]),
    "ignore_eos": ([True, False], ["perhaps", 3, None]),
    "include_stop_str_in_output": ([True, False], ["perhaps", 3]),
    "skip_special_tokens": ([True, False], ["perhaps", 3]),
    "structured": ([None], [{"regex": "a"}, "json", False]),
    "cache_salt": ([None, "s", "s" * 256], ["", "s" * 257, 5]),
}
PARAMS = NUMBERS | OTHERS
CONFIG: dict[str, tuple[list[Any], list[Any]]] = {
    "model": (["tiny", "some/where"], ["", 5, None]),
    "tokenizer": ([None, "x"], ["", 5]),
    "revision": ([None, "main"], ["", 5]),
    "chat_template": ([None, "{{ messages }}"], ["", 5]),
    "dtype": (["auto", "float32", "bfloat16", "float16"], ["float64", "", None, 16]),
    "device": (["auto", "cpu", "cuda", "cuda:3"], ["gpu", "cuda:x", "", "cpu:0\n"]),
    "attention_backend": (["auto", "reference", "cpu", "emulated", "cuda"], ["flash", None]),
    "quantization": ([None, "int8"], ["int4", "INT8", 8, True]),
    "block_size": ([1, 1024], [0, -1, 1025]),
    "num_blocks": ([None, 1, 2**31 - 1], [0, -1, 2**31]),
    "gpu_memory_utilization": ([0.01, 1], [0, 1.1, -1]),
    "cpu_memory_utilization": ([0.01, 1], [0, 1.1, -1]),
    "num_cpu_blocks": ([0, 5], [-1, 2**31, HUGE]),
    "max_model_len": ([None, 1], [0, -1, 2**31]),
    "max_num_seqs": ([1, 4096], [0, 4097]),
    "max_num_batched_tokens": ([None, 1, 2**20], [0, 2**20 + 1]),
    "long_prefill_token_threshold": ([0, 2**20], [-1, 2**20 + 1]),
    "enable_prefix_caching": ([True, False], ["perhaps", 3]),
    "enable_chunked_prefill": ([True, False], ["perhaps", 3]),
    "scheduling_policy": (["fcfs", "lpm", "priority", "fair"], ["random", "FCFS", None]),
    "preemption": (["recompute"], ["swap", "kill"]),
    "max_waiting": ([1, 10**6], [0, 10**6 + 1]),
    "request_timeout": ([None, 0.001, 604_800], [0, -1, 604_801]),
    "seed": ([0, -(2**63), 2**64 - 1], [2**64, None]),
    "prefix_store": ([None, "somewhere"], ["", 5]),
    "prefix_store_gib": ([0.5, 2**20], [0, -1, 2**20 + 1]),
    "state_cache_gib": ([None, 0, 2**20], [-1, 2**20 + 1]),
    "enforce_eager": ([False, True], ["perhaps"]),
    "enable_torch_compile": ([False, True], ["perhaps"]),
    "speculative": ([None], ["ngram", {"method": "ngram"}, 3]),
    "recorder_steps": ([1, 10**6], [0, 10**6 + 1]),
    "sampling_defaults": ([{}, {"top_p": 0.5}], [{"top_p": 2}, {"top_pp": 1}, 5]),
}
NUMERIC_CONFIG = [
    "block_size", "num_blocks", "gpu_memory_utilization", "cpu_memory_utilization", "num_cpu_blocks", "max_model_len",
    "max_num_seqs", "max_num_batched_tokens", "long_prefill_token_threshold", "max_waiting", "request_timeout", "seed",
    "recorder_steps",
]  # fmt: skip


def pairs(table: dict[str, tuple[list[Any], list[Any]]], which: int) -> list[Any]:
    return [pytest.param(f, v, id=f"{f}-{str(v)[:24]}") for f, values in table.items() for v in values[which]]


def test_every_field_is_in_these_tables() -> None:
    assert set(PARAMS) == set(SamplingParams.model_fields)
    assert set(CONFIG) == set(EngineConfig.model_fields)


@pytest.mark.parametrize(("field", "value"), pairs(PARAMS, 0))
def test_sampling_values_at_the_edge(field: str, value: Any) -> None:
    found = getattr(SamplingParams(**{field: value}), field)
    assert found == ([value] if isinstance(value, str) and field == "stop" else value)


@pytest.mark.parametrize(("field", "value"), pairs(PARAMS, 1))
def test_sampling_values_out_of_range(field: str, value: Any) -> None:
    with pytest.raises(RequestError, match=field) as caught:
        SamplingParams(**{field: value})
    assert isinstance(caught.value, ValueError) and "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, True, "many", [1], HUGE**10])
@pytest.mark.parametrize("field", NUMBERS)
def test_no_number_at_all(field: str, value: Any) -> None:
    with pytest.raises(RequestError, match=field):
        SamplingParams(**{field: value})


def test_the_message_names_field_value_and_range() -> None:
    with pytest.raises(RequestError, match=r"SamplingParams: top_p=1\.5: .*allowed: >= 0 and <= 1"):
        SamplingParams(top_p=1.5)
    with pytest.raises(ConfigError, match=r"EngineConfig: block_size=0: .*allowed: >= 1 and <= 1024"):
        EngineConfig(block_size=0)
    with pytest.raises(RequestError, match="min_tokens 5 is over max_tokens 4"):
        SamplingParams(min_tokens=5, max_tokens=4)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("temprature", "temperature"),
        ("topp", "top_p"),
        ("max_token", "max_tokens"),
        ("stops", "stop"),
        ("sead", "seed"),
    ],
)
def test_an_unknown_parameter_names_the_nearest(name: str, near: str) -> None:
    with pytest.raises(RequestError, match=rf"unknown name '{name}'; did you mean '{near}'"):
        SamplingParams(**{name: 1})


def test_parameters_do_not_change() -> None:
    params = SamplingParams(stop="x", max_tokens=4)
    with pytest.raises((ValueError, TypeError)):
        params.top_p = 0.5  # type: ignore[misc]
    changed = params.replace(max_tokens=9)
    assert (changed.max_tokens, changed.stop, params.max_tokens) == (9, ["x"], 4)
    with pytest.raises(RequestError):
        params.replace(max_tokens=0)


@pytest.mark.parametrize(("field", "value"), pairs(CONFIG, 0))
def test_settings_at_the_edge(field: str, value: Any) -> None:
    assert getattr(EngineConfig(**{field: value}), field) == value


@pytest.mark.parametrize(("field", "value"), pairs(CONFIG, 1))
def test_settings_out_of_range(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=r"SamplingParams|" + field) as caught:
        EngineConfig(**{field: value})
    assert isinstance(caught.value, ValueError) and "\n" not in str(caught.value)
    with pytest.raises(YaieError):
        LLM(**{"model": "tiny", field: value})


@pytest.mark.parametrize("value", [math.nan, math.inf, True, "many", [1]])
@pytest.mark.parametrize("field", NUMERIC_CONFIG)
def test_no_number_for_a_setting(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=field):
        EngineConfig(**{field: value})


@pytest.mark.parametrize(
    ("name", "near"), [("blocksize", "block_size"), ("num_block", "num_blocks"), ("max_seqs", "max_num_seqs")]
)
def test_an_unknown_setting_names_the_nearest(name: str, near: str) -> None:
    with pytest.raises(ConfigError, match=rf"unknown name '{name}'; did you mean '{near}'"):
        LLM("tiny", **{name: 1})


@pytest.mark.parametrize(
    ("old", "value", "new", "expected"),
    [
        ("max_batch_size", 7, "max_num_seqs", 7),
        ("max_seq_len", 100, "max_model_len", 100),
        ("num_gpu_blocks", 50, "num_blocks", 50),
        ("max_blocks", 50, "num_blocks", 50),
        ("enable_radix_cache", False, "enable_prefix_caching", False),
        ("schedule_policy", "fcfs", "scheduling_policy", "fcfs"),
        ("default_max_tokens", 9, "sampling_defaults", {"max_tokens": 9}),
        ("default_temperature", 0.5, "sampling_defaults", {"temperature": 0.5}),
        ("default_top_p", 0.5, "sampling_defaults", {"top_p": 0.5}),
    ],
)
def test_old_names_say_the_new_one(
    old: str, value: Any, new: str, expected: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="yaie"):
        assert getattr(EngineConfig(**{old: value}), new) == expected
    assert len(caplog.records) == 1 and old in caplog.text and new in caplog.text
    if new != "sampling_defaults":
        with pytest.raises(ConfigError, match=f"{new} is given twice"):
            EngineConfig(**{old: value, new: value})


@pytest.mark.parametrize("name", ["max_prefill_batch_size", "max_decode_batch_size", "max_num_schedule_steps"])
def test_old_names_without_effect(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="yaie"):
        assert EngineConfig(**{name: 8}) == EngineConfig()
    assert f"{name} has no effect" in caplog.text


def test_old_names_that_ask_for_too_much() -> None:
    assert EngineConfig(tensor_parallel_size=1, swap_space=0) == EngineConfig()
    with pytest.raises(ConfigError, match=r"tensor_parallel_size=2.*device="):
        EngineConfig(tensor_parallel_size=2)
    with pytest.raises(ConfigError, match=r"swap_space=4.* num_cpu_blocks"):
        EngineConfig(swap_space=4)
    assert EngineConfig(default_top_p=0.5, sampling_defaults={"seed": 1}).sampling_defaults == {"top_p": 0.5, "seed": 1}
    with pytest.raises(ConfigError):
        EngineConfig(default_top_p=7)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("speculative", "ngram"),
    ],
)
def test_what_is_not_built_says_so(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"{field}={value!r} is not built yet"):
        LLM("tiny", **{field: value})
    with pytest.raises(RequestError, match="not built yet"):
        SamplingParams(structured={"json": {}})


def test_one_way_to_give_a_configuration() -> None:
    with pytest.raises(ConfigError, match="not both"):
        LLM(config=EngineConfig(), block_size=4)
    with pytest.raises(ConfigError, match="needs its tokenizer"):
        LLM(random_llama())
    with LLM(random_llama(), tokenizer=tokenizer(), config=EngineConfig(block_size=8, num_blocks=9)) as llm:
        blocks = llm.snapshot().blocks
        assert (blocks.block_size, blocks.total) == (8, 9)

"""The probe bites: whatever is dropped or wrong is noticed, and what no tier reproduces is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import yaie_engine.attention as attention_module
from tests.architectures.zoo import BY_NAME, POSITIONS, Architecture
from yaie_engine.attention import AttentionArguments
from yaie_engine.config import EngineConfig
from yaie_engine.errors import ModelLoadError
from yaie_engine.loader import load_model
from yaie_engine.tiers import windows
from yaie_engine.tiers.measure import relative_error
from yaie_engine.tiers.probe import Probe, ProbeResult

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore")
PLAIN_ATTENTION = attention_module.attention


def choose(model: Any, dtype: torch.dtype = torch.float32) -> ProbeResult:
    return Probe(model, dtype, torch.device("cpu"), POSITIONS).choose()


def dropping(name: str) -> Callable[..., Any]:
    """Our attention, deaf to one argument."""

    def attention(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop(name, None)
        return PLAIN_ATTENTION(*args, **kwargs)

    return attention


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("name", "argument"),
    [
        ("mistral-window", "sliding_window"),
        ("gemma3", "sliding_window"),
        ("gemma2", "softcap"),
        ("gpt-oss", "s_aux"),
        ("granite", "scaling"),
        ("gemma2", "scaling"),
    ],
)
def test_a_dropped_argument_is_noticed(
    monkeypatch: pytest.MonkeyPatch, name: str, argument: str, dtype: torch.dtype
) -> None:
    monkeypatch.setattr(attention_module, "attention", dropping(argument))
    result = choose(BY_NAME[name].build().to(dtype), dtype)
    assert result.tier != "flat"
    assert "flat: " in result.reason


def test_a_window_longer_than_the_probe_is_tested_too(monkeypatch: pytest.MonkeyPatch) -> None:
    long_window = Architecture("long", "mistral", "flat", {"sliding_window": 64})
    assert choose(long_window.build()).tier == "flat"
    monkeypatch.setattr(attention_module, "attention", dropping("sliding_window"))
    assert choose(long_window.build()).tier == "paged"


def test_chunked_attention_needs_its_own_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the rule about attention chunks the flat tier would be measured, and found wrong."""
    monkeypatch.setattr(windows.Windows, "of", classmethod(lambda cls, model: cls((), 0)))
    result = choose(BY_NAME["llama4-chunked"].build())
    assert result.tier == "paged"
    assert "flat: logits differ" in result.reason


def test_blocks_of_another_sequence_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def swapped(module: Any, query: Any, key: Any, value: Any, mask: Any, **kwargs: Any) -> Any:
        batch = getattr(module, attention_module.SLOT).batch
        batch._tables = batch._tables.flip(0)
        return PLAIN_ATTENTION(module, query, key, value, mask, **kwargs)

    monkeypatch.setattr(attention_module, "attention", swapped)
    assert choose(BY_NAME["llama"].build()).tier == "paged"


def test_a_model_that_no_tier_reproduces_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise that depends on the call stands for a state that lives in the model itself."""
    model = BY_NAME["llama"].build()
    calls = iter(range(10**6))

    def drift(_module: Any, _args: Any, output: Any) -> Any:
        return output + 0.1 * next(calls) if output.shape[1] < 9 else output

    model.lm_head.register_forward_hook(drift)
    with pytest.raises(ModelLoadError, match="cannot be served: no tier gives the answers of the plain model"):
        choose(model)


def test_a_model_that_sees_the_future_is_refused() -> None:
    bert = Architecture("bert", "bert", "", style="plain").build()
    with pytest.raises(ModelLoadError, match="looks at later tokens"):
        choose(bert)


def test_a_model_whose_weights_give_no_numbers_is_refused_by_that_name() -> None:
    model = BY_NAME["llama"].build()
    with torch.no_grad():
        model.lm_head.weight[3, 3] = float("nan")
    with pytest.raises(ModelLoadError, match="NaN or infinity for ordinary text: look at its weights"):
        choose(model)


def test_a_model_without_a_cache_is_refused() -> None:
    gpt = Architecture("gpt", "openai-gpt", "", style="gpt2").build()
    with pytest.raises(ModelLoadError, match="OpenAIGPTLMHeadModel cannot be served"):
        choose(gpt)


def test_experts_chosen_by_a_hair_do_not_cost_the_flat_tier() -> None:
    result = choose(BY_NAME["phimoe"].build().to(torch.bfloat16), torch.bfloat16)
    assert result.tier == "flat"
    assert result.measured_in == torch.float32
    assert "in float32 arithmetic" in result.reason


@pytest.mark.parametrize("kind", ["window", "softcap", "sinks"])
def test_arguments_that_the_configuration_does_not_know(kind: str) -> None:
    """Each layer's window, cap and sinks must be those of the configuration, whatever the logits of a probe say."""
    name = {"window": "mistral-window", "softcap": "gemma2", "sinks": "gpt-oss"}[kind]
    model = BY_NAME[name].build()
    config = model.config
    layers = windows.Windows.of(model).layers
    cap = float(getattr(config, "attn_logit_softcapping", None) or 0)
    right = {i: AttentionArguments(window, cap, name == "gpt-oss") for i, window in enumerate(layers)}
    assert windows.seen_as_configured(model, right, POSITIONS) == ""
    one = right[0]
    wrong = {
        "window": AttentionArguments(one.sliding_window + 1, one.softcap, one.sinks),
        "softcap": AttentionArguments(one.sliding_window, 0.0, one.sinks),
        "sinks": AttentionArguments(one.sliding_window, one.softcap, False),
    }[kind]
    assert windows.seen_as_configured(model, dict.fromkeys(right, wrong), POSITIONS)


def test_compressed_attention_goes_in_whole_prompts() -> None:
    model = BY_NAME["llama"].build()
    model.config.compress_rates = {"compressed_sparse_attention": 4}
    result = choose(model)
    assert (result.tier, result.chunks_prefill) == ("state", False)
    assert "compress_rates" in result.reason


@pytest.mark.parametrize("name", ["llama-rope-dynamic", "llama-rope-longrope"])
def test_moving_rope_is_frozen_and_left_alone_in_the_original(name: str) -> None:
    model = BY_NAME[name].build()
    rotary = model.model.rotary_emb
    kind, before = rotary.rope_type, rotary.inv_freq.clone()
    loaded = load_model(EngineConfig(model="x"), model)
    assert loaded.model.model.rotary_emb.rope_type == "default"
    assert "RoPE fixed for 128 tokens" in loaded.tier_reason
    assert rotary.rope_type == kind
    torch.testing.assert_close(rotary.inv_freq, before, rtol=0, atol=0)


def test_moving_rope_unfrozen_would_be_noticed() -> None:
    """Negative control: left moving, the frequencies of a chunk depend on how far its batch reaches."""
    with pytest.raises(ModelLoadError, match="no tier gives the answers"):
        choose(BY_NAME["llama-rope-longrope"].build())


def test_relative_error_counts_nan_as_infinite() -> None:
    plain = torch.randn(3, 8)
    assert relative_error(plain.clone().fill_(torch.nan), plain) == float("inf")
    assert relative_error(plain, plain) == 0

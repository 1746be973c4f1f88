"""The engine on CPU kernels: who gets them, what stands in the way, and that answers are the reference's."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.architectures.zoo import BY_NAME
from tests.engine.conftest import Make
from tests.loading.folders import sound_folder, word_tokenizer
from yaie_cuda.cpu import build, library
from yaie_engine import LLM, ConfigError, EngineConfig, SamplingParams, loader
from yaie_engine.backends import choose
from yaie_engine.loader import load_model
from yaie_engine.models import packed

pytestmark = pytest.mark.skipif(bool(build.unbuildable_reason()), reason=build.unbuildable_reason())
STORY = "Once upon a time there was a small engine that lived in a notebook."
PROMPTS = [STORY, f"{STORY} It had a friend", "The red lamp", f"{STORY} It was afraid of the dark"]
GREEDY = SamplingParams(temperature=0, max_tokens=24, logprobs=3)


@pytest.fixture
def _nothing_is_built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("YAIE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(library, "library", library.library.__wrapped__)
    monkeypatch.setattr("yaie_cuda.cpu.kernels.library", library.library)


def answers(llm: LLM) -> list[tuple[int, ...]]:
    outputs = llm.generate(PROMPTS, GREEDY, use_tqdm=False)
    assert all(output.error is None for output in outputs)
    llm.check()
    return [tuple(output.outputs[0].token_ids) for output in outputs]


@pytest.mark.parametrize("settings", [{}, {"num_blocks": 14, "max_num_batched_tokens": 24}], ids=["roomy", "tight"])
def test_answers_are_those_of_the_reference(settings: dict[str, Any]) -> None:
    """In float32, where no token of the bundled model is a near tie; cold, then warm."""
    found = []
    for backend in ("cpu", "reference"):
        with LLM("tiny", dtype="float32", attention_backend=backend, block_size=16, **settings) as llm:
            found.append((answers(llm), answers(llm)))
            assert llm.snapshot().model.attention_backend == backend
    assert found[0] == found[1]


def test_what_the_model_says_of_itself() -> None:
    with LLM("tiny", dtype="bfloat16", attention_backend="cpu") as llm:
        reason = llm.snapshot().model.reason
        assert "cpu attention: asked for; every layer equals the reference within" in reason
        assert reason.endswith("fused: rms_norm 13, residual 11, silu 6, rotary 6, rotary_write 6")
        assert llm.chat([{"role": "user", "content": "hi"}], GREEDY)[0].error is None


def test_large_models_get_them_small_ones_do_not(monkeypatch: pytest.MonkeyPatch, make_llm: Make) -> None:
    assert make_llm().snapshot().model.attention_backend == "reference"
    monkeypatch.setattr(choose, "WORTH_KERNELS", 0)
    assert make_llm().snapshot().model.attention_backend == "cpu"
    assert make_llm(attention_backend="reference").snapshot().model.attention_backend == "reference"


@pytest.mark.parametrize(
    ("name", "norms", "dtype"),
    [("gemma3", 19, "float32"), ("gemma2", 13, "bfloat16"), ("qwen3", 13, "bfloat16"), ("olmo2", 13, "float32")],
)
def test_norms_and_gates_of_other_families_are_kernels(tmp_path: Path, name: str, norms: int, dtype: str) -> None:
    """Gemma's weights are distances from one, its gate is GELU; OLMo 2 rounds once; Qwen 3 norms queries and keys."""
    model, found = BY_NAME[name].build(), []
    if name == "olmo2":  # with heads that the kernels take
        model = type(model)(type(model.config)(**{**model.config.to_dict(), "head_dim": 16}))
    model.save_pretrained(tmp_path)
    word_tokenizer().save_pretrained(tmp_path)
    prompt, params = [[5, 9, 30, 7, 11], [8, 8, 40]], SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    for backend in ("cpu", "reference"):
        with LLM(str(tmp_path), attention_backend=backend, dtype=dtype) as llm:
            reason = llm.snapshot().model.reason
            found.append([output.outputs[0].token_ids for output in llm.generate(prompt, params, use_tqdm=False)])
            if backend == "cpu":
                residual = "" if name == "olmo2" else " residual 5,"  # its norms come before the additions
                gate = "gelu_tanh" if "gemma" in name else "silu"
                assert f"fused: rms_norm {norms},{residual} {gate} 3, rotary 3" in reason
                assert name == "olmo2" or "not " not in reason
    assert dtype == "bfloat16" or found[0] == found[1]


def test_memory_of_weights_is_handed_back_once_they_are_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are as much as the model: what an allocator keeps of them would be there beside the packed ones for good."""
    monkeypatch.setattr(choose, "WORTH_KERNELS", 0)
    plain: list[weakref.ref[Any]] = []
    handed_back: list[int] = []

    def pack(model: Any, kernels: Any, share: Any) -> Any:
        plain.extend(weakref.ref(one) for one in model.modules() if type(one) is torch.nn.Linear)
        return packed.pack_linears(model, kernels, share)

    monkeypatch.setattr(loader, "pack_linears", pack)
    monkeypatch.setattr(loader, "give_back", lambda _: handed_back.append(sum(one() is not None for one in plain)))
    loaded = load_model(EngineConfig())
    assert "linear layers packed for this CPU" in loaded.reason and len(plain) == 43 and handed_back == [0]


def test_without_a_compiler_the_reference_serves_and_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, make_llm: Make
) -> None:
    monkeypatch.setattr(choose, "WORTH_KERNELS", 0)
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    build.unbuildable_reason.cache_clear()
    try:
        model = make_llm().snapshot().model
        assert model.attention_backend == "reference" and "apt install g++" in model.reason
        with pytest.raises(ConfigError, match=r"attention_backend='cpu': .*g\+\+"):
            make_llm(attention_backend="cpu")
    finally:
        build.unbuildable_reason.cache_clear()


@pytest.mark.usefixtures("_nothing_is_built")
def test_a_compiler_that_fails_is_no_reason_not_to_serve(monkeypatch: pytest.MonkeyPatch, make_llm: Make) -> None:
    monkeypatch.setattr(choose, "WORTH_KERNELS", 0)
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-fno-such-flag"))
    model = make_llm().snapshot().model
    assert model.attention_backend == "reference" and "the CPU kernels did not compile" in model.reason


@pytest.mark.usefixtures("_nothing_is_built")
def test_a_damaged_library_is_built_anew() -> None:
    path = build.build()
    good = path.read_bytes()
    path.write_bytes(good[: len(good) // 2])
    assert build.build() == path and path.read_bytes()[:4] == b"\x7fELF"
    assert len(list(path.parent.iterdir())) == 1


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"dtype": "float16"}, "take float32 and bfloat16, not float16"),
        ({"device": "cuda:0", "dtype": "float32"}, "this machine has 0 CUDA devices"),
    ],
)
def test_refusals_name_the_value(settings: dict[str, Any], why: str) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ConfigError, match=why):
        load_model(EngineConfig(attention_backend="cpu", **settings))


def test_heads_that_no_kernel_takes_go_to_the_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "WORTH_KERNELS", 0)
    folder = str(sound_folder(tmp_path / "model", "qwen2"))
    assert load_model(EngineConfig(model=folder)).backend.name == "reference"
    with pytest.raises(ConfigError, match="heads of a multiple of 16"):
        load_model(EngineConfig(model=folder, attention_backend="cpu"))

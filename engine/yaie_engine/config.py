"""How an engine is set up: one frozen, validated object, from keywords, YAML, environment or a command line."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from .errors import ConfigError
from .old_names import translate
from .params import Float, Int, SamplingParams
from .validation import Checked

NOT_BUILT: dict[str, object] = {
    "speculative": None,
}


class EngineConfig(Checked):
    """Everything an engine is made from. Names follow vLLM where it has them; those of Mini-YAIE are accepted.

    Raises:
        ConfigError: a name is unknown, a value is out of range, or it asks for a feature that is not built.
    """

    error: ClassVar[type[ConfigError]] = ConfigError

    model: str = Field("tiny", min_length=1, description="bundled model, local folder, Hub id or .gguf file")
    tokenizer: str | None = Field(None, min_length=1, description="folder or Hub id of another tokenizer")
    revision: str | None = Field(None, min_length=1, description="branch, tag or commit of a Hub model")
    chat_template: str | None = Field(None, min_length=1, description="Jinja template, or a file that holds one")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field("auto", description="weights and KV cache")
    device: str = Field("auto", description="auto, cpu, cuda or cuda:N")
    attention_backend: Literal["auto", "reference", "cpu", "emulated", "cuda"] = Field(
        "auto", description="torch, our CPU kernels, or our CUDA kernels: on a GPU, or emulated"
    )
    quantization: Literal["int8"] | None = Field(
        None, description="int8: half the bytes, for few sequences on the CPU kernels"
    )
    block_size: Int = Field(16, ge=1, le=1024, description="tokens per KV block")
    num_blocks: Int | None = Field(None, ge=1, le=2**31 - 1, description="KV blocks (default: from memory)")
    gpu_memory_utilization: Float = Field(0.9, gt=0, le=1, description="share of GPU memory the engine may use")
    cpu_memory_utilization: Float = Field(0.3, gt=0, le=1, description="share of free RAM for KV blocks on CPU")
    num_cpu_blocks: Int = Field(0, ge=0, le=2**31 - 1, description="host blocks (RAM) behind the KV blocks")
    max_model_len: Int | None = Field(None, ge=1, le=2**31 - 1, description="longest prompt plus output, in tokens")
    max_num_seqs: Int = Field(64, ge=1, le=4096, description="most sequences in one step")
    max_num_batched_tokens: Int | None = Field(
        None, ge=1, le=2**20, description="token budget of one step (default 2048, on CPU 512)"
    )
    long_prefill_token_threshold: Int = Field(
        0, ge=0, le=2**20, description="largest prefill chunk of a request (0: none)"
    )
    enable_prefix_caching: bool = Field(True, description="share the KV of equal prefixes between requests")
    enable_chunked_prefill: bool = Field(True, description="spread a long prompt over several steps")
    scheduling_policy: Literal["fcfs", "lpm", "priority", "fair"] = Field(
        "fcfs", description="who is served first; under each of them, who has waited 512 steps is"
    )
    preemption: Literal["recompute", "swap"] = Field("recompute", description="how a preempted request gives up its KV")
    max_waiting: Int = Field(1024, ge=1, le=10**6, description="most requests that may wait")
    request_timeout: Float | None = Field(None, gt=0, le=604_800, description="seconds a request may take")
    seed: Int = Field(0, ge=-(2**63), le=2**64 - 1, description="seed of requests that have none")
    prefix_store: str | None = Field(None, min_length=1, description="folder of the persistent prefix store")
    prefix_store_gib: Float = Field(4.0, gt=0, le=2**20, description="GiB that the prefix store may take on disk")
    state_cache_gib: Float | None = Field(
        None, ge=0, le=2**20, description="GiB of RAM that whole states of recurrent models may take (0: none are kept)"
    )
    enforce_eager: bool = Field(False, description="never capture decode steps (CUDA graphs; on a CPU recorded calls)")
    enable_torch_compile: bool = Field(
        False, description="compile the model by torch.compile at load, in place of our kernels (CPU; takes minutes)"
    )
    speculative: Any = Field(None, description="speculative decoding")
    recorder_steps: Int = Field(4096, ge=1, le=10**6, description="steps the flight recorder keeps")
    sampling_defaults: dict[str, Any] = Field({}, description="SamplingParams of requests that give none")

    def __init__(self, **values: Any) -> None:
        super().__init__(**translate(values))

    @field_validator("device")
    @classmethod
    def _known_device(cls, value: str) -> str:
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", value.lower()):
            raise ValueError("one of auto, cpu, cuda, cuda:0, cuda:1 ... is needed")
        return value.lower()

    @field_validator("sampling_defaults")
    @classmethod
    def _valid_defaults(cls, value: dict[str, Any]) -> dict[str, Any]:
        SamplingParams(**value)
        return value

    @model_validator(mode="after")
    def _built(self) -> EngineConfig:
        for name, default in NOT_BUILT.items():
            if getattr(self, name) != default:
                raise ValueError(f"{name}={getattr(self, name)!r} is not built yet; only {default!r} works")
        return self

    @model_validator(mode="after")
    def _used(self) -> EngineConfig:
        if self.preemption == "swap" and not self.num_cpu_blocks:
            raise ValueError("preemption='swap' needs host blocks to swap to: give num_cpu_blocks")
        if self.num_cpu_blocks and not self.enable_prefix_caching and self.preemption != "swap":
            raise ValueError(
                "num_cpu_blocks: with enable_prefix_caching=False nothing is shared, and only preemption='swap' has a "
                "use for host blocks; leave one of them out"
            )
        return self

    @model_validator(mode="after")
    def _compiles(self) -> EngineConfig:
        others = {
            "enforce_eager": (self.enforce_eager, (False,)),
            "attention_backend": (self.attention_backend, ("auto", "reference")),
            "quantization": (self.quantization, (None,)),
        }
        for name, (value, allowed) in others.items():
            if self.enable_torch_compile and value not in allowed:
                raise ValueError(
                    f"enable_torch_compile and {name}={value!r}: what is compiled takes the place of our kernels; "
                    "leave one of them out"
                )
        return self

    @property
    def default_params(self) -> SamplingParams:
        """What a request without parameters gets."""
        return SamplingParams(**self.sampling_defaults)

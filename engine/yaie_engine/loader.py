"""Load a model: find it, screen it, read it, fix its RoPE, and let the probe choose how it is run."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from .backends.base import AttentionBackend
from .backends.choose import Wish, on_this_cpu, suited, wish_for, worth_it
from .backends.cpu import CpuAttention
from .backends.kernel import KernelAttention
from .config import EngineConfig
from .errors import ConfigError, ModelLoadError
from .fused import DISAGREES, FusedModules, fuse
from .fused_norms import fuse_norms
from .loaded import LoadedModel
from .memory import check_weights_fit, free_memory, give_back
from .models.adopt import structural_clone
from .models.devices import choose_device, choose_dtype
from .models.fingerprint import fingerprint
from .models.gguf import screen_gguf
from .models.hub import Progress
from .models.lengths import choose_max_model_len
from .models.packed import pack_linears
from .models.quantized import quantize_linears
from .models.screen import screen, screen_beside, screen_tokenizer
from .models.source import Source, resolve
from .models.weights import offline_and_quiet, read_config, read_model, read_tokenizer
from .stages import READING_WEIGHTS
from .tiers.compile_check import compile_model
from .tiers.kernel_check import choose_backend
from .tiers.probe import Probe, ProbeResult
from .tiers.rope import freeze_rope

PROBED = 48
"""Tokens on which the cost of quantization is measured."""
QUANTIZING, PACKING = "quantizing weights", "packing weights"
"""Stages of a load that tell how far they are."""

__all__ = ["LoadedModel", "Progress", "load_model"]


def load_model(
    config: EngineConfig, model: Any | None = None, tokenizer: Any | None = None, progress: Progress | None = None
) -> LoadedModel:
    """Make a model ready to serve, on the calling thread. `progress` hears (what, share or None).

    `model` and `tokenizer` are objects from transformers; they are left as they are. Without them `config.model` names
    the model. Nothing outlives an interrupt: what was read is dropped. Whatever can be refused cheaply is refused
    before the stage READING_WEIGHTS, so that a caller may keep an older engine until then.

    Raises:
        ConfigError: device, dtype or length cannot be had.
        ModelLoadError: the model cannot be served; one line says what to do.
    """
    report = progress or _silent
    if model is not None:
        return _adopt(config, model, tokenizer, report)
    return read_source(config, resolve(config, report), tokenizer, report)


def read_source(
    config: EngineConfig, source: Source, tokenizer: Any | None = None, progress: Progress | None = None
) -> LoadedModel:
    """`load_model` from files that were found before."""
    report = progress or _silent
    device = choose_device(config)
    dtype, num_weights = _screened(config, source, device)
    wish = wish_for(config, device, dtype)
    report("reading tokenizer", None)
    hf_tokenizer = tokenizer if tokenizer is not None else _tokenizer(config, source, report)
    model_config = read_config(source.folder, source.gguf_file)
    choose_max_model_len(config, model_config)
    wish = on_this_cpu(wish, config.attention_backend, device, dtype, num_weights * dtype.itemsize)
    wish = suited(wish, model_config, dtype, config.block_size)
    report(READING_WEIGHTS, None)
    check_weights_fit(source.name, num_weights, dtype, device)
    model = read_model(source.folder, dtype, source.gguf_file).to(device)
    return _ready(config, model, hf_tokenizer, source.name, wish, report, source)


def _adopt(config: EngineConfig, model: Any, tokenizer: Any | None, report: Progress) -> LoadedModel:
    if config.quantization is not None:
        raise ConfigError("quantization changes weights, and those of a model object stay as they are: name a folder")
    weight = next(iter(model.parameters()), None)
    if weight is None or not hasattr(model, "config") or not hasattr(model, "get_input_embeddings"):
        raise ModelLoadError(f"{type(model).__name__} is no transformers model with weights")
    if len({parameter.device for parameter in model.parameters()}) > 1:
        raise ModelLoadError("the model object is spread over several devices; move it to one with model.to(device)")
    if config.dtype != "auto" and not str(weight.dtype).endswith(config.dtype):
        raise ModelLoadError(f"the model object is {weight.dtype}; convert it yourself or leave dtype out")
    wish = wish_for(config, weight.device, weight.dtype)
    wish = on_this_cpu(wish, config.attention_backend, weight.device, weight.dtype, _nbytes(model))
    wish = suited(wish, model.config, weight.dtype, config.block_size)
    report("adopting the model object", None)
    name = str(getattr(model.config, "_name_or_path", "") or type(model).__name__)
    return _ready(config, structural_clone(model), tokenizer, name, wish, report)


def _ready(
    config: EngineConfig,
    model: Any,
    hf_tokenizer: Any,
    name: str,
    wish: Wish,
    report: Progress,
    source: Source | None = None,
) -> LoadedModel:
    """`source` is where `model` was read: its weights are ours alone then."""
    weight = next(model.parameters())
    max_model_len = choose_max_model_len(config, model.config)
    frozen = freeze_rope(model, max_model_len)
    quantized = _quantize(model, config, report)
    identity = fingerprint(model)
    report("probing", None)
    with offline_and_quiet():
        probe = Probe(model, weight.dtype, weight.device, max_model_len)
        result = probe.choose()
        reason = result.reason + quantized
        if frozen:
            reason += f"; {' and '.join(frozen)} RoPE fixed for {max_model_len} tokens"
        backend = choose_backend(wish, model, result, config.block_size, max_model_len, report)
        if source is not None and _pack(model, backend, probe, result, bool(quantized), report):
            reason += "; linear layers packed for this CPU"
        elif quantized:
            raise ModelLoadError("quantization='int8': no layer could be packed, or memory for it is missing")
        fused = _fuse(model, backend, probe, result, ours=source is not None, rounds=bool(quantized))
        compiled, not_compiled = compile_model(model, result, report) if config.enable_torch_compile else (None, "")
    return LoadedModel(
        model=model,
        hf_tokenizer=hf_tokenizer,
        name=name,
        fingerprint=identity,
        dtype=weight.dtype,
        device=weight.device,
        tier=result.tier,
        tier_reason=reason,
        shares_prefixes=result.tier != "state",
        chunks_prefill=result.chunks_prefill,
        max_model_len=max_model_len,
        vocab_size=result.vocab_size,
        eos_token_ids=eos_ids(model, hf_tokenizer),
        kv_layout=result.layout,
        backend=backend,
        fused=fused,
        compiled=compiled,
        not_compiled=not_compiled,
        state_bytes=result.state_bytes,
        source=source,
    )


def _quantize(model: Any, config: EngineConfig, report: Progress) -> str:
    """Quantize the weights if that is asked for; what it costs in accuracy, in words."""
    if config.quantization is None:
        return ""
    report(QUANTIZING, None)
    with offline_and_quiet(), torch.inference_mode():
        vocab = int(model.get_input_embeddings().weight.shape[0])  # its first ids are often bytes that nobody trained
        ids = (torch.arange(PROBED) * vocab // PROBED).unsqueeze(0)
        before = model(input_ids=ids, use_cache=False).logits.float()
        count = quantize_linears(model, partial(report, QUANTIZING))
        after = model(input_ids=ids, use_cache=False).logits.float()
    off = float((after - before).square().mean().sqrt() / before.std().clamp_min(1e-9))
    return f"; {count} linear layers as int8, which moves the logits by {off:.1e} of their spread"


def _pack(
    model: Any, backend: AttentionBackend, probe: Probe, result: ProbeResult, quantized: bool, report: Progress
) -> bool:
    """Pack the linear layers of a large model on the CPU, if it still agrees with the plain one."""
    size = _nbytes(model)
    fits = size <= free_memory(probe.device) // 2
    if isinstance(backend, KernelAttention) or not fits or not (quantized or worth_it(probe.device, size)):
        return False
    kernels = backend.kernels if isinstance(backend, CpuAttention) else None
    packing = pack_linears(model, kernels, partial(report, PACKING))
    report("checking packed weights", None)
    if len(packing) and not probe.agrees(result, rounds=quantized):
        packing.undo()
    packed = len(packing) > 0
    packing.keep()
    give_back(probe.device)  # the plain weights leave holes that no later allocation may fit
    return packed


def _fuse(
    model: Any, backend: AttentionBackend, probe: Probe, result: ProbeResult, ours: bool, rounds: bool
) -> FusedModules | None:
    """Swap in fused modules on the kernel backends, if the model with them still agrees with the plain one."""
    if not isinstance(backend, KernelAttention | CpuAttention):
        return _fuse_in_torch(model, probe, result) if ours else None
    fused = fuse(model, backend.kernels, owns_weights=ours)
    if isinstance(backend, CpuAttention):
        fuse_norms(model, fused)
    if not fused.swapped:
        return fused
    for residuals, writes in ((True, True), (False, True), (True, False), (False, False)):
        fused.use(residuals, writes)
        if probe.agrees(result, rounds):
            fused.settle()
            return fused
    _disagree(fused)
    return fused


def _fuse_in_torch(model: Any, probe: Probe, result: ProbeResult) -> FusedModules | None:
    """Norms in fewer ops, where no kernel stands in for them and the model is large."""
    if not worth_it(probe.device, _nbytes(model)):
        return None
    norms = fuse_norms(model)
    if norms.swapped and not probe.agrees(result):
        _disagree(norms)
    return norms


def _nbytes(model: Any) -> int:
    return sum(weight.nbytes for weight in model.parameters())


def _disagree(fused: FusedModules) -> None:
    fused.restore()
    fused.refused = [("", kind, DISAGREES) for kind in fused.swapped]
    fused.swapped.clear()


def _screened(config: EngineConfig, source: Source, device: torch.device) -> tuple[torch.dtype, int]:
    """Screen the source; its dtype and number of weights (0 where unknown). Refuses what the device can never hold."""
    if source.gguf_file is not None:
        path = source.folder / source.gguf_file
        screen_gguf(path)
        screen_beside(source.folder)
        return choose_dtype(config, device, None, False), 0
    found = screen(source.folder)
    dtype = choose_dtype(config, device, found.config.get("dtype") or found.config.get("torch_dtype"), source.bundled)
    check_weights_fit(source.name, found.num_weights, dtype, device, empty=True)
    return dtype, found.num_weights


def _tokenizer(config: EngineConfig, source: Source, report: Progress) -> Any:
    if config.tokenizer is not None:
        other = config.replace(model=config.tokenizer, tokenizer=None, revision=None)
        source = resolve(other, report, weights=False)
    (screen_tokenizer if source.gguf_file is None else screen_beside)(source.folder)
    return read_tokenizer(source.folder, source.gguf_file)


def eos_ids(model: Any, hf_tokenizer: Any) -> tuple[int, ...]:
    """Every id that ends a text, by generation config, model config or tokenizer."""
    found: set[int] = set()
    text_config = model.config.get_text_config()
    generation = getattr(model, "generation_config", None)
    for owner in (generation, model.config, text_config, hf_tokenizer):
        value = getattr(owner, "eos_token_id", None)
        found.update(value if isinstance(value, list | tuple) else [value] if isinstance(value, int) else [])
    return tuple(sorted(found))


def _silent(_what: str, _share: float | None) -> None:
    """Nobody listens."""

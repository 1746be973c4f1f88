"""Tiny randomly initialised models of many architectures: fixed seeds, several widths and initializer ranges."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

VOCAB = 96
POSITIONS = 128
COMMON = {"vocab_size": VOCAB, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
MOE = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
MLA = {
    "q_lora_rank": 16, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8,
    "num_key_value_heads": 4,
}  # fmt: skip
ROUTED = {"n_routed_experts": 4, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1, **MOE}
LINEAR = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "shared_expert_intermediate_size": 16,
}  # fmt: skip
GEMMA4 = {
    "head_dim": 16, "global_head_dim": 16, "sliding_window": 6, "vocab_size_per_layer_input": VOCAB,
    "hidden_size_per_layer_input": 8,
}  # fmt: skip
SLIDING_LAST_FULL = ["sliding_attention", "sliding_attention", "full_attention"]


@dataclass(frozen=True)
class Architecture:
    """One model of the zoo. `settings` go into its configuration; `style` says how that names its sizes."""

    name: str
    model_type: str
    tier: str
    settings: dict[str, Any] = field(default_factory=dict)
    style: str = "llama"
    width: int = 32
    init: float = 0.3
    layers: int = 3
    seed: int = 0

    @property
    def whole_prompts(self) -> bool:
        """Whether chunked prefill is wrong in the architecture itself, so that prompts go in whole."""
        return self.model_type in ("mamba", "falcon_mamba", "jamba")

    def config(self) -> Any:
        """The configuration object of transformers."""
        from transformers import CONFIG_MAPPING

        return CONFIG_MAPPING[self.model_type](**{**COMMON, **self._sizes(), **self.settings})

    def build(self) -> Any:
        """The model in float32 and eval mode; what is constant after initialisation gets random values too."""
        from transformers import AutoModelForCausalLM

        torch.manual_seed(self.seed)
        model = AutoModelForCausalLM.from_config(self.config(), attn_implementation="eager", dtype=torch.float32).eval()
        draw = torch.Generator().manual_seed(self.seed + 1)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if weight.dim() == 1 and weight.numel() > 1 and float(weight.std()) == 0:
                    weight += 0.1 * torch.randn(weight.shape, generator=draw)
                if name.endswith("sinks"):
                    weight.copy_(torch.randn(weight.shape, generator=draw))
        return model

    def _sizes(self) -> dict[str, Any]:
        width, layers, init = self.width, self.layers, self.init
        if self.style == "gpt2":
            return {
                "n_embd": width,
                "n_layer": layers,
                "n_head": 4,
                "n_positions": POSITIONS,
                "initializer_range": init,
            }
        if self.style == "bloom":
            return {"hidden_size": width, "n_layer": layers, "n_head": 4, "initializer_range": init}
        if self.style == "mpt":
            return {
                "d_model": width, "n_heads": 4, "n_layers": layers, "expansion_ratio": 2, "max_seq_len": POSITIONS,
                "initializer_range": init,
            }  # fmt: skip
        if self.style == "xglm":
            return {
                "d_model": width, "ffn_dim": 48, "num_layers": layers, "attention_heads": 4, "init_std": init,
                "max_position_embeddings": POSITIONS,
            }  # fmt: skip
        if self.style == "gpt_neo":
            return {
                "hidden_size": width, "num_layers": layers, "num_heads": 4, "max_position_embeddings": POSITIONS,
                "initializer_range": init,
            }  # fmt: skip
        sizes = {"hidden_size": width, "num_hidden_layers": layers, "initializer_range": init}
        if self.style != "mamba":
            sizes |= {"num_attention_heads": 4, "intermediate_size": 48, "max_position_embeddings": POSITIONS}
        if self.style == "llama":
            sizes["num_key_value_heads"] = 2
        return sizes


def _rope(kind: str, **settings: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **settings}}


A = Architecture
ZOO: tuple[Architecture, ...] = (
    A("llama", "llama", "flat", width=64, init=0.2),
    A("llama-mha", "llama", "flat", {"num_key_value_heads": 4}, init=0.5),
    A("llama-mqa", "llama", "flat", {"num_key_value_heads": 1}, width=48),
    A("llama-rope-llama3", "llama", "flat", _rope("llama3", factor=2.0, original_max_position_embeddings=16,
      low_freq_factor=1.0, high_freq_factor=4.0)),
    A("llama-rope-linear", "llama", "flat", _rope("linear", factor=2.0)),
    A("llama-rope-yarn", "llama", "flat", _rope("yarn", factor=2.0, original_max_position_embeddings=16)),
    A("llama-rope-dynamic", "llama", "flat", {**_rope("dynamic", factor=2.0), "max_position_embeddings": POSITIONS}),
    A("llama-rope-longrope", "llama", "flat", _rope("longrope", factor=4.0, original_max_position_embeddings=8,
      short_factor=[1.0] * 4, long_factor=[4.0, 3.0, 2.0, 1.5])),
    A("qwen2", "qwen2", "flat", width=48, init=0.2),
    A("qwen2-window", "qwen2", "flat", {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}),
    A("qwen3", "qwen3", "flat", {"head_dim": 16}),
    A("mistral-window", "mistral", "flat", {"sliding_window": 6}, init=0.4),
    A("ministral", "ministral", "flat", {"head_dim": 8, "sliding_window": 7}),
    A("gemma", "gemma", "flat", {"head_dim": 16}),
    A("gemma2", "gemma2", "flat", {"head_dim": 16, "sliding_window": 6, "attn_logit_softcapping": 5.0,
      "query_pre_attn_scalar": 24}),
    A("gemma3", "gemma3_text", "flat", {"head_dim": 16, "sliding_window": 6, "query_pre_attn_scalar": 24,
      "layer_types": SLIDING_LAST_FULL}),
    A("gemma4", "gemma4_text", "flat", {**GEMMA4, "layer_types": SLIDING_LAST_FULL, "num_kv_shared_layers": 0}),
    A("gemma4-shared-kv", "gemma4_text", "flat", {**GEMMA4, "layer_types": SLIDING_LAST_FULL * 2,
      "num_kv_shared_layers": 2}, layers=6),
    A("gemma4-wide-global", "gemma4_text", "flat", {**GEMMA4, "global_head_dim": 32, "layer_types": SLIDING_LAST_FULL,
      "num_kv_shared_layers": 0}),
    A("vaultgemma", "vaultgemma", "flat", {"head_dim": 8, "sliding_window": 6}),
    A("gpt2", "gpt2", "flat", style="gpt2", init=0.2),
    A("codegen", "codegen", "flat", {"n_ctx": POSITIONS, "rotary_dim": 4}, style="gpt2"),
    A("gptj", "gptj", "flat", {"rotary_dim": 4}, style="gpt2"),
    A("gpt-bigcode", "gpt_bigcode", "flat", style="gpt2", width=48),
    A("gpt-neox", "gpt_neox", "flat", style="plain"),
    A("opt", "opt", "flat", {"ffn_dim": 48, "word_embed_proj_dim": 32, "init_std": 0.3}, style="plain"),
    A("phi", "phi", "flat", init=0.2),
    A("phi3-window", "phi3", "flat", {"sliding_window": 6}),
    A("granite", "granite", "flat", {"attention_multiplier": 0.2, "logits_scaling": 2.0, "residual_multiplier": 0.7,
      "embedding_multiplier": 2.0}),
    A("granitemoe", "granitemoe", "flat", MOE),
    A("olmo", "olmo", "flat", width=48),
    A("olmo2", "olmo2", "flat"),
    A("olmo3-window", "olmo3", "flat", {"sliding_window": 6}),
    A("olmoe", "olmoe", "flat", MOE),
    A("starcoder2-window", "starcoder2", "flat", {"sliding_window": 6}),
    A("qwen2-moe", "qwen2_moe", "flat", {**MOE, "shared_expert_intermediate_size": 16}),
    A("qwen3-moe", "qwen3_moe", "flat", {**MOE, "head_dim": 16}),
    A("mixtral-window", "mixtral", "flat", {**MOE, "sliding_window": 6}),
    A("gpt-oss", "gpt_oss", "flat", {**MOE, "head_dim": 16, "sliding_window": 6,
      "layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}),
    A("smollm3", "smollm3", "flat", {"no_rope_layers": [1, 1, 0]}),
    A("stablelm", "stablelm", "flat", init=0.2),
    A("nemotron", "nemotron", "flat"),
    A("cohere", "cohere", "flat", init=0.1),
    A("cohere2", "cohere2", "flat", {"sliding_window": 6, "layer_types": SLIDING_LAST_FULL}, init=0.1),
    A("deepseek-v2", "deepseek_v2", "flat", {**MLA, **ROUTED}),
    A("deepseek-v3", "deepseek_v3", "flat", {**MLA, **ROUTED}),
    A("glm", "glm", "flat", {"head_dim": 8}),
    A("glm4", "glm4", "flat", {"head_dim": 8}),
    A("glm4-moe", "glm4_moe", "flat", {**ROUTED, "head_dim": 8}),
    A("exaone4-window", "exaone4", "flat", {"sliding_window": 6}),
    A("ernie4.5", "ernie4_5", "flat", {"head_dim": 8}),
    A("helium", "helium", "flat", {"head_dim": 8}),
    A("arcee", "arcee", "flat"),
    A("seed-oss", "seed_oss", "flat", {"head_dim": 8}),
    A("hunyuan", "hunyuan_v1_dense", "flat", {"head_dim": 8}),
    A("biogpt", "biogpt", "flat", style="plain"),
    A("persimmon", "persimmon", "flat", style="plain"),
    A("apertus", "apertus", "flat"),
    A("bitnet", "bitnet", "flat"),
    A("jetmoe", "jetmoe", "flat", {"num_local_experts": 4, "num_experts_per_tok": 2, "kv_channels": 8}),
    A("phimoe", "phimoe", "flat", {"num_local_experts": 4}),
    A("llama4-chunked", "llama4_text", "paged", {"head_dim": 16, "num_local_experts": 2, "num_experts_per_tok": 1,
      "intermediate_size_mlp": 48, "attention_chunk_size": 8, "no_rope_layers": [1, 1, 0]}),
    A("llama4-short", "llama4_text", "flat", {"head_dim": 16, "num_local_experts": 2, "num_experts_per_tok": 1,
      "intermediate_size_mlp": 48, "attention_chunk_size": POSITIONS, "no_rope_layers": [1, 1, 0]}),
    A("bloom", "bloom", "paged", style="bloom"),
    A("falcon-rope", "falcon", "paged", {"alibi": False, "multi_query": True}, style="plain"),
    A("falcon-alibi", "falcon", "paged", {"alibi": True, "multi_query": False, "new_decoder_architecture": False},
      style="plain"),
    A("mpt", "mpt", "paged", style="mpt"),
    A("gpt-neo", "gpt_neo", "paged", {"attention_types": [[["global", "local"], 1]], "window_size": 6}, style="gpt_neo",
      layers=2),
    A("xglm", "xglm", "paged", style="xglm", layers=2),
    A("doge", "doge", "paged", {"keep_window_size": POSITIONS}),
    A("diffllama", "diffllama", "paged"),
    A("gpt-neox-japanese", "gpt_neox_japanese", "paged", {"intermediate_multiple_size": 2}, style="plain"),
    A("lfm2", "lfm2", "state", {"layer_types": ["conv", "full_attention", "conv"]}),
    A("qwen3-next", "qwen3_next", "state", {**MOE, **LINEAR, "head_dim": 16,
      "layer_types": ["linear_attention", "linear_attention", "full_attention"]}),
    A("qwen3.5", "qwen3_5_text", "state", {**LINEAR, "head_dim": 16,
      "layer_types": ["linear_attention", "linear_attention", "full_attention"]}),
    A("falcon-h1", "falcon_h1", "state", {"mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8,
      "mamba_n_groups": 1, "mamba_chunk_size": 8}),
    A("jamba", "jamba", "state", {"num_experts": 2, "num_experts_per_tok": 1, "attn_layer_period": 2,
      "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1, "mamba_d_state": 8,
      "use_mamba_kernels": False}),
    A("olmo-hybrid", "olmo_hybrid", "state", {**LINEAR, "layer_types": ["linear_attention", "full_attention"] * 2},
      layers=4),
    A("minimax", "minimax", "state", {**MOE, "head_dim": 8, "block_size": 8,
      "layer_types": ["full_attention", "linear_attention", "full_attention"]}),
    A("rwkv", "rwkv", "state", {"attention_hidden_size": 32, "context_length": POSITIONS}, style="mamba"),
    A("mamba", "mamba", "state", style="mamba"),
    A("falcon-mamba", "falcon_mamba", "state", style="mamba"),
)  # fmt: skip
BY_NAME = {architecture.name: architecture for architecture in ZOO}

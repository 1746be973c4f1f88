"""The cases of each kernel: those of the ops that launch it, at the sizes of a small model, one in the other dtype."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from . import attention_cases, choice_cases, small_cases
from .case import Case
from .request import ModelSizes

Builder = Callable[[ModelSizes], Iterator[Case]]
BUILDERS: dict[str, tuple[Builder, ...]] = {
    "apply_penalties": (choice_cases.apply_penalties,),
    "copy_blocks": (small_cases.copy_blocks,),
    "merge_attention_states": (attention_cases.merge, attention_cases.decode),
    "paged_attention_decode": (attention_cases.decode,),
    "paged_attention_prefill": (attention_cases.prefill,),
    "radix_match": (choice_cases.radix_match,),
    "reshape_and_cache": (small_cases.reshape_and_cache,),
    "rms_norm": (small_cases.rms_norm,),
    "rotary_embedding": (small_cases.rotary_embedding,),
    "rotary_reshape_and_cache": (small_cases.rotary_reshape_and_cache,),
    "silu_and_mul": (small_cases.silu_and_mul,),
    "top_k_top_p_sample": (choice_cases.top_k_top_p_sample,),
}
USUAL = ModelSizes()
OTHER = replace(USUAL, dtype="float16", num_kv_heads=4, hidden=512, intermediate=256)


def cases_of(kernel: str, further: Sequence[ModelSizes] = ()) -> list[Case]:
    """All cases at the usual sizes and at `further` ones, and the first of each op in float16; titles are distinct.

    Raises:
        LookupError: the kernel has no cases.
    """
    if kernel not in BUILDERS:
        raise LookupError(f"kernel {kernel!r} has no cases")
    found: dict[str, Case] = {}
    for builder in BUILDERS[kernel]:
        cases = [*builder(USUAL), next(builder(OTHER))]
        for sizes in dict.fromkeys(further):
            if sizes != USUAL:
                cases += [replace(case, title=f"{case.title}, as in the engine") for case in builder(sizes)]
            if kernel in ("rms_norm", "rotary_embedding", "silu_and_mul"):  # loading compares models in float32
                cases.append(next(builder(replace(sizes, dtype="float32"))))
        for case in cases:
            found.setdefault(case.title, case)
    return list(found.values())

"""What the ops mean, in torch. Used on the CPU and wherever no kernel is built."""

from .attention import attend, attend_plainly, attend_ragged, attend_rows, gather
from .cache import copy_blocks, rotary_reshape_and_cache, swap_blocks, write_cache
from .fused import rms_norm, rotary_embedding, rotate, silu_and_mul
from .radix import radix_match
from .sampling import apply_penalties, top_k_top_p_sample

__all__ = [
    "apply_penalties",
    "attend",
    "attend_plainly",
    "attend_ragged",
    "attend_rows",
    "copy_blocks",
    "gather",
    "radix_match",
    "rms_norm",
    "rotary_embedding",
    "rotary_reshape_and_cache",
    "rotate",
    "silu_and_mul",
    "swap_blocks",
    "top_k_top_p_sample",
    "write_cache",
]

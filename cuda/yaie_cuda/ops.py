"""The torch ops of namespace `yaie`: `torch.ops.yaie.<name>` after `import yaie_cuda.ops`.

Signatures are fixed. Every op has the torch reference on CPU, a kernel on CUDA and a fake version for tracing.
"""

from __future__ import annotations

from . import attention, cache, cascade, fused, radix, sampling

FAMILIES = (attention, cache, cascade, fused, radix, sampling)

"""The kernel that matches prompts against a flattened radix tree."""

from __future__ import annotations

from collections.abc import Iterator

from yaie_cuda.kernel import Kernel, Specialisation

RADIX_MATCH = Kernel(
    "radix_match",
    (
        *((name, "p") for name in ("node_tokens", "token_starts", "child_starts", "roots")),
        *((name, "p") for name in ("prompt_tokens", "prompt_starts", "lengths", "nodes")),
        ("prompts", "i"),
        ("unused", "i"),
    ),
)
KERNELS = (RADIX_MATCH,)
MATCH = RADIX_MATCH.specialise(128)
WARPS = MATCH.threads // 32


def ci() -> Iterator[Specialisation]:
    """There is one."""
    yield MATCH


def everything() -> Iterator[Specialisation]:
    """There is one."""
    yield MATCH

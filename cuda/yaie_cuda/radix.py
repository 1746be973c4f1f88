"""A radix tree as flat arrays, and the op that matches a batch of prompts against it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from . import reference
from .checks import check_index
from .kernel import Launcher
from .library import define
from .prepared import Launch, prepared
from .specialisations.radix import MATCH, WARPS

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FlatTree:
    """Nodes numbered breadth first, roots first, children in the order of their first tokens. All int32.

    The run of node n is node_tokens[token_starts[n] up to token_starts[n + 1]]; its children are the nodes
    child_starts[n] up to child_starts[n + 1]. Runs of roots are not looked at, the others are never empty.
    """

    node_tokens: Tensor
    token_starts: Tensor
    child_starts: Tensor

    def to(self, device: torch.device) -> FlatTree:
        """The same arrays on `device`."""
        return FlatTree(self.node_tokens.to(device), self.token_starts.to(device), self.child_starts.to(device))


def flatten(
    roots: Iterable[T], children: Callable[[T], Iterable[T]], tokens: Callable[[T], Sequence[int]]
) -> tuple[FlatTree, list[T]]:
    """The tree below `roots`, and its nodes in the order of their numbers.

    Raises ValueError when a node below the roots has no tokens, or two children begin with the same one.
    """
    order: list[T] = list(roots)
    waiting = deque(order)
    flat: list[int] = []
    token_starts, child_starts = [0], [len(order)]
    num_roots = len(order)
    while waiting:
        node = waiting.popleft()
        run = tokens(node)
        if len(token_starts) > num_roots and not run:
            raise ValueError(f"node {len(token_starts) - 1} has no tokens; only a root may have none")
        flat += run
        token_starts.append(len(flat))
        below = sorted(children(node), key=lambda child: list(tokens(child)[:1]))
        firsts = [tokens(child)[0] for child in below if tokens(child)]
        if len(set(firsts)) < len(below):
            number = len(token_starts) - 2
            raise ValueError(f"children of node {number} are empty or begin with the same token: {firsts}")
        order += below
        waiting += below
        child_starts.append(len(order))
    tree = (torch.tensor(part, dtype=torch.int32) for part in (flat, token_starts, child_starts))
    return FlatTree(*tree), order


@prepared
def radix_match_kernel(
    launcher: Launcher,
    node_tokens: Tensor,
    token_starts: Tensor,
    child_starts: Tensor,
    roots: Tensor,
    prompt_tokens: Tensor,
    prompt_starts: Tensor,
    lengths: Tensor,
    nodes: Tensor,
) -> tuple[Launch, ...]:
    """As `reference.radix_match`, one warp per prompt. Raises ValueError for what no kernel takes."""
    check_index("node_tokens", node_tokens, torch.int32, ("num_tokens",))
    check_index("token_starts", token_starts, torch.int32, ("num_nodes + 1",))
    check_index("child_starts", child_starts, torch.int32, token_starts.shape)
    check_index("roots", roots, torch.int32, ("num_prompts",))
    check_index("prompt_tokens", prompt_tokens, torch.int32, ("num_prompt_tokens",))
    check_index("prompt_starts", prompt_starts, torch.int32, (len(roots) + 1,))
    check_index("lengths", lengths, torch.int32, roots.shape)
    check_index("nodes", nodes, torch.int32, roots.shape)
    if not len(roots):
        return ()
    numbers = {"prompts": len(roots)}
    return (Launch(MATCH, (-(-len(roots) // WARPS), 1, 1), numbers),)


define(
    "radix_match(Tensor node_tokens, Tensor token_starts, Tensor child_starts, Tensor roots, Tensor prompt_tokens, "
    "Tensor prompt_starts, Tensor(a!) lengths, Tensor(b!) nodes) -> ()",
    reference=reference.radix_match,
    kernel=radix_match_kernel,
)

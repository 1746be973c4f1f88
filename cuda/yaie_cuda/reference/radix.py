"""Matching prompts against a flattened radix tree, in plain Python."""

from __future__ import annotations

from bisect import bisect_left

import torch
from torch import Tensor


def radix_match(
    node_tokens: Tensor,
    token_starts: Tensor,
    child_starts: Tensor,
    roots: Tensor,
    prompt_tokens: Tensor,
    prompt_starts: Tensor,
    lengths: Tensor,
    nodes: Tensor,
) -> None:
    """How many leading tokens of each prompt the tree knows, into `lengths`, and where its path ends, into `nodes`.

    All int32. The tree is that of `yaie_cuda.radix.FlatTree`. Prompt i is prompt_tokens[prompt_starts[i] up to
    prompt_starts[i + 1]] and is matched from node roots[i]; -1 knows nothing. Its end is the node whose run holds the
    last known token, or the root.
    """
    tokens, starts, children = node_tokens.tolist(), token_starts.tolist(), child_starts.tolist()
    prompts, edges = prompt_tokens.tolist(), prompt_starts.tolist()
    firsts = [tokens[start] if start < len(tokens) else 0 for start in starts]
    found = []
    for i, root in enumerate(roots.tolist()):
        prompt, known, node = prompts[edges[i] : edges[i + 1]], 0, root
        while node >= 0 and known < len(prompt):
            low, high = children[node], children[node + 1]
            child = bisect_left(firsts, prompt[known], low, high)
            if child == high or firsts[child] != prompt[known]:
                break
            node = child
            run = tokens[starts[child] : starts[child + 1]]
            same = _common(run, prompt, known)
            known += same
            if same < len(run):
                break
        found.append((known, node))
    result = torch.tensor(found, dtype=torch.int32).reshape(-1, 2).to(lengths.device)
    lengths.copy_(result[:, 0])
    nodes.copy_(result[:, 1])


def _common(run: list[int], prompt: list[int], start: int) -> int:
    """Length of the common head of `run` and prompt[start:]."""
    for i, (a, b) in enumerate(zip(run, prompt[start:], strict=False)):
        if a != b:
            return i
    return min(len(run), len(prompt) - start)

"""The radix match, reference and emulated, against the engine's own tree."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch

import yaie_cuda.ops  # noqa: F401 - defines torch.ops.yaie
from tests.property.shadow import ShadowEngine, run
from yaie_cuda import radix
from yaie_cuda.emulator.launcher import EmulatorLauncher, Options
from yaie_engine.radix_tree import Node, RadixTree

pytestmark = pytest.mark.timeout(600)
Run = tuple[int, list["Run"], list[int]]


@pytest.fixture(scope="module")
def launcher() -> EmulatorLauncher:
    return EmulatorLauncher()


def ragged(prompts: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Prompts end to end, and where each starts; int32."""
    starts = [0]
    for prompt in prompts:
        starts.append(starts[-1] + len(prompt))
    flat = [token for prompt in prompts for token in prompt]
    return torch.tensor(flat, dtype=torch.int32), torch.tensor(starts, dtype=torch.int32)


def match(
    tree: radix.FlatTree, prompts: Sequence[Sequence[int]], roots: Sequence[int], launcher: EmulatorLauncher | None
) -> list[tuple[int, int]]:
    """(length, node) of each prompt; by the reference where there is no launcher."""
    arrays = (tree.node_tokens, tree.token_starts, tree.child_starts, torch.tensor(roots, dtype=torch.int32))
    lengths, nodes = (torch.full((len(prompts),), -7, dtype=torch.int32) for _ in range(2))
    if launcher is None:
        torch.ops.yaie.radix_match(*arrays, *ragged(prompts), lengths, nodes)
    else:
        inputs = (*arrays, *ragged(prompts), lengths, nodes)
        launcher.watch(*inputs)
        radix.radix_match_kernel(launcher, *inputs)
    return list(zip(lengths.tolist(), nodes.tolist(), strict=True))


def flat(tree: RadixTree) -> tuple[radix.FlatTree, list[Node]]:
    return radix.flatten(tree.roots.values(), lambda node: node.children.values(), lambda node: node.token_ids)


def grown(seed: int, vocab: int, longest: int) -> tuple[RadixTree, list[list[int]]]:
    """An engine's tree after a few random requests, and prompts that share heads with them."""
    draw = random.Random(seed)
    engine = ShadowEngine(256, 4)
    known: list[list[int]] = [[]]
    for _ in range(12):
        head = draw.choice(known)
        prompt = head[: draw.randint(0, len(head))] + [draw.randrange(vocab) for _ in range(draw.randint(1, longest))]
        run(engine, prompt)
        known.append(prompt)
    prompts = [[], *known[1:]]
    for _ in range(20):
        head = draw.choice(known)
        prompts.append(head[: draw.randint(0, len(head))] + [draw.randrange(vocab) for _ in range(draw.randint(0, 9))])
    return engine.scheduler.tree, prompts


@pytest.mark.parametrize(("seed", "vocab", "longest"), [(0, 2, 6), (1, 3, 12), (2, 50, 40), (3, 1000, 5)])
def test_it_finds_what_the_tree_finds(launcher: EmulatorLauncher, seed: int, vocab: int, longest: int) -> None:
    tree, prompts = grown(seed, vocab, longest)
    arrays, order = flat(tree)
    roots = [0] * len(prompts)
    found = match(arrays, prompts, roots, None)
    assert match(arrays, prompts, roots, launcher) == found
    paths = [[token for part in tree.path(node) for token in part.token_ids] for node in order]
    starts = [node.start for node in order]
    for prompt, (length, node) in zip(prompts, found, strict=True):
        assert tree.match(prompt).end == length, "the tree splits where the match ends"
        assert paths[node][:length] == prompt[:length]
        assert starts[node] < length or (length == 0 and node == 0)
        assert length == len(prompt) or length <= len(paths[node])


def test_namespaces_are_roots(launcher: EmulatorLauncher) -> None:
    nodes: dict[str, Run] = {
        "a": (0, [(1, [], [5, 6]), (2, [], [3])], []),
        "b": (3, [(4, [(5, [], [9])], [5])], []),
    }
    tree, order = radix.flatten(nodes.values(), lambda node: node[1], lambda node: node[2])
    assert [node[0] for node in order] == [0, 3, 2, 1, 4, 5]
    prompts, roots = [[5, 6, 7], [5, 9, 9], [3, 3], [5, 6]], [0, 1, 0, -1]
    wanted = [(2, 3), (2, 5), (1, 2), (0, -1)]
    assert match(tree, prompts, roots, None) == wanted
    assert match(tree, prompts, roots, launcher) == wanted


@pytest.mark.parametrize("width", [1, 31, 32, 33, 1025, 2500])
def test_many_children(launcher: EmulatorLauncher, width: int) -> None:
    """The search among the children takes one, two or three rounds."""
    children: list[Run] = [(i, [], [3 * i, i]) for i in range(width)]
    tree, _ = radix.flatten([(-1, children, [])], lambda node: node[1], lambda node: node[2])
    asked = sorted({0, width // 3, width // 2, width - 1})
    prompts = [[3 * i, i] for i in asked] + [[3 * i + 1] for i in asked] + [[3 * i, i + 1] for i in asked]
    wanted = [(2, i + 1) for i in asked] + [(0, 0)] * len(asked) + [(1, i + 1) for i in asked]
    assert match(tree, prompts, [0] * len(prompts), launcher) == wanted


@pytest.mark.parametrize("length", [1, 31, 32, 33, 127, 128, 129, 300])
def test_long_runs(launcher: EmulatorLauncher, length: int) -> None:
    """A difference at any place of a run, and a prompt that ends in it, before it or behind it."""
    tokens = list(range(100, 100 + length))
    tree, _ = radix.flatten([(0, [(1, [], tokens)], [])], lambda node: node[1], lambda node: node[2])
    places = sorted({0, 1, length // 2, length - 1})
    prompts = [tokens, [*tokens, 7]] + [tokens[:at] for at in places]
    prompts += [[*tokens[:at], 7, *tokens[at + 1 :]] for at in places]
    wanted = [(length, 1)] * 2 + [(at, int(at > 0)) for at in places] * 2
    assert match(tree, prompts, [0] * len(prompts), launcher) == wanted
    assert match(tree, prompts, [0] * len(prompts), None) == wanted


def test_an_empty_tree_and_no_prompts(launcher: EmulatorLauncher) -> None:
    tree, order = radix.flatten([(0, [], [])], lambda node: node[1], lambda node: node[2])
    assert len(order) == 1
    assert match(tree, [[1, 2], []], [0, 0], launcher) == match(tree, [[1, 2], []], [0, 0], None) == [(0, 0)] * 2
    assert match(tree, [], [], launcher) == match(tree, [], [], None) == []


def test_trees_that_are_none() -> None:
    twins: Run = (0, [(1, [], [5]), (2, [], [5, 6])], [])
    with pytest.raises(ValueError, match="children of node 0 are empty or begin with the same token"):
        radix.flatten([twins], lambda node: node[1], lambda node: node[2])
    hollow: Run = (0, [(1, [], [])], [])
    with pytest.raises(ValueError, match="children of node 0 are empty"):
        radix.flatten([hollow], lambda node: node[1], lambda node: node[2])


def test_bad_input(launcher: EmulatorLauncher) -> None:
    tree, _ = radix.flatten([(0, [], [])], lambda node: node[1], lambda node: node[2])
    arrays = (tree.node_tokens, tree.token_starts, tree.child_starts)
    tokens, starts = ragged([[1]])
    one = torch.zeros(1, dtype=torch.int32)
    with pytest.raises(ValueError, match="roots is int64, expected int32"):
        radix.radix_match_kernel(launcher, *arrays, one.long(), tokens, starts, one, one)
    with pytest.raises(ValueError, match=r"prompt_starts has shape \[1\], expected \[2\]"):
        radix.radix_match_kernel(launcher, *arrays, one, tokens, starts[:1], one, one)


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_under_a_sanitizer(sanitizer: str) -> None:
    tree, prompts = grown(4, 3, 40)
    arrays, _ = flat(tree)
    checked = EmulatorLauncher(Options(sanitizer=sanitizer))  # type: ignore[arg-type]
    checked.watch(arrays.node_tokens, arrays.token_starts, arrays.child_starts)
    roots = [0] * len(prompts)
    assert match(arrays, prompts, roots, checked) == match(arrays, prompts, roots, None)

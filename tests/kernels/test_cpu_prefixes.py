"""Decodes that share prefixes on the CPU kernels: who is found to share what, that every token is attended once by each
who sees it, and the result against float64."""

from __future__ import annotations

import random
import subprocess
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.kernels.test_cpu_kernels import BOUND, DTYPES, error, exact, guarded, intact
from yaie_cuda.cpu import build
from yaie_cuda.cpu.kernels import CpuKernels

pytestmark = pytest.mark.skipif(bool(build.unbuildable_reason()), reason=build.unbuildable_reason())
SHORTEST = 64
"""Tokens from which on a prefix is attended together (decode.hpp)."""


@dataclass(frozen=True)
class Step:
    """Decodes by their contexts and tables; `window` 0: none."""

    contexts: list[int]
    tables: list[list[int]]
    size: int
    window: int

    @property
    def width(self) -> int:
        return max(1, *map(len, self.tables))


def draw_step(draw: random.Random, windows: Sequence[int] = (0, 0, 0, 50, 1000)) -> Step:
    """A tree of prompts: each sequence goes on from some place of another one, or begins anew."""
    size, ids = draw.choice([1, 3, 16, 32]), iter(range(1, 1 << 30))
    tables: list[list[int]] = []
    contexts: list[int] = []
    for _ in range(draw.choice([1, 2, 5, 9, 24, 70])):
        base = draw.choice(tables) if tables and draw.random() < 0.85 else []
        kept = base[: draw.choice([len(base), len(base) - 1, draw.randint(0, len(base))])] if base else []
        table = kept + [next(ids) for _ in range(draw.choice([0, 1, 3, 200 // size]))]
        most = len(table) * size
        tables.append(table)
        contexts.append(draw.choice([most, max(0, most - draw.randint(0, 2 * size)), draw.randint(0, most)]))
    return Step(contexts, tables, size, draw.choice(windows))


@pytest.fixture(scope="module")
def parts_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of cpu_parts.cpp."""
    made = tmp_path_factory.mktemp("parts") / "parts"
    source = str(Path(__file__).with_name("cpu_parts.cpp"))
    command = ["g++", *build.FLAGS[:3], "-w", "-O0", f"-I{build.HERE}", source, "-o", str(made)]
    subprocess.run(command, check=True, timeout=120)
    return made


@dataclass(frozen=True)
class Part:
    """Tokens [start, stop) of some sequences for key heads [head, stop_head): part `number` of each."""

    head: int
    stop_head: int
    start: int
    stop: int
    number: int
    seqs: tuple[int, ...]


@dataclass(frozen=True)
class SharedOut:
    """The parts, how many each sequence has, and from how many sequences on a prefix counts."""

    parts: list[Part]
    counts: list[int]
    fewest: int


def shared_out(program: Path, step: Step, kv_heads: int, group: int, threads: int, dtype: str = "float32") -> SharedOut:
    numbers = [len(step.tables), step.width, step.size, step.window, kv_heads, group, threads]
    for context, table in zip(step.contexts, step.tables, strict=True):
        numbers += [context, *table, *[0] * (step.width - len(table))]
    text = " ".join(map(str, [dtype, *numbers]))
    done = subprocess.run([program], input=text, capture_output=True, text=True, check=True, timeout=60)
    (fewest,), *lines, last = ([int(word) for word in line.split()] for line in done.stdout.splitlines())
    parts = [Part(*line[:5], tuple(line[5:])) for line in lines]
    return SharedOut(parts, [stop - start for start, stop in pairwise(last)], fewest)


def most_shared(step: Step, worth: Callable[[int, int], bool], rows: list[int], known: int = 0) -> int:
    """The most (row, token) pairs that can be shared among `rows`, which have their first `known` blocks in common."""
    limits = {row: max(0, step.contexts[row] - 1) // step.size for row in rows}
    depth = known
    while all(limits[row] > depth for row in rows) and len({step.tables[row][depth] for row in rows}) == 1:
        depth += 1
    branches: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        if limits[row] > depth:
            branches[step.tables[row][depth]].append(row)
    deeper = sum(most_shared(step, worth, branch, depth + 1) for branch in branches.values() if len(branch) > 1)
    tokens = depth * step.size
    return max(deeper, (len(rows) - 1) * tokens if worth(len(rows), tokens) else 0)


@pytest.mark.parametrize("seed", range(60))
def test_every_token_is_attended_once_by_each_who_sees_it(parts_program: Path, seed: int) -> None:
    draw = random.Random(seed)
    step, kv_heads = draw_step(draw), draw.choice([1, 2, 4])
    group, threads, dtype = draw.choice([1, 3, 8, 100]), draw.choice([1, 2, 16]), draw.choice(["float32", "bfloat16"])
    out = shared_out(parts_program, step, kv_heads, group, threads, dtype)
    seen: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    numbers: dict[tuple[int, int], list[int]] = defaultdict(list)
    for part in out.parts:
        blocks = slice(part.start // step.size, -(-part.stop // step.size))
        for seq in part.seqs:
            assert len(part.seqs) == 1 or step.tables[seq][blocks] == step.tables[part.seqs[0]][blocks]
            for head in range(part.head, part.stop_head):
                seen[seq, head].append((part.start, part.stop))
                numbers[seq, head].append(part.number)
    for seq, context in enumerate(step.contexts):
        first = max(0, context - step.window) if step.window else 0
        for head in range(kv_heads):
            ranges = sorted(seen[seq, head])
            assert (ranges[0][0], ranges[-1][1]) == (first, context)
            assert all(before[1] == after[0] for before, after in pairwise(ranges))
            assert sorted(numbers[seq, head]) == list(range(out.counts[seq]))


@pytest.mark.parametrize("group", [1, 3, 8])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_as_much_is_shared_as_can_be(parts_program: Path, dtype: str, group: int) -> None:
    """Of prefixes inside of each other those that save most, among those that are worth it."""
    together = 0
    for seed in range(25):
        step = draw_step(random.Random(seed), windows=(0,))
        out = shared_out(parts_program, step, 2, group, 2, dtype)
        assert out.fewest in ([5] if dtype == "float32" else [5, max(2, 5 - group)])
        saved = sum((len(part.seqs) - 1) * (part.stop - part.start) for part in out.parts if part.head == 0)
        tiles = {part.seqs for part in out.parts if len(part.seqs) > 1}

        def worth(count: int, tokens: int, fewest: int = out.fewest) -> bool:
            return count >= fewest and tokens >= SHORTEST

        if all(len(seqs) * group <= 192 // 2 for seqs in tiles):  # else a prefix is read once by each of several tiles
            assert saved == most_shared(step, worth, list(range(len(step.tables)))), f"seed {seed}"
            together += bool(tiles)
    assert together > 5


def test_a_short_prefix_of_all_does_not_hide_a_long_one_of_some(parts_program: Path) -> None:
    template, long = [0, 1, 2], list(range(10, 32))
    tables = [template + long + [100 + row] for row in range(6)] + [[*template, 200 + row] for row in range(60)]
    out = shared_out(parts_program, Step([16 * len(table) for table in tables], tables, 16, 0), 1, 3, 1)
    assert {part.seqs for part in out.parts if len(part.seqs) > 1} == {tuple(range(6))}


def test_rows_whose_window_has_moved_on_share_nothing(parts_program: Path) -> None:
    tables = [[*range(20), 30 + row] for row in range(8)]
    contexts = [330] * 8
    for window, shares in ((0, True), (330, True), (329, False)):
        out = shared_out(parts_program, Step(contexts, tables, 16, window), 1, 1, 1)
        assert any(len(part.seqs) > 1 for part in out.parts) == shares


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", DTYPES)
def test_against_float64(dtype: torch.dtype, threads: int) -> None:
    """Windows, softcap and sinks too; whatever no row may see is NaN."""
    kernels, before = CpuKernels(), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for seed in range(25):
            case = attention_case(random.Random(seed), dtype)
            out, memory = guarded(*case["query"].shape[:2], case["value_cache"].shape[3], dtype=dtype)
            kernels.attend_rows(**case, out=out, work=int(case["context_lens"].sum()))
            assert error(out, exact(case)) < BOUND[dtype], f"seed {seed}"
            assert intact(memory), f"seed {seed}"
    finally:
        torch.set_num_threads(before)


def attention_case(draw: random.Random, dtype: torch.dtype) -> dict[str, Any]:
    """Arguments of `attend_rows` for a drawn step."""
    torch.manual_seed(draw.randint(0, 1 << 30))
    step, kv_heads, group = draw_step(draw), draw.choice([1, 2, 4]), draw.choice([1, 2, 3, 8])
    dim, value_dim, heads, rows = (
        draw.choice([16, 64, 80]),
        draw.choice([48, 64, 128]),
        kv_heads * group,
        len(step.tables),
    )
    blocks = 1 + max((block for table in step.tables for block in table), default=0)
    tables = torch.zeros(rows, step.width, dtype=torch.int32)
    seen = torch.zeros(blocks, step.size, dtype=torch.bool)
    for row, (context, table) in enumerate(zip(step.contexts, step.tables, strict=True)):
        tables[row, : len(table)] = torch.tensor(table, dtype=torch.int32)
        for position in range(max(0, context - step.window) if step.window else 0, context):
            seen[table[position // step.size], position % step.size] = True
    keys, values = (torch.randn(blocks, kv_heads, step.size, size) for size in (dim, value_dim))
    unseen = ~seen[:, None, :, None]
    return {
        "query": torch.randn(rows, heads, dim).to(dtype),
        "key_cache": keys.masked_fill(unseen, torch.nan).to(dtype),
        "value_cache": values.masked_fill(unseen, torch.nan).to(dtype),
        "block_tables": tables,
        "context_lens": torch.tensor(step.contexts, dtype=torch.int32),
        "scale": draw.choice([0.125, 1.0]),
        "sliding_window": step.window,
        "softcap": draw.choice([0.0, 0.0, 4.0]),
        "sinks": draw.choice([None, torch.randn(heads), torch.randn(heads).to(dtype)]),
    }

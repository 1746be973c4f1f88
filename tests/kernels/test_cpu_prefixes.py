"""Decodes that share prefixes on the CPU kernels: who is found to share what, that every token is attended once by each
who sees it, and the result against float64."""

from __future__ import annotations

import random
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.kernels.test_cpu_kernels import BOUND, DTYPES, error, exact, guarded, intact
from yaie_cuda.cpu import build
from yaie_cuda.cpu.kernels import CpuKernels
from yaie_engine.sharing import share

pytestmark = pytest.mark.skipif(bool(build.unbuildable_reason()), reason=build.unbuildable_reason())
FEWEST, SHORTEST = 5, 64
"""Sequences from which on a prefix of float is attended together, and its tokens (decode.hpp)."""


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


def shared_out(program: Path, step: Step, kv_heads: int, group: int, threads: int) -> tuple[list[Part], list[int]]:
    """The parts, and how many each sequence has."""
    numbers = [len(step.tables), step.width, step.size, step.window, kv_heads, group, threads]
    for context, table in zip(step.contexts, step.tables, strict=True):
        numbers += [context, *table, *[0] * (step.width - len(table))]
    text = " ".join(map(str, numbers))
    done = subprocess.run([program], input=text, capture_output=True, text=True, check=True, timeout=60)
    *lines, last = ([int(word) for word in line.split()] for line in done.stdout.splitlines())
    return [Part(*line[:5], tuple(line[5:])) for line in lines], [stop - start for start, stop in pairwise(last)]


@pytest.mark.parametrize("seed", range(60))
def test_every_token_is_attended_once_by_each_who_sees_it(parts_program: Path, seed: int) -> None:
    draw = random.Random(seed)
    step, kv_heads = draw_step(draw), draw.choice([1, 2, 4])
    parts, counts = shared_out(parts_program, step, kv_heads, draw.choice([1, 3, 8]), draw.choice([1, 2, 16]))
    seen: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    numbers: dict[tuple[int, int], list[int]] = defaultdict(list)
    for part in parts:
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
            assert sorted(numbers[seq, head]) == list(range(counts[seq]))


def test_prefixes_are_those_that_the_tables_share(parts_program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The groups are those of `sharing.share`, as far as they are worth it."""
    monkeypatch.setattr("yaie_engine.sharing.MOST_LEVELS", 1000)
    together = 0
    for seed in range(40):
        step = draw_step(random.Random(seed), windows=(0,))
        found = dict.fromkeys(range(len(step.tables)), 0)
        for part in shared_out(parts_program, step, 2, 3, 2)[0]:
            found |= {seq: max(found[seq], part.stop) for seq in part.seqs if len(part.seqs) > 1}
        expected = dict.fromkeys(found, 0)
        if sharing := share(step.tables, step.contexts, step.size):
            for start, (count, tokens) in zip(sharing.starts, sharing.groups, strict=False):
                if count >= FEWEST and tokens >= SHORTEST:
                    expected |= dict.fromkeys(sharing.order[start : start + count], tokens)
        assert found == expected, f"seed {seed}"
        together += any(found.values())
    assert together > 10


def test_rows_whose_window_has_moved_on_share_nothing(parts_program: Path) -> None:
    tables = [[*range(20), 30 + row] for row in range(8)]
    contexts = [330] * 8
    for window, shares in ((0, True), (330, True), (329, False)):
        parts, _ = shared_out(parts_program, Step(contexts, tables, 16, window), 1, 1, 1)
        assert any(len(part.seqs) > 1 for part in parts) == shares


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

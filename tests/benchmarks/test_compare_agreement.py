"""Equal tokens, near ties and differences; whether a build of llama.cpp is one for this CPU."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks.comparison.agreement import NEAR_TIE, compare, first_difference, gap, told
from benchmarks.comparison.native import cpu_flags, system_info, verdict
from yaie_magic.bench.trial import UNSEEN, Served, Trial
from yaie_magic.bench.workloads import Ask, Workload


def trial(*answers: tuple[int, ...]) -> Trial:
    return Trial(1.0, tuple(Served(0.1, 0.2, answer) for answer in answers))


def test_where_answers_part() -> None:
    assert first_difference((1, 2, 3), (1, 2, 4)) == 2
    assert first_difference((1, 2), (1, 2, 9)) is None and first_difference((), ()) is None
    assert first_difference((1, 2, 3), (1, UNSEEN, 4)) is None  # nobody knows what came before the 4


def test_each_first_difference_goes_to_the_judge_with_what_came_before() -> None:
    workload = Workload("W2", "", tuple(Ask((7, i), 3) for i in range(4)), True)
    asked: list[dict[str, Any]] = []

    def judge(cases: list[dict[str, Any]]) -> list[float]:
        asked.extend(cases)
        return [NEAR_TIE / 2, 0.3]

    ours = trial((1, 2, 3), (1, 2, 3), (1, 2, 3), (1, 1, 1))
    theirs = trial((1, 2, 3), (1, 5, 9), (4, 2, 3), (1, 1, 1))
    found = compare("generate", workload, ours, theirs, judge)
    assert (found.equal, found.tied, found.different, found.widest, found.distinct) == (2, 1, 1, 0.3, 3)
    assert asked == [{"ids": [7, 1, 1], "tokens": [2, 5]}, {"ids": [7, 2], "tokens": [1, 4]}]


def test_nobody_is_asked_when_all_is_equal() -> None:
    def judge(cases: list[dict[str, Any]]) -> list[float]:
        raise AssertionError(cases)

    workload = Workload("W1", "", (Ask((1,), 1),), False)
    found = compare("generate", workload, trial((5,)), trial((5,)), judge)
    assert told({"problem": found.problem, "equal": 1, "tied": 0, "different": 0}) == "1 of 1 equal"


def test_the_gap_is_from_the_best_logit_to_the_worse_of_the_two() -> None:
    def model(ids: torch.Tensor, logits_to_keep: int) -> Any:
        assert ids.tolist() == [[4, 5]] and logits_to_keep == 1
        return SimpleNamespace(logits=torch.tensor([[[0.0, 2.0, 1.5, 3.0]]]))

    assert gap(model, [4, 5], [1, 2]) == 1.5
    assert gap(model, [4, 5], [3, 1]) == 1.0


INFO = "system_info: n_threads = 2 | CPU : SSE3 = 1 | AVX2 = 1 | AVX512 = 1 | AVX512_BF16 = 1 | LLAMAFILE = 1 | "


@pytest.mark.parametrize(
    ("info", "flags", "said"),
    [
        (INFO, {"avx2", "avx512f", "avx512_bf16", "fpu"}, "yes"),
        (INFO, {"avx2", "avx512f", "avx512_vnni", "amx_int8"}, "no: it lacks AMX_INT8, AVX512_VNNI"),
        (INFO.replace("AVX512 = 1", "AVX512 = 0"), {"avx512f"}, "no: it lacks AVX512"),
        ("", {"avx2"}, "no: it does not say what it was built for"),
    ],
)
def test_a_build_is_native_when_it_uses_what_the_cpu_has(info: str, flags: set[str], said: str) -> None:
    assert verdict(system_info(f"noise\n{info}\nmore" if info else ""), frozenset(flags)) == said


def test_flags_of_the_cpu(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor : 0\nflags\t\t: fpu avx2\n\nprocessor : 1\nflags\t\t: fpu avx2\n")
    assert cpu_flags(tmp_path / "cpuinfo") == {"fpu", "avx2"}
    assert cpu_flags(tmp_path / "none") == frozenset()

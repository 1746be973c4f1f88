"""The tables of what a call costs the host, and a step while the device waits."""

from __future__ import annotations

import pytest

from benchmarks.gpu import host_cost, step_cost


def test_there_is_a_line_with_three_figures_for_every_op(capsys: pytest.CaptureFixture[str]) -> None:
    assert host_cost.main(calls=1, samples=1) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split()[-3:] == ["kernel", "torch", "first"]
    found = {line.split()[0]: [float(figure) for figure in line.split()[1:]] for line in lines}
    assert {"paged_attention_decode", "cascade_attention_decode", "rms_norm", "top_k_top_p_sample"} <= found.keys()
    assert all(len(figures) == 3 for figures in found.values())


def test_a_step_costs_something_in_turn_and_overlapped(capsys: pytest.CaptureFixture[str]) -> None:
    assert step_cost.main(sequences=(1, 3), tokens=8, prompt_tokens=20, device_ms=1.0, rounds=1) == 0
    *_, one, three = capsys.readouterr().out.splitlines()
    for line, count in ((one, "1"), (three, "3")):
        found, *figures = line.split()
        waits, whole, waits_overlapped, whole_overlapped = map(float, figures)
        assert found == count and 0 < waits <= whole and 0 < waits_overlapped <= whole_overlapped

"""The table of what a call costs the host."""

from __future__ import annotations

import pytest

from benchmarks.gpu import host_cost


def test_there_is_a_line_with_three_figures_for_every_op(capsys: pytest.CaptureFixture[str]) -> None:
    assert host_cost.main(calls=1, samples=1) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split()[-3:] == ["kernel", "torch", "first"]
    found = {line.split()[0]: [float(figure) for figure in line.split()[1:]] for line in lines}
    assert {"paged_attention_decode", "cascade_attention_decode", "rms_norm", "top_k_top_p_sample"} <= found.keys()
    assert all(len(figures) == 3 for figures in found.values())

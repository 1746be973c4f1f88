"""The comparison of a shown generation with a quiet one."""

from __future__ import annotations

import re

import pytest

from benchmarks import display


def test_each_pair_is_a_line_and_the_median_has_a_spread(capsys: pytest.CaptureFixture[str]) -> None:
    assert display.main(pairs=2, tokens=24) == 0
    header, *pairs, slower, busier = capsys.readouterr().out.splitlines()
    assert header.split() == ["pair", "quiet", "tok/s", "shown", "tok/s", "slower", "busier", "messages"]
    assert [line.split()[0] for line in pairs] == ["1", "2"]
    for line in pairs:
        _, quiet, shown, share, _, messages = line.split()
        assert float(quiet) > 0 and float(shown) > 0 and int(messages) > 0
        assert float(share.rstrip("%")) == pytest.approx((float(quiet) / float(shown) - 1) * 100, abs=0.5)
    for name, line in (("slower", slower), ("busier", busier)):
        assert re.fullmatch(name + r": median -?[\d.]+ %, from -?[\d.]+ to -?[\d.]+ %", line)

"""The comparison of a shown generation with a quiet one."""

from __future__ import annotations

import re

import pytest

from benchmarks import display


def test_each_pair_is_a_line_and_the_median_has_a_spread(capsys: pytest.CaptureFixture[str]) -> None:
    found = display.main(pairs=2, tokens=24)
    assert list(found) == ["slower", "busier", "kept"] and all(len(shares) == 2 for shares in found.values())
    header, *pairs, slower, busier, kept = capsys.readouterr().out.splitlines()
    assert header.split() == ["pair", "quiet", "tok/s", "shown", "tok/s", "slower", "busier", "kept", "messages"]
    assert [line.split()[0] for line in pairs] == ["1", "2"]
    for line in pairs:
        _, quiet, shown, share, _, stood, messages = line.split()
        assert float(quiet) > 0 and float(shown) > 0 and int(messages) > 0
        assert float(share.rstrip("%")) == pytest.approx((float(quiet) / float(shown) - 1) * 100, abs=0.5)
        assert -100 < float(stood.rstrip("%")) < 100
    for name, line in (("slower", slower), ("busier", busier), ("kept", kept)):
        assert re.fullmatch(name + r": median -?[\d.]+ %, from -?[\d.]+ to -?[\d.]+ %", line)


def test_the_share_an_engine_is_kept_waiting_is_what_its_thread_did_not_run() -> None:
    took = display.Took(total=2.0, processor=2.1, engine=1.5) + display.Took(total=2.0, processor=2.0, engine=1.5)
    assert took == display.Took(4.0, 4.1, 3.0)
    assert took.kept == 0.25

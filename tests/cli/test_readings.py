"""Metrics read for people: what Prometheus' text says, and percentiles as Prometheus computes them."""

from __future__ import annotations

import pytest

from yaie_engine.errors import YaieError
from yaie_magic.readings import number, read_metrics, table

TEXT = """# HELP vllm:num_requests_running Running.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="m"} 3.0
# HELP vllm:request_success Done.
# TYPE vllm:request_success counter
vllm:request_success_total{finished_reason="stop"} 1234.0
vllm:request_success_created{finished_reason="stop"} 1.7e9
# HELP vllm:time_to_first_token_seconds First.
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{le="0.1"} 5.0
vllm:time_to_first_token_seconds_bucket{le="0.2"} 9.0
vllm:time_to_first_token_seconds_bucket{le="+Inf"} 10.0
vllm:time_to_first_token_seconds_count 10.0
vllm:time_to_first_token_seconds_sum 2.0
# HELP python_info Not an engine's.
# TYPE python_info gauge
python_info 1.0
"""


def test_figures_of_an_engine_and_nothing_else() -> None:
    found = read_metrics(TEXT)
    assert [reading.label for reading in found] == [
        "vllm:num_requests_running{model_name=m}",
        "vllm:request_success_total{finished_reason=stop}",
        "vllm:time_to_first_token_seconds",
    ]
    assert found[0].to_dict() == 3.0
    lines = table(found).splitlines()
    assert lines[1].split() == ["vllm:request_success_total{finished_reason=stop}", "1,234"]
    assert lines[2].endswith("10 observed · mean 0.2 · p50 0.1 · p90 0.2 · p99 0.2")


@pytest.mark.parametrize(("share", "expected"), [(0.25, 0.05), (0.5, 0.1), (0.7, 0.15), (0.9, 0.2), (0.95, 0.2)])
def test_percentiles_are_those_of_histogram_quantile(share: float, expected: float) -> None:
    assert read_metrics(TEXT)[2].quantile(share) == pytest.approx(expected)


def test_a_histogram_without_observations_says_so() -> None:
    empty = TEXT.replace("10.0", "0.0").replace("5.0", "0.0").replace("9.0", "0.0")
    (reading,) = (each for each in read_metrics(empty) if each.distribution)
    assert reading.to_dict() == {"count": 0.0, "mean": None, "p50": None, "p90": None, "p99": None}
    assert table([reading]).endswith("nothing observed")


@pytest.mark.parametrize("text", ["<html>no</html>", "yaie:x{a=", "yaie:x one", "yaie:x 1\n" * 20_001])
def test_what_is_no_such_text_is_one_error(text: str) -> None:
    with pytest.raises(YaieError, match="metrics: "):
        read_metrics(text)


def test_numbers() -> None:
    assert [number(x) for x in (0.0, 12345.0, 0.012345, float("inf"), float("nan"))] == [
        "0",
        "12,345",
        "0.0123",
        "inf",
        "nan",
    ]

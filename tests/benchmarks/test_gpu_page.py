"""docs/performance.md says what was measured, or that nothing was."""

from __future__ import annotations

from benchmarks.gpu import page
from benchmarks.gpu.records import Check, Fact, Measurement, Skip
from benchmarks.gpu.report import Report
from benchmarks.gpu.runner import PartResult
from benchmarks.gpu.targets import TARGETS
from tests.benchmarks.test_gpu_run import part


def test_without_a_run_every_target_is_unmeasured() -> None:
    text = page.render(None)
    assert "every GPU figure of this project is unmeasured" in text
    assert text.count("unmeasured |") == len(TARGETS)


def test_a_run_becomes_tables_with_date_gpu_and_versions() -> None:
    report = Report("2026-12-01T10:00:00+00:00", judged=True, seconds=421.4)
    versions = {"torch": "2.11.0+cu130", "pydantic": None}
    report.update(
        PartResult(
            part("a"),
            "failed",
            1.0,
            [
                Fact("gpu", "NVIDIA H200"),
                Fact("commit", "0123456789abcdef"),
                Fact("versions", versions),
                Fact("nvidia-smi", {"driver_version": "580.1"}),
                Check("good", True),
                Check("bad", False, "why"),
                Skip("tool", "not there"),
                Measurement("decode, 32 x 4096", 147.2, "us", 146.0, 149.0, 9, "3.65 TB/s", "decode", 84.9),
            ],
        )
    )
    text = page.render(report.to_dict())
    assert "Measured on 2026-12-01 on one NVIDIA H200 at commit 0123456789ab, in 421 s." in text
    assert "Driver 580.1; torch 2.11.0+cu130." in text
    assert "| at least 85 % | 84.9 % | **missed** |" in text and "| at least 300 TFLOP/s | unmeasured |  |" in text
    assert "| decode, 32 x 4096 | 147.2 us | 146 to 149 | 3.65 TB/s |" in text
    assert (
        "Checks: 1 of 2 are right." in text and "- failed: bad: why" in text and "- not tried: tool: not there" in text
    )

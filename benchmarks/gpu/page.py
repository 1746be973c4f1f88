"""The GPU part of docs/performance.md, from the JSON of a run; without one the page says that nothing was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from . import fusing
from .targets import TARGETS

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "gpu_check.json"
BEGIN, END = "<!-- gpu: begin (written by scripts/performance) -->", "<!-- gpu: end -->"
UNMEASURED = """**No GPU has run this yet: every GPU figure of this project is unmeasured.** The kernels are compiled
for six architectures and checked in an emulator on the CPU; that says whether they are right, not how fast they are.
These are the targets, for one NVIDIA H200:
"""


def render(run: Mapping[str, Any] | None) -> str:
    """The part between the markers. `run` is a report as JSON, or None."""
    if run is None:
        rows = [f"| {target.words} | {target.goal_words} | unmeasured |" for target in TARGETS]
        return "\n".join([UNMEASURED, "| target | goal | reached |", "|---|---|---|", *rows])
    return "\n".join([heading(run), "", *targets(run), "", *measurements(run), "", *engines(run), "", *checks(run)])


def heading(run: Mapping[str, Any]) -> str:
    """When, where, with what."""
    facts = run["facts"]
    versions = facts.get("versions", {})
    driver = facts.get("nvidia-smi", {}).get("driver_version", "unknown")
    named = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    commit = f" at commit {facts['commit'][:12]}" if facts.get("commit") else ""
    date, seconds = run["started"][:10], run["seconds"]
    return f"Measured on {date} on one {facts.get('gpu')}{commit}, in {seconds:.0f} s. Driver {driver}; {named}."


def targets(run: Mapping[str, Any]) -> list[str]:
    """Met or missed, with the worst figure that counts."""
    lines = ["| target | goal | reached | |", "|---|---|---|---|"]
    for one in run["targets"]:
        sign = "at most" if one["most"] else "at least"
        reached = "unmeasured" if one["reached"] is None else f"{one['reached']:.4g} {one['unit']}"
        verdict = {None: "", True: "met", False: "**missed**"}[one["met"]]
        lines.append(f"| {one['words']} | {sign} {one['goal']:g} {one['unit']} | {reached} | {verdict} |")
    return lines


def measurements(run: Mapping[str, Any]) -> list[str]:
    """Every median with its range."""
    lines = ["| measured | median | range | |", "|---|---|---|---|"]
    for one in run["measurements"]:
        spread = f"{one['low']:.4g} to {one['high']:.4g}" if one["count"] > 1 else ""
        lines.append(f"| {one['name']} | {one['value']:.4g} {one['unit']} | {spread} | {one['note']} |")
    return lines


def engines(run: Mapping[str, Any]) -> list[str]:
    """How each engine ran."""
    return [f"- {line}" for line in fusing.lines(run["facts"])]


def checks(run: Mapping[str, Any]) -> list[str]:
    """How many were right; each one that was not."""
    wrong = [one for one in run["checks"] if not one["ok"]]
    lines = [f"Checks: {len(run['checks']) - len(wrong)} of {len(run['checks'])} are right."]
    lines += [f"- failed: {one['name']}: {one['detail']}" for one in wrong]
    return lines + [f"- not tried: {one['name']}: {one['reason']}" for one in run["skipped"]]


def misses(run: Mapping[str, Any]) -> Iterator[str]:
    """Targets that are not met, or not measured."""
    for one in run["targets"]:
        if not one["met"]:
            sign = "at most" if one["most"] else "at least"
            reached = "unmeasured" if one["reached"] is None else f"{one['reached']:.4g}"
            yield f"{one['words']}: {reached}, {sign} {one['goal']:g} {one['unit']}"


def refusal(run: Mapping[str, Any]) -> str:
    """Why a run must not stand on the page; "" when it may."""
    return "" if run["on_gpu"] else "it is no run on a GPU"


def joined(_: Mapping[str, Any] | None, run: Mapping[str, Any]) -> dict[str, Any]:
    """Nothing of an older run is kept."""
    return dict(run)


def take_over(run: Mapping[str, Any]) -> None:
    """Nothing but the figures belongs to a run."""

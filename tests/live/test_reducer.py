"""The pages' reducer against the engine's own: the same frames over real runs, in any order, whole and in pieces."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.live.conftest import Recordings
from tests.live.played import played
from yaie_widgets.live.recording import frame_json

HERE = Path(__file__).parent


def reduce(case: dict[str, Any]) -> list[Any]:
    """What node makes of a recording, the deltas after it, and the steps asked for."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node on PATH (Debian: apt-get install nodejs)")
    program = [node, str(HERE / "js" / "reduce.mjs")]
    done = subprocess.run(program, input=json.dumps(case), capture_output=True, text=True, timeout=120, check=True)
    return list(json.loads(done.stdout))


def frames_of(name: str) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """The recording of a run, and the engine's own frame after each of its steps."""
    run = played(name)
    return run.recording, {frame.step: frame_json(frame) for frame in run.tape.frames()}


def same(found: list[Any], wanted: list[dict[str, Any]]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one == other, f"step {other['step']}"


@pytest.mark.parametrize("name", ["empty", "small", "busy"])
def test_every_frame_forwards_backwards_and_across(name: str) -> None:
    recording, frames = frames_of(name)
    forwards = list(frames)
    across = [forwards[(place * 37) % len(forwards)] for place in range(len(forwards))]
    asked = [*forwards, *forwards[::-1], *across]
    same(reduce({"recording": recording, "deltas": [], "asked": asked}), [frames[step] for step in asked])
    assert name == "empty" or any(step.get("evicted") for step in recording["steps"]) == (name == "busy")


def test_a_long_run_at_some_of_its_steps() -> None:
    recording, frames = frames_of("full")
    asked = [*list(frames)[::53], *list(frames)[-1::-71]]
    same(reduce({"recording": recording, "deltas": [], "asked": asked}), [frames[step] for step in asked])


def test_deltas_lead_to_the_same_frames_as_the_whole(recording: Recordings) -> None:
    whole = recording("busy")
    steps, half = whole["steps"], len(whole["steps"]) // 2
    start = {**whole, "steps": steps[:half]}
    # Neighbours overlap by a step: a page may hear of one twice.
    deltas = [
        {"steps": steps[i - 1 : i + 5], "requests": {}, "vocab": {}, "engine": {}} for i in range(half, len(steps), 5)
    ]
    asked = [step["step"] for step in steps]
    same(
        reduce({"recording": start, "deltas": deltas, "asked": asked}),
        reduce({"recording": whole, "deltas": [], "asked": asked}),
    )


def test_the_base_stands_for_the_steps_before_it(recording: Recordings) -> None:
    whole = recording("busy")
    steps = whole["steps"]
    asked = [step["step"] for step in steps[60:]]
    base = reduce({"recording": whole, "deltas": [], "asked": [steps[59]["step"]]})[0]
    late = {**whole, "base": base, "steps": steps[60:]}
    same(
        reduce({"recording": late, "deltas": [], "asked": asked}),
        reduce({"recording": whole, "deltas": [], "asked": asked}),
    )


def test_states_of_blocks_add_up_to_the_pool(recording: Recordings) -> None:
    whole = recording("busy")
    asked = [step["step"] for step in whole["steps"]]
    frames = reduce({"recording": whole, "deltas": [], "asked": asked})
    counts = reduce({"recording": whole, "deltas": [], "asked": asked, "blocks": True})
    for frame, count in zip(frames, counts, strict=True):
        tables = [set(blocks) for _, blocks, _ in frame["tables"]]
        held = set().union(*tables)
        owned = set().union(*(set(node[5]) for node in frame["nodes"]))
        shared = {block for block in held if sum(block in table for table in tables) > 1}
        total = whole["engine"]["num_blocks"]
        assert count == [total - len(held | owned), len(owned - held), len(held - shared), len(shared)]

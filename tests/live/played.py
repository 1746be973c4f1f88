"""Runs with all that Python knows of them beside the recording, and what node makes of the recording."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.live.runs import RUNS
from yaie_engine.increment import RequestFacts, facts_of
from yaie_engine.record import RequestRecord
from yaie_engine.snapshot import EngineSnapshot
from yaie_engine.tape import Frame, Tape
from yaie_widgets.live.recording import FORMAT, VERSION, facts_json, frame_json, step_json
from yaie_widgets.live.source import source_of

CLI = Path(__file__).parent / "js" / "figures_cli.mjs"
Json = dict[str, Any]


@dataclass(frozen=True)
class Played:
    """One run: what the engine says of it, and its recording."""

    snapshot: EngineSnapshot
    tape: Tape
    history: Sequence[RequestRecord]
    budget: int
    recording: Json

    def frames(self, every: int = 1) -> list[Frame]:
        """The engine's own frame after each of its steps, or after some of them."""
        return [frame.copy() for place, frame in enumerate(self.tape.frames()) if place % every == 0]

    @property
    def numbers(self) -> list[int]:
        """The numbers of the steps."""
        return [step["step"] for step in self.recording["steps"]]


@functools.cache
def played(name: str) -> Played:
    """A run of `RUNS`, once for all tests."""
    with RUNS[name]() as llm:
        source = source_of(llm)
        # The recording last: it holds what ended meanwhile.
        return Played(llm.snapshot(), llm.tape(), llm.history(), llm.max_num_batched_tokens, source.recording())


def written(snapshot: EngineSnapshot, tape: Tape, history: Sequence[RequestRecord]) -> Played:
    """A run that was written down by hand."""
    facts = [each for record in history for each in facts_of(record)] + [_live(view) for view in snapshot.requests]
    changes = {change.step: change for change in tape.steps}
    recording = {
        "format": FORMAT,
        "version": VERSION,
        "run": "f" * 32,
        "engine": {"name": "tiny", "state": "ready", "num_blocks": snapshot.blocks.total, "max_num_batched_tokens": 64},
        "base": frame_json(tape.base),
        "steps": [step_json(record, changes[record.step]) for record in snapshot.steps],
        "requests": {each.label: facts_json(each, "") for each in facts},
        "vocab": {},
    }
    return Played(snapshot, tape, history, 64, recording)


def _live(view: Any) -> RequestFacts:
    figures = (view.num_prompt_tokens, view.num_cached_tokens, view.num_output_tokens)
    return RequestFacts(view.request_id, None, (), view.state, None, None, None, *figures, 1.0, None, None, None)


def in_node(recording: Json, windows: Sequence[tuple[int, int]] = (), parts: int = 1) -> Json:
    """What the modules of the page make of a recording that arrives in so many parts."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node on PATH (Debian: apt-get install nodejs)")
    asked = json.dumps({"recording": recording, "windows": windows, "parts": parts})
    done = subprocess.run([node, str(CLI)], input=asked, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found: Json = json.loads(done.stdout)
    return found

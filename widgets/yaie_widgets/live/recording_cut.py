"""The newest steps of a recording that is too large for where it goes: those before become part of its base."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import accumulate, takewhile

from .recorded import change_of, frame_of
from .recording import Json, frame_json


def cut(recording: Json, steps: int) -> Json:
    """The recording with its newest `steps`, and without the requests that ended before them."""
    first = max(0, len(recording["steps"]) - steps)
    if not first:
        return recording
    frame = frame_of(recording["base"])
    over: set[str] = set()
    for step in recording["steps"][:first]:
        change = change_of(step)
        frame.apply(change)
        over.update(change.ended)
    requests = {label: facts for label, facts in recording["requests"].items() if label not in over}
    return {**recording, "base": frame_json(frame), "steps": recording["steps"][first:], "requests": requests}


def with_entries(recording: Json, most: int) -> Json:
    """As many of the newest steps as have no more than `most` batch entries."""
    return cut(recording, _newest([len(step["batch"]) for step in recording["steps"]], most))


def with_size(recording: Json, most: int) -> Json:
    """As many of the newest steps as fit into so many bytes of JSON, together with the rest of the recording.

    The rest alone may be larger; then no step is left.
    """
    sizes = [len(written(step)) + 1 for step in recording["steps"]]
    fit, steps = recording, len(sizes)
    while True:
        room = most - len(written({**fit, "steps": []}))
        if steps == 0 or sum(sizes[-steps:]) <= room:
            return fit
        steps = min(_newest(sizes, room), steps - 1)  # the base may have grown with the last cut
        fit = cut(recording, steps)


def written(part: Json) -> str:
    """The JSON of a recording or of a part, all of it ASCII."""
    return json.dumps(part, separators=(",", ":"))


def _newest(sizes: Sequence[int], room: int) -> int:
    """How many from the end have a sum of at most `room`."""
    return sum(1 for _ in takewhile(lambda total: total <= room, accumulate(reversed(sizes))))

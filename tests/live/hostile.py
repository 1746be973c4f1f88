"""Sixty hostile strings in every place of a view's state where text of a model, a user or another machine may stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.live import answers, generations
from tests.widgets.payloads import PAYLOADS
from yaie_widgets.live.schema import sound

SHORT = 300
Json = dict[str, Any]
LABELLED = ("batch", "preempted", "arrived", "admitted", "left", "tables")


def payload(place: int, limit: int = SHORT) -> str:
    """One of the payloads, cut where it would only be long, as a recording may hold it."""
    return sound(PAYLOADS[place % len(PAYLOADS)][:limit])


def recordings(recording: Json) -> Iterator[Json]:
    """A recording four times over: labels, namespaces, prompts, errors and the engine's names are payloads in turn, and
    each of the payloads is the text of some token."""
    labels = list(recording["requests"])
    for offset in range(0, len(PAYLOADS), 15):
        names = {label: f"{place} {payload(offset + place)}" for place, label in enumerate(labels)}
        yield _hostile(recording, names, offset)


def _hostile(recording: Json, names: dict[str, str], offset: int) -> Json:
    base = recording["base"]
    return {
        **recording,
        "engine": {name: _engine_value(value, offset) for name, value in recording["engine"].items()},
        "base": {
            **base,
            "nodes": [_node(node, offset) for node in base["nodes"]],
            "tables": [[names.get(row[0], row[0]), *row[1:]] for row in base["tables"]],
            "waiting": [names.get(label, label) for label in base["waiting"]],
        },
        "steps": [_step(step, names, offset) for step in recording["steps"]],
        "requests": {
            names[label]: {
                **facts,
                "text": payload(offset + place, 200),
                "error": payload(offset + place + 1),
                "stop_reason": payload(offset + place + 2),
            }
            for place, (label, facts) in enumerate(recording["requests"].items())
        },
        "vocab": {token: payload(place, 20_000) for place, token in enumerate(recording["vocab"])},
    }


def _engine_value(value: Any, offset: int) -> Any:
    return payload(offset) if isinstance(value, str) and value != "ready" else value


def _node(node: list[Any], offset: int) -> list[Any]:
    """Node rows hold their namespace in third place."""
    return [*node[:2], payload(offset + node[0]), *node[3:]]


def _step(step: Json, names: dict[str, str], offset: int) -> Json:
    changed = dict(step)
    for field in LABELLED:
        if field in step:
            changed[field] = [_relabelled(row, names) for row in step[field]]
    if "nodes" in step:
        changed["nodes"] = [_node(node, offset) for node in step["nodes"]]
    return changed


def _relabelled(row: Any, names: dict[str, str]) -> Any:
    return names.get(row, row) if isinstance(row, str) else [names.get(row[0], row[0]), *row[1:]]


def generation_messages() -> Iterator[Json]:
    """Many generations of which prompt, text, label and words are payloads; one in full; pieces of text that arrive."""
    running, ended = [], []
    for place in range(len(PAYLOADS)):
        text = payload(place, 20_000)
        prompt = "x" * 200 + payload(place + 1)
        now = generations.progress("decode", prompt, output=len(text))
        running.append(generations.row_of(payload(place), now))
        ended.append(generations.ended(payload(place), prompt, text, "stop", payload(place + 2)))
    texts = tuple(payload(place, 20_000) for place in range(len(PAYLOADS)))
    for rows in (ended, running):
        whole = generations.whole(*rows, texts=texts, title=payload(1))
        whole["tally"] = payload(3)
        for place, row in enumerate(whole["rows"]):
            row["status"] = payload(place + 4)
        yield whole
    yield {"kind": "rows", "tally": payload(4), "total": 60, "rows": [[i, {}, payload(i)] for i in range(60)]}
    yield generations.whole(running[0], texts=(texts[0],))
    for place in range(len(PAYLOADS)):
        yield {"kind": "rows", "tally": "", "total": 1, "rows": [[0, {"status": payload(place)}, payload(place)]]}


def inspector_messages() -> Iterator[Json]:
    """Answers whose token texts are raw payloads, in plain runs and in marks; a branch that grows; refusals."""
    answer = answers.made(["x"] * len(PAYLOADS) * 2, prompt=20).to_dict()
    words = ("name", "title", "counts", "state", "reuse", "stats")
    for offset in range(0, len(PAYLOADS), 15):
        vocab = {str(i): [[payload(i, 2000), payload(i + 1)], i % 3 == 0] for i in range(2 * len(PAYLOADS))}
        said = {name: payload(offset + place) for place, name in enumerate(words)}
        notes = [payload(offset + place) for place in range(15)]
        scales = {
            name: {**scale, "title": payload(offset), "labels": [payload(offset + i) for i in range(5)]}
            for name, scale in answers.SCALES.items()
        }
        origin = {"parent": 0, "position": 4}
        whole = {**answer, **said, "vocab": vocab, "notes": notes}
        branch = {
            **whole,
            "origin": origin,
            "running": True,
            "output": answer["output"][:9],
            "rows": answer["rows"][:9],
        }
        yield {"kind": "whole", "answers": [whole, branch], "scales": scales, "colour": "probability"}
        grown = {"kind": "grown", "number": 1, "from": 9, "output": answer["output"][9:], "rows": answer["rows"][9:]}
        yield {**grown, "vocab": vocab, **said, "notes": notes}
        yield {"kind": "refused", "text": payload(offset)}


def step_messages(recording: Callable[[str], Json]) -> Callable[[], Iterator[Json]]:
    """Messages of a view that follows steps."""

    def messages() -> Iterator[Json]:
        for each in recordings(recording("busy")):
            yield {"kind": "recording", "recording": each, "options": {}}

    return messages

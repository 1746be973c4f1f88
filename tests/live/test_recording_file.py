"""Saved runs: what is written is read again, and what nobody could have recorded is refused in one line."""

from __future__ import annotations

import copy
import gzip
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.live.conftest import Recordings
from tests.live.runs import busy, sized
from yaie_engine import LLM
from yaie_engine.errors import RequestError
from yaie_widgets import draw_block_table, draw_radix_tree, draw_timeline
from yaie_widgets.live.recording import MAX_ENTRIES
from yaie_widgets.live.recording_check import check_recording
from yaie_widgets.live.recording_file import load_recording, save_recording
from yaie_widgets.live.recording_walk import Walk
from yaie_widgets.live.replay_twin import draw_replay
from yaie_widgets.live.source import FileSource, source_of

Change = Callable[[dict[str, Any]], None]


@pytest.mark.parametrize("name", ["empty", "small", "busy", "full"])
def test_a_saved_run_is_read_again(recording: Recordings, tmp_path: Path, name: str) -> None:
    saved = recording(name)
    path = tmp_path / "run.json"
    written = save_recording(saved, path)
    assert load_recording(path) == written == {**saved, "engine": {**saved["engine"], "state": "recorded"}}
    plain = tmp_path / "plain.json"
    plain.write_bytes(gzip.decompress(path.read_bytes()))
    assert load_recording(plain) == written
    assert sorted(tmp_path.iterdir()) == [plain, path]
    assert path.stat().st_mode & 0o777 == 0o600, "a recording holds prompts and answers"


def long_run(document: dict[str, Any], steps: int, batch: int) -> None:
    """Further steps in which many requests decode."""
    last = document["steps"][-1]
    labels = [f"req-{i}" for i in range(batch)]
    document["steps"] += [
        {
            "step": last["step"] + 1 + i,
            "at": last["at"] + i,
            "prefill": 0,
            "decode": batch,
            "batch": [[label, "decode", 1] for label in labels],
            "ms": [0.1, 1.0, 0.1, 0.1],
        }
        for i in range(steps)
    ]


def test_what_is_saved_is_what_can_be_loaded(
    recording: Recordings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is too large loses its oldest steps: they are in the base, and so are the drawings."""
    document = recording("busy")
    monkeypatch.setattr("yaie_widgets.live.recording_file.MAX_BYTES", 30_000)
    path = tmp_path / "run.json"
    written = save_recording(document, path)
    assert 0 < len(written["steps"]) < len(document["steps"])
    assert written["steps"] == document["steps"][-len(written["steps"]) :]
    loaded = load_recording(path)
    assert loaded == written and len(json.dumps(loaded, separators=(",", ":"))) <= 30_000
    whole, part = draw_replay(document), draw_replay(loaded)
    assert (whole.blocks.text, whole.tree.text) == (part.blocks.text, part.tree.text)
    monkeypatch.setattr("yaie_widgets.live.recording_file.MAX_BYTES", 2_000)
    with pytest.raises(RequestError, match="without its steps"):
        save_recording(document, tmp_path / "none.json")


def test_a_page_gets_as_many_steps_as_it_takes(recording: Recordings) -> None:
    document = recording("busy")
    long_run(document, 400, 256)
    source = FileSource(document)
    shown = source.recording()
    assert sum(len(step["batch"]) for step in shown["steps"]) <= MAX_ENTRIES
    assert source.left_out + len(shown["steps"]) == len(document["steps"]) and len(shown["steps"]) == 234
    assert source.step == document["steps"][-1]["step"]
    check_recording(shown)


def test_a_file_that_is_there_is_kept(recording: Recordings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.json"
    path.write_text("mine")
    with pytest.raises(RequestError, match="--force writes over it"):
        save_recording(recording("small"), path)
    assert path.read_text() == "mine"

    def torn(beside: Path, content: bytes) -> None:
        with beside.open("wb") as file:
            file.write(content[:100])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", torn)
        with pytest.raises(RequestError, match="No space left"):
            save_recording(recording("small"), path, force=True)
    assert path.read_text() == "mine" and list(tmp_path.iterdir()) == [path]
    save_recording(recording("small"), path, force=True)
    assert load_recording(path)["steps"] and list(tmp_path.iterdir()) == [path]


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    piece = gzip.compress(b" " * 2**24)
    path.write_bytes(piece * 256)  # four gigabytes
    tracemalloc.start()
    with pytest.raises(RequestError, match="has more than 64 MiB"):
        load_recording(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert path.stat().st_size < 2**23 and peak < 160 * 2**20


@pytest.mark.parametrize("change", [lambda raw: raw[:-9], lambda raw: raw[:20] + b"\xff" * 40, lambda raw: raw + b"x"])
def test_a_damaged_packed_file_is_refused(
    recording: Recordings, tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "run.json"
    save_recording(recording("small"), path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(RequestError, match="it cannot be unpacked"):
        load_recording(path)


def test_the_drawing_of_a_recording_is_that_of_the_engine() -> None:
    llm = busy()
    drawn = draw_replay(source_of(llm).recording())
    snapshot, tape, history = llm.snapshot(), llm.tape(), llm.history()
    llm.close()
    assert drawn.tree.text == draw_radix_tree(snapshot).text
    assert drawn.blocks.text == draw_block_table(snapshot).text
    assert drawn.timeline.text == draw_timeline(snapshot, tape, history, budget=64).text
    assert f"step {snapshot.step}" in drawn.title and all(part.text in drawn.text for part in drawn.parts)


def test_swaps_with_more_host_blocks_than_the_pool_has_are_read_again(tmp_path: Path) -> None:
    """Blocks of the host have numbers below 0, so that none is taken for one of the pool."""
    with LLM("tiny", num_blocks=12, num_cpu_blocks=90, preemption="swap", max_num_seqs=4) as llm:
        for start in range(6):
            handles = [llm.submit(f"Story {start}.{part} of a pool", sized(50)) for part in range(3)]
            assert all(handle.result(60).error is None for handle in handles)
        swapped = [pair for record in llm.snapshot().steps for pair in record.blocks.swapped]
        path = tmp_path / "swaps.json"
        save_recording(source_of(llm).recording(), path)
    assert min(min(pair) for pair in swapped) < -13 and all(min(pair) < 0 <= max(pair) < 12 for pair in swapped)
    read = [tuple(pair) for one in load_recording(path)["steps"] for pair in one.get("swapped", ())]
    assert read == swapped


def step(document: dict[str, Any], key: str) -> Any:
    """The first step that has the key."""
    return next(each for each in document["steps"] if each.get(key))


def put(where: list[Any], value: Any) -> Change:
    """Sets one value of a document. A word in front of a path chooses the first step that has it."""

    def change(document: dict[str, Any]) -> None:
        at: Any = document
        for name in where[:-1]:
            at = step(document, name[1:]) if isinstance(name, str) and name.startswith("*") else at[name]
        at[where[-1]] = value

    return change


def loop(document: dict[str, Any]) -> None:
    first = step(document, "nodes")["nodes"][0]
    document["steps"][-1]["nodes"] = [[first[0], first[0], "", 0, 0, [], 0, [], 1]]


def deep(document: dict[str, Any]) -> None:
    document["base"]["nodes"] = [[i, i - 1, "", i, [1], [], 0] for i in range(10_000, 13_000)]


def many_requests(document: dict[str, Any]) -> None:
    facts = next(iter(document["requests"].values()))
    document["requests"] = {f"req-{i}": facts for i in range(50_001)}


FAULTS: dict[str, tuple[Change, str]] = {
    "another format": (put(["format"], "other"), "format is 'other'"),
    "a later version": (put(["version"], 2), "version is 2"),
    "a flag for a number": (put(["version"], True), "version is True"),
    "a key too many": (put(["script"], "x"), "the document has a key 'script'"),
    "no engine": (lambda document: document.pop("engine"), "the document has no 'engine'"),
    "an engine without blocks": (lambda document: document["engine"].pop("num_blocks"), "engine has no 'num_blocks'"),
    "endless blocks": (put(["engine", "num_blocks"], 10**9), "engine.num_blocks is 1000000000"),
    "a block beyond the pool": (put(["*allocated", "allocated"], [26]), "allocated[0] is 26"),
    "a negative block": (put(["*allocated", "allocated"], [-1]), "allocated[0] is -1"),
    "a fraction for a block": (put(["*allocated", "allocated"], [1.5]), "allocated[0] is 1.5"),
    "markup for a label": (put(["steps", 0, "batch"], [[{"a": 1}, "prefill", 1]]), "batch[0][0] is {'a': 1}"),
    "an unknown kind": (put(["steps", 0, "batch"], [["r", "think", 1]]), "use one of prefill, decode"),
    "a short entry": (put(["steps", 0, "batch"], [["r", "decode"]]), "use a list of 3"),
    "an endless label": (put(["steps", 0, "arrived"], ["r" * 3000]), "use a text of at most 2000 characters"),
    "steps that go back": (put(["steps", 5, "step"], 2), "steps[5].step is 2, and the one before it is 5"),
    "steps that are no list": (put(["steps"], {}), "steps is not a list"),
    "a key of no step": (put(["steps", 0, "onload"], []), "has a key 'onload'"),
    "a time that is no number": (put(["steps", 0, "ms"], [1, 2, 3, "4"]), "ms[3] is '4'"),
    "a table out of nothing": (put(["*tables", "tables"], [["new", 3, [1], 1]]), "keeps 3 blocks of 0"),
    "more tokens than blocks": (put(["*tables", "tables"], [["new", 0, [1], 17]]), "17 tokens in 1 blocks of 16"),
    "a node out of nothing": (put(["*nodes", "nodes"], [[9, 0, "", 0, 4, [], 0, [], 1]]), "keeps 4 tokens of 0"),
    "a node below itself": (loop, "is below itself"),
    "a tree without end": (deep, "more than 2000 nodes deep"),
    "an unknown end": (put(["*left", "left"], [["r", "exploded"]]), "use one of waiting, swapped"),
    "facts of another kind": (put(["requests", "req-0"], {"text": "x"}), "requests['req-0'] has no"),
    "a text for a count": (put(["requests", "req-0", "num_output_tokens"], "7"), "num_output_tokens is '7'"),
    "a word for a token": (put(["vocab", "one"], "x"), "a key in vocab is 'one'"),
    "no byte": (put(["vocab", "7"], [256]), "vocab[7][0] is 256"),
    "a prompt beyond all bounds": (put(["requests", "req-0", "num_prompt_tokens"], 10**8), "from 0 to 1000000"),
    "an output beyond all bounds": (put(["requests", "req-0", "num_output_tokens"], 10**8), "from 0 to 1000000"),
    "requests without end": (many_requests, "has 50,001 requests"),
    "half a character in a token": (put(["vocab", "7"], "\udfff"), "use a text without lone surrogates"),
    "half a character in a name": (put(["engine", "name"], "\ud800x"), "engine.name is '\\ud800x'"),
    "half a character in a label": (put(["requests", "\ud800"], {}), "a label in requests is '\\ud800'"),
    "half a character in a prompt": (put(["requests", "req-0", "text"], "\ud800"), "text is '\\ud800'"),
    "half a character in an entry": (put(["steps", 0, "batch"], [["\ud800", "decode", 1]]), "lone surrogates"),
    "half a character in a key": (put(["\ud800"], 1), "has a key '\\ud800'"),
    "no flag": (put(["steps", 0, "wiped"], 1), "use true or false"),
}


def test_counts_of_a_file_take_no_memory(recording: Recordings, tmp_path: Path) -> None:
    """Two thousand requests of a million tokens each way."""
    document = recording("small")
    facts = {**next(iter(document["requests"].values())), "num_prompt_tokens": 10**6, "num_output_tokens": 10**6}
    document["requests"] |= {f"late-{i}": facts for i in range(2000)}
    path = tmp_path / "run.json"
    path.write_text(json.dumps(document))
    tracemalloc.start()
    drawn = draw_replay(load_recording(path))
    assert drawn.timeline.text and drawn.html
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 128 * 2**20


def chains(number: int) -> dict[str, Any]:
    """A base with so many nodes, each chain of them as deep as a tree may be."""
    nodes = [[i, i - 1 if i % 2000 else -1, "", 0, [], [], 0] for i in range(number)]
    return {"step": 0, "nodes": nodes, "tables": [], "waiting": []}


def test_the_check_of_deep_trees_is_linear() -> None:
    """Twice as many nodes are twice as many steps upwards, and steps that only use nodes are none."""
    passed = []
    for number in (10_000, 20_000):
        walk = Walk(10, 16)
        base = chains(number)
        walk.base("base", base)
        nodes = [[i, parent, "", 0, 0, [], 0, [], 1] for i, parent, *_ in base["nodes"]]
        walk.step("step", {"step": 1, "at": 1, "prefill": 0, "decode": 0, "batch": [], "ms": [0] * 4, "nodes": nodes})
        passed.append(walk._passed)
    assert passed == [10_000, 20_000]


def test_a_node_may_not_move_below_itself_later() -> None:
    walk = Walk(10, 16)
    walk.base("base", {**chains(2000), "nodes": [[i, i - 1 if i else -1, "", 0, [], [], 0] for i in range(1000)]})
    step = {"step": 1, "at": 1, "prefill": 0, "decode": 0, "batch": [], "ms": [0] * 4}
    with pytest.raises(RequestError, match="is below itself"):
        walk.step("step", {**step, "nodes": [[0, 999, "", 0, 0, [], 0, [], 1]]})


@pytest.mark.parametrize("name", FAULTS)
def test_what_no_engine_records_is_refused(recording: Recordings, tmp_path: Path, name: str) -> None:
    document = recording("busy")
    change, words = FAULTS[name]
    change(document)
    path = tmp_path / "run.json"
    path.write_text(json.dumps(document))
    with pytest.raises(RequestError) as caught:
        load_recording(path)
    message = str(caught.value)
    message.encode()
    assert words in message and str(path) in message and "\n" not in message and len(message) < 300


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b"[1, 2]", "the document is [1, 2]"),
        (b"\xff\xfe", "it is no UTF-8 text"),
        (b'{"version": NaN}', "NaN is no number in JSON"),
        (b'{"a": 1, "a": 2}', "the key 'a' comes twice"),
        (b"[" * 200_000, "nested too deep"),
        (b'{"version": ' + b"9" * 5000 + b"}", "integer string conversion"),
    ],
)
def test_what_is_no_document_is_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(RequestError, match="no recording") as caught:
        load_recording(path)
    assert words in str(caught.value)


def test_a_large_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with path.open("wb") as file:
        file.truncate(65 * 2**20)
    with pytest.raises(RequestError, match="has more than 64 MiB"):
        load_recording(path)


def test_files_that_are_not_there_or_cannot_be_written(recording: Recordings, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="No such file"):
        load_recording(tmp_path / "none.json")
    with pytest.raises(RequestError, match="it is no file"):
        load_recording(tmp_path)
    with pytest.raises(RequestError, match="No such file"):
        save_recording(recording("empty"), tmp_path / "none" / "run.json")


def test_cut_files_are_refused(recording: Recordings, tmp_path: Path) -> None:
    content = json.dumps(recording("small"))
    path = tmp_path / "run.json"
    for length in range(1, len(content) - 1, max(1, len(content) // 40)):
        path.write_text(content[:length])
        with pytest.raises(RequestError):
            load_recording(path)


def test_no_part_can_be_exchanged_for_another_type(recording: Recordings, tmp_path: Path) -> None:
    """Every value of a small recording, one after the other, replaced by something of another type."""
    whole = recording("small")
    path = tmp_path / "run.json"
    places = [place for place in _places(whole) if place[:1] != ["vocab"]]
    for place in places[:: max(1, len(places) // 400)]:
        document = copy.deepcopy(whole)
        at = document
        for name in place[:-1]:
            at = at[name]
        at[place[-1]] = [[[]]] if not isinstance(at[place[-1]], list) else "<img src=x onerror=alert(1)>"
        path.write_text(json.dumps(document))
        with pytest.raises(RequestError):
            load_recording(path)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[list[Any]]:
    """Paths to all values of a document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [list(path)] if path else []
    for key, item in items:
        found += _places(item, (*path, key))
    return found

"""Tree and block map show what the static drawings show: at every step of real runs, and of an engine at work."""

from __future__ import annotations

import threading
import time

import pytest

from tests.live.models import assert_equal, assert_texts_fit, page_models, snapshot_of
from tests.live.played import played
from tests.live.runs import QUESTIONS, Script, sized
from yaie_engine import LLM
from yaie_engine.snapshot import EngineSnapshot
from yaie_widgets import KVBlockMap, RadixTreeExplorer, draw_block_table, draw_radix_tree
from yaie_widgets.live.source import source_of
from yaie_widgets.tree_view import tree_view


@pytest.mark.parametrize(
    ("name", "every"), [("small", 1), ("busy", 1), pytest.param("full", 97, marks=pytest.mark.slow)]
)
def test_every_step_of_a_run(name: str, every: int) -> None:
    recording, frames = played(name).recording, played(name).frames(every)
    found = page_models(recording, [frame.step for frame in frames])
    assert len(found) == len(frames) > 5
    for frame in frames:
        snapshot = snapshot_of(frame, recording)
        assert_equal(found[frame.step], snapshot)
        assert_texts_fit(found[frame.step], snapshot)
        assert found[frame.step]["blocks"]["counts"]["written"] > 0
    if name == "busy":
        gone = [how for each in found.values() for _, how in each["tree"]["gone"]]
        assert gone.count("evicted") > 5
        assert any(each["blocks"]["counts"]["evicted"] for each in found.values())
        assert any(each["tree"]["namespaces"] == 2 for each in found.values())


def at_work(llm: LLM) -> dict[int, EngineSnapshot]:
    """Snapshots of an engine at work, by step."""
    script = Script(llm, 0.003)
    for place, question in enumerate(QUESTIONS):
        settings = {"cache_salt": "tenant"} if place == 5 else {}
        script.arrivals.setdefault(place * 3, []).append((question, sized(15 + 6 * (place % 3), **settings)))
    worker = threading.Thread(target=script.play)
    worker.start()
    seen: dict[int, EngineSnapshot] = {}
    while True:
        over = not worker.is_alive()
        snapshot = llm.snapshot()
        seen[snapshot.step] = snapshot
        if over:
            return seen
        time.sleep(0.001)


def test_snapshots_of_an_engine_at_work() -> None:
    with LLM("tiny", num_blocks=26, max_num_batched_tokens=64, max_num_seqs=5, max_model_len=200) as llm:
        seen = at_work(llm)
        recording = source_of(llm).recording()
        recorded = {step["step"] for step in recording["steps"]}
        found = page_models(recording, sorted(recorded & seen.keys()))
        last = llm.snapshot()
        drawn = draw_radix_tree(last), draw_block_table(last)
    assert len(found) > 15
    for step, shown in found.items():
        assert_equal(shown, seen[step])
        for view in seen[step].requests:
            path = {
                row.node.id
                for row in tree_view(seen[step], depth=None, request=view.request_id, max_nodes=60).rows
                if row.node and row.on_path and row.node.num_tokens
            }
            assert set(shown["tree"]["paths"][view.request_id]) == path or not path
    totals, counts = found[last.step]["tree"]["totals"], found[last.step]["blocks"]["counts"]
    assert f"nodes {totals['nodes']:,}, tokens {totals['tokens']:,}" in drawn[0].title
    assert f"free {counts['free']:,} + cached {counts['cached']:,}" in drawn[1].title


def test_the_classes_tell_their_pages_what_stands_out() -> None:
    with LLM("tiny", num_blocks=20) as llm:
        tree = RadixTreeExplorer(source_of(llm), request="req-4", depth=2)
        blocks = KVBlockMap(source_of(llm), request="req-4")
        assert tree.whole()["options"] == {"request": "req-4", "depth": 2}
        assert blocks.whole()["options"] == {"request": "req-4"}
        assert blocks.whole()["recording"]["engine"]["num_blocks"] == 20
        assert (repr(tree), repr(blocks)) == ("<RadixTreeExplorer: tiny>", "<KVBlockMap: tiny>")
        tree.close()
        blocks.close()

"""Drawings and explanations of a real engine: what they say agrees with what the engine counts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from yaie_engine import LLM, SamplingParams
from yaie_engine.snapshot import EngineSnapshot
from yaie_widgets import draw_block_table, draw_radix_tree, explain_block, explain_node, explain_request

from .graphs import node_tokens, parse_svg, texts

HEAD = "You are the assistant of a small library. Answer in one sentence. "


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM("tiny", num_blocks=300) as llm:
        yield llm


def check_drawings(snapshot: EngineSnapshot) -> None:
    tree, table = draw_radix_tree(snapshot, max_nodes=6), draw_block_table(snapshot)
    parse_svg(tree.svg)
    parse_svg(table.svg)
    assert sum(node_tokens(tree.dot).values()) == sum(node.num_tokens for node in snapshot.tree)
    states = [explain_block(snapshot, block).to_dict()["state"] for block in range(snapshot.blocks.total)]
    assert states.count("free") == snapshot.blocks.free
    assert states.count("cached") == snapshot.blocks.cached
    assert states.count("held") + states.count("shared") == snapshot.blocks.held
    assert f"free {snapshot.blocks.free}" in texts(table.svg)
    for node in snapshot.tree:
        explain_node(snapshot, node.id)


def test_an_empty_engine(llm: LLM) -> None:
    snapshot = llm.snapshot()
    check_drawings(snapshot)
    assert node_tokens(draw_radix_tree(snapshot).dot) == {"n0": 0}


def test_running_requests_and_their_end(llm: LLM) -> None:
    params = SamplingParams(max_tokens=1200, ignore_eos=True, temperature=0.0)
    running = [llm.submit(HEAD + tail, params) for tail in ("Where is the door?", "When does it open?")]
    snapshot = llm.snapshot()
    while len([view for view in snapshot.requests if view.num_output_tokens > 2]) < 2:
        assert not any(generation.done for generation in running)
        snapshot = llm.snapshot()
    check_drawings(snapshot)
    for view in snapshot.requests:
        assert "─▶" in draw_radix_tree(snapshot, request=view.request_id).text
        assert view.request_id in draw_block_table(snapshot, request=view.request_id).text
    for generation in running:
        generation.cancel()
    results = [generation.result(timeout=60) for generation in running]
    assert [result.outputs[0].finish_reason for result in results] == ["cancelled"] * 2
    after = llm.snapshot()
    check_drawings(after)
    assert after.blocks.held == 0


def test_an_ended_request_is_explained_and_found(llm: LLM) -> None:
    params = SamplingParams(max_tokens=6, ignore_eos=True, temperature=0.0)
    llm.generate([HEAD + "How far is the moon?"], params, use_tqdm=False)
    output = llm.generate([HEAD + "How far is the sun?"], params, use_tqdm=False)[0]
    record, previous = llm.history()[-1], llm.history()[-2]
    snapshot = llm.snapshot()
    explained = explain_request(record, previous, snapshot, decode=lambda ids: llm.detokenize(list(ids)))
    data = explained.to_dict()
    assert data["num_cached_tokens"] == output.num_cached_tokens == data["compared"]["equal_tokens"]
    assert sum(part["num_tokens"] for part in data["matched"]) == output.num_cached_tokens
    assert (data["compared"]["this"], data["compared"]["other"]) == ("·sun?", "·moon?")
    assert data["compared"]["before"].endswith("How far is the")
    known = len(record.prompt_token_ids) + len(record.output_token_ids[0])
    table = draw_block_table(snapshot, request=record)
    assert f"{known - 1} of {known} tokens still cached" in table.text
    assert "How far is the" in draw_radix_tree(snapshot, request=record).text

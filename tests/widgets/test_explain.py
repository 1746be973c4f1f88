"""Explanations of requests, blocks and nodes."""

from __future__ import annotations

import json

import pytest

from yaie_engine.errors import RequestError
from yaie_engine.outputs import Reuse
from yaie_engine.snapshot import EngineSnapshot
from yaie_widgets import explain_block, explain_node, explain_request

from .snapshots import busy_snapshot, make_record, make_snapshot


@pytest.fixture(scope="module")
def busy() -> EngineSnapshot:
    return busy_snapshot()


@pytest.mark.parametrize(
    ("reuse", "words"),
    [
        ("host", "they came back from host blocks"),
        ("store", "they were read from the prefix store"),
        ("state", "40 tokens are those of a whole state that was kept"),
    ],
)
def test_where_cached_tokens_came_from_if_not_from_the_tree(reuse: Reuse, words: str, busy: EngineSnapshot) -> None:
    """The node of a kept state is gone, and what was read from disk was in a node only just before."""
    explained = explain_request(make_record(num_cached_tokens=40, matched=((5, 40),), reuse=reuse), None, busy)
    assert words in explained.text and ("from node 5" in explained.text) == (reuse != "state")
    assert explained.to_dict()["reuse"] == reuse


def test_a_request_in_figures(busy: EngineSnapshot) -> None:
    record = make_record(
        prompt_token_ids=tuple(range(131)),
        output_token_ids=((7, 8, 9),),
        num_cached_tokens=125,
        matched=((5, 68), (6, 57), (999, 3)),
        blocks_shared=tuple(range(34, 41)),
        blocks_owned=(46, 47),
        copied=(40, 48),
        num_preemptions=1,
    )
    explained = explain_request(record, None, busy)
    for words in (
        "Request r07 · stop · 3 output tokens",
        "131 prompt tokens: 125 cached, 6 computed · 3 output tokens",
        "68 tokens from node 5: You are the support",
        "3 tokens from node 999: no longer in the tree",
        "7 taken by reference: 34\u201340",
        "2 allocated: 46\u201347",
        "block 40 copied to 48",
        "1 prefill step, 1 decode step, from step 4 to 6",
        "queue 1.0 ms · prefill 50 ms · decode 400 ms · total 451 ms",
        "Preempted  1 time",
        "stop: the model ended its answer",
    ):
        assert words in explained.text
    data = explained.to_dict()
    assert data["num_computed_tokens"] == 6
    assert data["matched"][0] == {"node": 5, "num_tokens": 68}
    json.dumps(data)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"finish_reasons": ("stop",), "stop_reasons": ("\n\n",)}, "stop: the stop string '⏎⏎' appeared"),
        ({"finish_reasons": ("stop",), "stop_reasons": (17,)}, "stop: token 17 is a stop token"),
        ({"finish_reasons": ("length",)}, "length: the limit of 2 output tokens was reached"),
        ({"finish_reasons": ("cancelled",)}, "cancelled: it was stopped from outside"),
        ({"finish_reasons": ("error",), "error": "it ran longer than 2 s"}, "failed: it ran longer than 2 s"),
        ({"finish_reasons": ("error",), "stop_reasons": ("timeout",)}, "failed: timeout"),
        ({"first_step": None, "last_step": None, "output_token_ids": ((),)}, "none: it never ran"),
        ({"num_cached_tokens": 0}, "no token of the prompt was in the cache"),
    ],
)
def test_why_it_stopped(busy: EngineSnapshot, changes: dict[str, object], words: str) -> None:
    assert words in explain_request(make_record(**changes), None, busy).text


def test_several_choices_end_each_for_itself(busy: EngineSnapshot) -> None:
    record = make_record(
        output_token_ids=((7, 8), (9,)), finish_reasons=("stop", "length"), stop_reasons=(None, None), texts=("a", "b")
    )
    text = explain_request(record, None, busy).text
    assert "3 output tokens in 2 choices" in text
    assert "End of choice 0  stop" in text
    assert "End of choice 1  length: the limit of 1 output token was" in text


def test_where_two_prompts_part(busy: EngineSnapshot) -> None:
    previous = make_record(request_id="r06", prompt="The sky is blue.", prompt_token_ids=(1, 2, 3, 4))
    record = make_record(prompt="The sky is red.", prompt_token_ids=(1, 2, 3, 9, 10), num_cached_tokens=3)
    explained = explain_request(record, previous, busy)
    assert "with r06: 3 of 5 tokens are equal; the prompts part at token 4" in explained.text
    assert "of these 3, 3 came from the cache" in explained.text
    compared = explained.to_dict()["compared"]
    assert (compared["before"], compared["this"], compared["other"]) == ("The sky is·", "red.", "blue.")


def test_a_tokenizer_makes_the_text_exact(busy: EngineSnapshot) -> None:
    words = {1: "The", 2: " sky", 3: " is", 4: " blue", 5: " blu", 6: "ish"}
    previous = make_record(request_id="r06", prompt="The sky is blue", prompt_token_ids=(1, 2, 3, 4))
    record = make_record(prompt="The sky is bluish", prompt_token_ids=(1, 2, 3, 5, 6))
    explained = explain_request(record, previous, busy, decode=lambda ids: "".join(words[token] for token in ids))
    compared = explained.to_dict()["compared"]
    assert (compared["before"], compared["this"], compared["other"]) == ("The sky is", "·bluish", "·blue")


def test_prompts_given_as_ids_show_ids(busy: EngineSnapshot) -> None:
    previous = make_record(request_id="r06", prompt=None, prompt_token_ids=(1, 2, 3, 4))
    record = make_record(prompt=None, prompt_token_ids=(1, 2, 8))
    compared = explain_request(record, previous, busy).to_dict()["compared"]
    assert (compared["before"], compared["this"], compared["other"]) == (
        "token ids 1 2",
        "token ids 8",
        "token ids 3 4",
    )


def test_the_next_turn_of_a_conversation_goes_on(busy: EngineSnapshot) -> None:
    previous = make_record(request_id="r06", prompt="Hi", prompt_token_ids=(1, 2), output_token_ids=((3, 4),))
    record = make_record(prompt="Hi there you", prompt_token_ids=(1, 2, 3, 4, 5), num_cached_tokens=4)
    text = explain_request(record, previous, busy).text
    assert "goes on from r06: its 2 prompt tokens and 2 of its answer begin this prompt" in text


def test_the_same_prompt_again(busy: EngineSnapshot) -> None:
    assert "the same prompt as r06: all 4 tokens are equal" in (
        explain_request(make_record(), make_record(request_id="r06"), busy).text
    )


def test_a_prompt_that_begins_the_other(busy: EngineSnapshot) -> None:
    previous = make_record(request_id="r06", prompt="one two", prompt_token_ids=(3, 4))
    assert "r06" in explain_request(make_record(), previous, busy).text
    assert "ends here" in explain_request(make_record(), previous, busy).text


def test_static_mode_leaves_times_out(busy: EngineSnapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    explained = explain_request(make_record(), None, busy)
    monkeypatch.setenv("YAIE_NOTEBOOK", "static")
    assert " ms" not in explained.text
    assert " ms" not in explained._repr_mimebundle_()["text/html"]
    assert "time" not in explained.to_dict()
    assert "1 prefill step" in explained.text


def test_a_shared_block(busy: EngineSnapshot) -> None:
    explained = explain_block(busy, 40)
    assert explained.text.startswith("Block 40 · shared \u00d72\n")
    assert "node 6: ·Manual, chapter 4" in explained.text
    assert "r04 (decode), as its logical block 6" in explained.text
    assert "positions 96 to 111, 16 of 16 tokens" in explained.text
    data = explained.to_dict()
    assert data["request_ids"] == ["r04", "r12"]
    assert data["positions"] == [96, 112]
    assert len(data["token_ids"]) == 16


def test_every_block_explains_its_state(busy: EngineSnapshot) -> None:
    states = [explain_block(busy, block).to_dict()["state"] for block in range(busy.blocks.total)]
    assert states.count("free") == busy.blocks.free
    assert states.count("cached") == busy.blocks.cached
    assert states.count("held") + states.count("shared") == busy.blocks.held


def test_tokens_of_a_nodes_blocks_are_those_of_its_path(busy: EngineSnapshot) -> None:
    """A first block also holds the slots of the ancestors in it."""
    by_id = {node.id: node for node in busy.tree}
    for node in busy.tree:
        path, above = [], node
        while True:
            path[:0] = above.token_ids
            if above.parent is None:
                break
            above = by_id[above.parent]
        for block in node.blocks:
            data = explain_block(busy, block).to_dict()
            first, stop = data["positions"]
            assert first % busy.blocks.block_size == 0
            assert data["token_ids"] == path[first:stop]


def test_a_node_in_figures(busy: EngineSnapshot) -> None:
    explained = explain_node(busy, 6)
    for words in (
        "Node 6 · 57 tokens · shared \u00d72",
        "positions 68 to 124",
        "node 5 above · 3 nodes directly below",
        "3 blocks: 38\u201340",
        "r04, r12",
        "in use",
    ):
        assert words in explained.text
    assert explained.to_dict()["start"] == 68
    assert "a root: it holds no token" in explain_node(busy, 0).text


def test_unknown_ids_name_the_valid_ones(busy: EngineSnapshot) -> None:
    with pytest.raises(RequestError, match="no block 160: blocks are 0 to 159"):
        explain_block(busy, 160)
    with pytest.raises(RequestError, match="no block -1: blocks are 0 to 159"):
        explain_block(busy, -1)
    with pytest.raises(RequestError, match="no node 99: the tree has 17 nodes, 0\u201316"):
        explain_node(busy, 99)
    with pytest.raises(RequestError, match="the pool has no blocks while the engine is ready"):
        explain_block(make_snapshot(total=0), 0)


def test_repr_is_short_and_stable(busy: EngineSnapshot) -> None:
    assert repr(explain_block(busy, 99)) == "<Explanation Block 99 · free>"
    assert str(explain_block(busy, 99)) == explain_block(busy, 99).text

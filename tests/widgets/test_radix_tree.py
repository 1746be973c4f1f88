"""The radix tree drawing: names, counts, filters, forms."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from yaie_engine.errors import RequestError
from yaie_engine.snapshot import EngineSnapshot, NodeView
from yaie_widgets import Drawing, draw_radix_tree

from .graphs import edges, node_tokens, parse_dot, parse_svg, texts, titles
from .snapshots import Builder, Entry, busy_entries, busy_snapshot, make_record, make_snapshot, words


@pytest.fixture(scope="module")
def busy() -> EngineSnapshot:
    return busy_snapshot()


def total(snapshot: EngineSnapshot) -> int:
    return sum(node.num_tokens for node in snapshot.tree)


def test_graph_is_named_radix_tree(busy: EngineSnapshot) -> None:
    drawing = draw_radix_tree(busy)
    assert isinstance(drawing, Drawing)
    assert parse_dot(drawing.dot)["name"] == "radix_tree"
    assert drawing.dot.startswith("digraph radix_tree {")


def test_nodes_and_edges_are_those_of_the_tree(busy: EngineSnapshot) -> None:
    drawing = draw_radix_tree(busy)
    assert set(node_tokens(drawing.dot)) == {f"n{node.id}" for node in busy.tree}
    assert edges(drawing.dot) == {(f"n{node.parent}", f"n{node.id}") for node in busy.tree if node.parent is not None}


@pytest.mark.parametrize("depth", [None, 0, 1, 2, 9])
@pytest.mark.parametrize("max_nodes", [1, 3, 8, 60])
def test_token_counts_sum_to_the_tree(busy: EngineSnapshot, depth: int | None, max_nodes: int) -> None:
    drawing = draw_radix_tree(busy, depth=depth, max_nodes=max_nodes)
    assert sum(node_tokens(drawing.dot).values()) == total(busy)
    said = [int(number.replace(",", "")) for number in re.findall(r"([\d,]+) tokens?\b", drawing.text)]
    assert sum(said) == total(busy)
    in_picture = [re.match(r"([\d,]+) token", text) for text in texts(drawing.svg)]
    assert sum(int(found[1].replace(",", "")) for found in in_picture if found) == total(busy)


def test_what_is_left_out_is_said(busy: EngineSnapshot) -> None:
    drawing = draw_radix_tree(busy, max_nodes=4)
    hidden = sum(int(number) for number in re.findall(r"\+(\d+) more", drawing.text))
    drawn = [name for name in node_tokens(drawing.dot) if name.startswith("n")]
    holding = [node for node in busy.tree if node.num_tokens]
    assert hidden + len([name for name in drawn if name in {f"n{node.id}" for node in holding}]) == len(holding)
    assert sum(int(number) for number in re.findall(r"\+(\d+) more", " ".join(texts(drawing.svg)))) == hidden


def test_depth_counts_levels_below_the_root(busy: EngineSnapshot) -> None:
    level = {node.id for node in busy.tree if node.parent == 0}
    drawn = {name for name in node_tokens(draw_radix_tree(busy, depth=1).dot) if name.startswith("n")}
    assert drawn == {"n0"} | {f"n{number}" for number in level}


def test_depth_zero_is_the_root_and_the_rest_in_one_node(busy: EngineSnapshot) -> None:
    assert node_tokens(draw_radix_tree(busy, depth=0).dot) == {"n0": 0, "more0": total(busy)}


@pytest.mark.parametrize("nodes", [(), None], ids=["no node at all", "the root alone"])
def test_empty_tree_is_a_valid_graph_with_the_root(nodes: tuple[()] | None) -> None:
    snapshot = make_snapshot()
    snapshot = snapshot if nodes is None else replace(snapshot, tree=nodes)
    drawing = draw_radix_tree(snapshot)
    assert node_tokens(drawing.dot) == {"n0": 0}
    assert any("root" in text for text in texts(drawing.svg))
    assert "root" in drawing.text


def test_a_node_shows_its_figures(busy: EngineSnapshot) -> None:
    shown = " | ".join(texts(draw_radix_tree(busy).svg))
    for words_shown in (
        "114 tokens",
        "7 blocks",
        "shared \u00d73",
        "in use",
        "blocks 0\u20136",
        "8 steps ago",
        "held",
        "cached",
    ):
        assert words_shown in shown
    assert "r04, r12" in shown
    assert "namespace tenant-7" in shown


def test_hover_text_has_what_the_box_has_no_room_for(busy: EngineSnapshot) -> None:
    hover = titles(draw_radix_tree(busy).svg)
    assert any("requests r02, r09, r06" in title and "Review the following" in title for title in hover)


def test_path_of_a_running_request_is_marked_and_whole(busy: EngineSnapshot) -> None:
    drawing = draw_radix_tree(busy, request="r12", max_nodes=1)
    path = {f"n{node.id}" for node in busy.tree if "r12" in node.request_ids}
    assert path <= set(node_tokens(drawing.dot))
    marked = [line for line in drawing.text.splitlines() if "─▶" in line]
    assert len(marked) == len(path) - 1
    assert drawing.dot.count("class=path") == len(path) - 1
    assert "path of r12" in texts(drawing.svg)


def test_path_of_an_ended_request_is_found_by_its_tokens(busy: EngineSnapshot) -> None:
    entry = busy_entries()[4]
    builder = Builder(busy_entries())
    builder.nodes()
    ids = builder.ids(entry.tokens)
    drawing = draw_radix_tree(busy, request=make_record(prompt_token_ids=ids[:90], output_token_ids=(ids[90:],)))
    marked = [line for line in drawing.text.splitlines() if "─▶" in line]
    assert len(marked) == 3
    assert "The green key" in marked[-1]


def test_a_request_with_several_choices_is_one_request() -> None:
    prompt = "same prompt for both choices"
    snapshot = make_snapshot([Entry(words(f"{prompt} one"), "a"), Entry(words(f"{prompt} two"), "a/1")])
    assert len([line for line in draw_radix_tree(snapshot, request="a").text.splitlines() if "─▶" in line]) == 3


@pytest.mark.parametrize(
    ("options", "words_said"),
    [
        ({"depth": -1}, "depth is -1: use 0"),
        ({"max_nodes": 0}, "max_nodes is 0: use 1 or more"),
        ({"request": "nobody"}, "no running request 'nobody': there are r02, r09"),
        ({"format": "pdf"}, "format is 'pdf': use one of svg, png, dot, text"),
    ],
)
def test_bad_values_are_named_with_what_is_valid(
    busy: EngineSnapshot, options: dict[str, int], words_said: str
) -> None:
    with pytest.raises(RequestError, match=re.escape(words_said)):
        draw_radix_tree(busy, **options)  # type: ignore[arg-type]


def test_no_request_runs_is_said() -> None:
    with pytest.raises(RequestError, match="none runs now"):
        draw_radix_tree(make_snapshot(), request="r1")


def test_equal_snapshots_give_equal_bytes() -> None:
    first, second = draw_radix_tree(busy_snapshot()), draw_radix_tree(busy_snapshot())
    assert (first.dot, first.text, first.svg, first.html, first.png) == (
        second.dot,
        second.text,
        second.svg,
        second.html,
        second.png,
    )
    assert repr(first) == repr(second) == "<Drawing radix_tree: step 58, nodes 15, tokens 854>"


def test_a_chain_deeper_than_the_call_stack_is_drawn() -> None:
    snapshot = make_snapshot(total=3000)
    chain = [NodeView(i, i - 1, 1, (i,), f"t{i}", (i,), 0, 1, "", ()) for i in range(1, 2000)]
    snapshot = replace(snapshot, tree=(*snapshot.tree, *chain))
    drawing = draw_radix_tree(snapshot, max_nodes=100)
    parse_svg(drawing.svg)
    assert sum(node_tokens(drawing.dot).values()) == 1999

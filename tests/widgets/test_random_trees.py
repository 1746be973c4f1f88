"""Any valid tree is drawn whole: hypothesis builds trees from random sequences."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yaie_engine.snapshot import EngineSnapshot
from yaie_widgets import draw_block_table, draw_radix_tree, explain_block, explain_node
from yaie_widgets.tree_view import tree_view

from .graphs import node_tokens, parse_svg
from .snapshots import Entry, make_snapshot

_tokens = st.lists(st.sampled_from(["a", "b", " c", "\n", "<d>", "\\N", "é"]), min_size=1, max_size=24).map(tuple)


@st.composite
def snapshots(draw: st.DrawFn) -> EngineSnapshot:
    sequences = draw(st.lists(st.tuples(_tokens, st.booleans(), st.sampled_from(["", "s"])), max_size=9))
    entries = [
        Entry(tokens, f"r{number}" if runs else "", space, draw(st.integers(0, 9)))
        for number, (tokens, runs, space) in enumerate(sequences)
    ]
    return make_snapshot(entries, total=120, block_size=draw(st.sampled_from([1, 3, 4])), step=9)


_options = st.fixed_dictionaries(
    {"depth": st.none() | st.integers(0, 4), "max_nodes": st.integers(1, 12)},
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(snapshot=snapshots(), options=_options)
def test_rows_cover_the_tree_once(snapshot: EngineSnapshot, options: dict[str, int | None]) -> None:
    view = tree_view(snapshot, request=None, **options)  # type: ignore[arg-type]
    drawn = [row.node for row in view.rows if row.node]
    assert len({node.id for node in drawn}) == len(drawn)
    assert sum(n.num_tokens for n in drawn) + sum(r.hidden.tokens for r in view.rows) == view.totals.tokens
    assert sum(len(n.blocks) for n in drawn) + sum(r.hidden.blocks for r in view.rows) == view.totals.blocks
    assert sum(bool(n.num_tokens) for n in drawn) + sum(r.hidden.nodes for r in view.rows) == view.totals.nodes
    for row in view.rows:
        assert row.parent is None or row.parent in {node.id for node in drawn}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(snapshot=snapshots(), options=_options)
def test_drawings_are_valid_and_sum_up(snapshot: EngineSnapshot, options: dict[str, int | None]) -> None:
    tree = draw_radix_tree(snapshot, **options)  # type: ignore[arg-type]
    assert sum(node_tokens(tree.dot).values()) == sum(node.num_tokens for node in snapshot.tree)
    parse_svg(tree.svg)
    table = draw_block_table(snapshot, max_blocks=40)
    parse_svg(table.svg)
    for request in snapshot.requests:
        path = draw_radix_tree(snapshot, request=request.request_id, max_nodes=1)
        held = [node for node in snapshot.tree if request.request_id in node.request_ids]
        assert {f"n{node.id}" for node in held} <= set(node_tokens(path.dot))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(snapshot=snapshots())
def test_blocks_and_nodes_explain_themselves(snapshot: EngineSnapshot) -> None:
    states = [explain_block(snapshot, block).to_dict()["state"] for block in range(snapshot.blocks.total)]
    counts = snapshot.blocks
    assert (states.count("free"), states.count("cached")) == (counts.free, counts.cached)
    for node in snapshot.tree:
        assert explain_node(snapshot, node.id).to_dict()["blocks"] == list(node.blocks)

"""The block table drawing: counts, tables, filters, scale."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from yaie_engine.errors import RequestError
from yaie_engine.snapshot import BlockCounts, EngineSnapshot, RequestView
from yaie_widgets import draw_block_table
from yaie_widgets.pool_view import PoolView

from .graphs import parse_dot, parse_svg, texts, titles
from .snapshots import Entry, busy_entries, busy_snapshot, make_snapshot, words


@pytest.fixture(scope="module")
def busy() -> EngineSnapshot:
    return busy_snapshot()


def test_graph_is_named_block_table(busy: EngineSnapshot) -> None:
    parsed = parse_dot(draw_block_table(busy).dot)
    assert parsed["name"] == "block_table"
    assert {"pool", "request_1", "request_7", "cached"} <= {node["name"] for node in parsed["objects"]}


def test_free_cached_and_held_sum_to_the_total(busy: EngineSnapshot) -> None:
    head = draw_block_table(busy).text.splitlines()[0]
    found = re.search(r"free (\d+) \+ cached (\d+) \+ held (\d+).* = total (\d+)", head)
    assert found is not None
    free, cached, held, total = map(int, found.groups())
    assert free + cached + held == total == busy.blocks.total


def test_states_of_the_map_agree_with_the_counts(busy: EngineSnapshot) -> None:
    map_titles = [title for title in titles(draw_block_table(busy).svg) if title.startswith("block ")]
    states = [title.split("\n")[0].split(" · ")[1] for title in map_titles]
    assert states.count("cached") == busy.blocks.cached
    assert states.count("held") + states.count("shared") == busy.blocks.held
    in_words = sum(int(number) for number in re.findall(r": (\d+) free", " ".join(texts(draw_block_table(busy).svg))))
    assert states.count("free") + in_words == busy.blocks.free


def test_each_table_lists_the_physical_blocks_in_logical_order(busy: EngineSnapshot) -> None:
    hover = titles(draw_block_table(busy).svg)
    for view in busy.requests:
        for logical, physical in enumerate(view.block_table):
            first = logical * busy.blocks.block_size
            place = f"logical block {logical}, positions {first} to {first + 15}\nblock {physical} ·"
            assert any(title.startswith(place) for title in hover)


def test_shared_blocks_say_by_how_many(busy: EngineSnapshot) -> None:
    drawing = draw_block_table(busy)
    assert texts(drawing.svg).count("\u00d73") == 7
    assert "0\u20136→0\u20136 (\u00d73)" in drawing.text


def test_owner_is_said(busy: EngineSnapshot) -> None:
    assert any("owner node 1" in title and "r02, r09, r06" in title for title in titles(draw_block_table(busy).svg))


def test_a_private_block_belongs_to_its_request() -> None:
    snapshot = make_snapshot([Entry(words("one two three"), "r1")])
    snapshot = replace(snapshot, tree=snapshot.tree[:1])
    assert any("owner r1 (private)" in title for title in titles(draw_block_table(snapshot).svg))


def test_cells_name_a_request_by_the_number_of_its_id() -> None:
    entries = [Entry(("a", "b"), "req-41"), Entry(("c", "d"), "req-7/1"), Entry(("e", "f"), "mine")]
    named = make_snapshot(entries, total=20)
    pool = PoolView(named, None, 40)
    assert pool.numbers == {"req-41": 41, "req-7/1": 7, "mine": 3}
    assert {pool.mark(pool.block(block)) for block in range(20)} == {"41", "7", "3", ""}
    assert " 41 req-41" in draw_block_table(named).text


def test_a_filter_draws_one_table_and_keeps_the_counts(busy: EngineSnapshot) -> None:
    drawing = draw_block_table(busy, request="r12")
    names = {node["name"] for node in parse_dot(drawing.dot)["objects"]}
    assert names == {"pool", "request_1"}
    assert "held 51" in drawing.text
    assert "r02" not in drawing.text


def test_waiting_requests_hold_no_block(busy: EngineSnapshot) -> None:
    drawing = draw_block_table(busy)
    assert "2 requests waiting without a block" in drawing.text
    assert "waiting · holds no block" in texts(drawing.svg)


def test_blocks_of_a_swapped_request_are_not_of_this_pool() -> None:
    snapshot = make_snapshot(total=40)
    swapped = RequestView("s1", "swapped", 40, 40, 2, 0, (0, 1, 2), 0, 1.0)
    drawing = draw_block_table(replace(snapshot, requests=(swapped,)))
    assert "1 request swapped without a block" in drawing.text
    assert "free 40" in texts(drawing.svg)


def test_a_large_pool_stays_small() -> None:
    drawing = draw_block_table(make_snapshot(busy_entries(), total=20_000))
    assert "80\u201319999: 19,920 free" in drawing.text
    assert len(drawing.svg) < 200_000


def test_more_blocks_than_may_be_drawn_are_counted() -> None:
    entries = [Entry(tuple(f"{number}.{at}" for at in range(160)), f"r{number}") for number in range(30)]
    snapshot = make_snapshot(entries, total=400)
    drawing = draw_block_table(snapshot, max_blocks=100)
    assert "+300 more" in drawing.text
    shown = texts(drawing.svg)
    assert "+300 more" in shown
    assert "+20 more" in shown
    parse_svg(drawing.svg)


@pytest.mark.parametrize("total", [0, 1, 19, 20, 21, 41])
def test_any_pool_size(total: int) -> None:
    drawing = draw_block_table(make_snapshot(total=total))
    parse_svg(drawing.svg)
    free = [title for title in titles(drawing.svg) if title.endswith("free")]
    words_free = sum(int(number) for number in re.findall(r": (\d+) free", " ".join(texts(drawing.svg))))
    assert len(free) + words_free == total


def test_an_engine_that_loads_has_no_blocks() -> None:
    empty = replace(make_snapshot(), state="loading", blocks=BlockCounts(16, 0, 0, 0, 0), tree=())
    assert "total 0" in draw_block_table(empty).text
    parse_svg(draw_block_table(empty).svg)


def test_bad_values_are_named_with_what_is_valid(busy: EngineSnapshot) -> None:
    with pytest.raises(RequestError, match="max_blocks is 3: use 20 or more"):
        draw_block_table(busy, max_blocks=3)
    with pytest.raises(RequestError, match="no running request 'x'"):
        draw_block_table(busy, request="x")


def test_equal_snapshots_give_equal_bytes(busy: EngineSnapshot) -> None:
    first, second = draw_block_table(busy), draw_block_table(busy_snapshot())
    assert (first.dot, first.text, first.svg, first.html) == (second.dot, second.text, second.svg, second.html)

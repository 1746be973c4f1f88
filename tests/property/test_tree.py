"""The radix tree by itself: what it holds, says and tells the record."""

from __future__ import annotations

import pytest

from tests.property.trees import SIZE, A, contents, goes_on, leaves, put, runs, tree_of
from yaie_engine import radix_tree

# ---- reading


def test_a_new_tree_has_a_root_and_nothing_else() -> None:
    tree = tree_of()
    assert [(node.id, node.parent, node.end, node.namespace) for node in tree.nodes()] == [(0, None, 0, "")]
    assert tree.step == 0 and tree.root is tree.roots[""] and tree.block_size == SIZE


def test_find_sees_what_match_would_and_changes_nothing() -> None:
    tree = tree_of([1, 2, 3, 4], [1, 2, 3, 4, 9, 9], [1, 2, 3, 4, 5, 6])
    before = [(node.id, node.start, node.used) for node in tree.nodes()]
    for tokens, length in [([1, 2, 9], 2), ([1, 2, 3, 4, 9], 5), ([1, 2, 3, 4, 7], 4), ([1, 2, 3, 4, 5, 6, 7], 6)]:
        node, position = tree.find(tokens)
        assert position == length and node is not None and node.start < position <= node.end
    assert tree.find([2]) == (tree.root, 0) and tree.find([]) == (tree.root, 0) and tree.find([1], "other") == (None, 0)
    assert [(node.id, node.start, node.used) for node in tree.nodes()] == before
    for tokens in ([1, 2, 9], [1, 2, 3, 4, 9], [7], []):
        assert tree.find(tokens)[1] == tree.match(tokens).end


def test_a_token_below_an_inner_node_is_not_found_from_its_middle() -> None:
    """[1, 2, 9] agrees with two tokens of [1, 2, 3, 4], below which a 9 goes on."""
    tree = tree_of([1, 2, 3, 4, 9], [1, 2, 3, 4, 8])
    assert tree.find([1, 2, 9])[1] == 2


def test_a_path_begins_below_the_root_and_a_table_covers_it() -> None:
    tree = tree_of([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 7, 8, 9, 9], [1, 2, 3, 4, 5, 7, 8, 9, 8])
    node = tree.match([1, 2, 3, 4, 5, 7, 8, 9, 8])
    assert [part.token_ids for part in tree.path(node)] == [[1, 2, 3, 4, 5], [7, 8, 9], [8]]
    assert tree.path(tree.root) == [] and tree.blocks_to(tree.root) == []
    inner = node.parent
    assert inner is not None and len(tree.blocks_to(inner)) == 2 and len(tree.blocks_to(node)) == 3
    assert inner.parent is not None
    table = tree.blocks_to(inner.parent)
    assert len(table) == 2 and table[1] in {child.blocks[0] for child in inner.parent.children.values()}


def test_nodes_come_by_namespace_and_parents_before_children() -> None:
    tree = tree_of([1, 2, 3, 4, 5], [1, 2, 3, 4, 6])
    put(tree, [1, 2], "a")
    put(tree, [3, 4], "b")
    assert [node.namespace for node in tree.nodes()] == ["", "", "", "", "a", "a", "b", "b"]
    assert [node.token_ids for node in tree.nodes()] == [[], [1, 2, 3, 4], [5], [6], [], [1, 2], [], [3, 4]]


def test_a_match_in_an_unknown_namespace_is_empty_and_leaves_no_root() -> None:
    tree = tree_of(A)
    node = tree.match(A, "other")
    assert (node.end, node.namespace, tree.path(node)) == (0, "other", []) and list(tree.roots) == [""]


@pytest.mark.parametrize("length", [*range(1, 9), 511, 512, 513, 1023, 1024, 1030, 1536])
def test_long_runs_are_compared_to_their_last_token(length: int) -> None:
    tokens = list(range(2000))
    tree = tree_of(tokens[:1600], total=500)
    other = [*tokens[:length], -1, *tokens[length + 1 :]]
    assert tree.find(other)[1] == length and tree.find(tokens[:length])[1] == length
    assert tree.find(tokens)[1] == 1600 and tree.match(other).end == length
    put(tree, other[: length + 3])
    assert tree.find(other)[1] == length + 3


def test_common_looks_at_both_places_and_stops_there() -> None:
    a, b = [9, 1, 2, 3], [8, 8, 1, 2, 3]
    assert radix_tree._common(a, 1, b, 2, 5) == 3 and radix_tree._common(a, 1, b, 2, 4) == 2
    assert radix_tree._common(a, 1, b, 2, 2) == radix_tree._common(a, 0, b, 0, 5) == 0
    assert radix_tree._common([1, 2], 0, [1, 2, 3], 0, 3) == 2


# ---- writing


def test_a_node_grows_while_its_writer_runs() -> None:
    tree = tree_of()
    tree.step = 3
    seq = runs(tree, [1, 2, 3])
    tree.publish(seq)
    (node,) = tree.root.children.values()
    assert (node.id, node.token_ids, node.blocks, node.used_step) == (1, [1, 2, 3], seq.block_table, 3)
    tree.step = 4
    for token in (4, 5):
        goes_on(tree, seq, token)
        assert (node.end, node.blocks, node.used_step) == (seq.computed, seq.block_table, 4)
    assert all(tree.pool.owner[block] is node for block in node.blocks)
    assert tree.pool.writer[node.blocks[-1]] is seq, "it alone writes on"


def test_only_what_is_computed_is_published() -> None:
    tree = tree_of()
    seq = runs(tree, A, 3)
    seq.block_table.append(tree.pool.allocate(seq))  # for what it computes next
    tree.publish(seq)
    (node,) = tree.root.children.values()
    assert contents(tree) == {tuple(A[:3])} and node.blocks == seq.block_table[:1]


def test_a_chunk_goes_on_in_the_own_tail_in_the_same_node() -> None:
    tree = tree_of()
    seq = runs(tree, A, 3)
    tree.publish(seq)
    for stop in (5, 7):
        seq.computed = stop
        seq.block_table += [tree.pool.allocate(seq) for _ in range(tree.pool.num_blocks(stop) - len(seq.block_table))]
        tree.publish(seq)
        (node,) = tree.root.children.values()
        assert (node.token_ids, node.blocks, node.children) == (A[:stop], seq.block_table, {})


def test_the_same_twice_is_once_there_and_the_duplicates_are_free() -> None:
    tree = tree_of()
    first, second = runs(tree, A), runs(tree, A)
    tree.publish(first)
    tree.publish(second)
    assert contents(tree) == {tuple(A)} and second.block_table == first.block_table
    assert tree.pool.num_held == 2 and [tree.pool.ref_count[block] for block in first.block_table] == [2, 2]


def test_a_duplicate_tail_stays_private() -> None:
    tree = tree_of()
    first, second = runs(tree, A[:6]), runs(tree, A[:6])
    tree.publish(first)
    tree.publish(second)
    assert second.block_table[0] == first.block_table[0] and second.block_table[1] != first.block_table[1]
    assert tree.pool.owner[second.block_table[1]] is second
    goes_on(tree, first, 50)
    goes_on(tree, second, 60)
    assert contents(tree) == {(*A[:6], 50), (*A[:6], 60)}
    for seq in (first, second):
        leaves(tree, seq)
    assert tree.pool.num_held == 0 and tree.pool.num_cached == 3


@pytest.mark.parametrize("length", [2, 6])
@pytest.mark.parametrize("writes", [True, False])
def test_a_first_child_takes_the_tail_over_or_frees_it(length: int, writes: bool) -> None:
    """A node with children owns no block for a tail: its writer keeps it, and where there is none it is free."""
    tree = tree_of()
    first = runs(tree, A[:length])
    tree.publish(first)
    (node,) = tree.root.children.values()
    tail, free, whole = node.blocks[-1], tree.pool.num_free, length // SIZE
    if not writes:
        leaves(tree, first)
    tree.publish(runs(tree, [*A[:length], 90]))
    assert len(node.blocks) == whole and len(node.children) == 1
    assert tree.pool.owner[tail] is (first if writes else None)
    assert tree.pool.num_free == free - (1 + whole) + whole + (not writes)


def test_a_split_moves_no_block_and_keeps_the_age() -> None:
    tree = tree_of()
    tree.step = 5
    put(tree, list(range(10)))
    (node,) = tree.root.children.values()
    blocks, used, key = list(node.blocks), node.used, node.used_step
    tree.step = 6
    upper = tree._split(node, 6)
    assert (upper.start, upper.token_ids, upper.blocks) == (0, list(range(6)), blocks[:1])
    assert (node.start, node.token_ids, node.blocks) == (6, [6, 7, 8, 9], blocks[1:])
    assert upper.children == {6: node} and node.parent is upper and tree.root.children == {0: upper}
    assert (upper.used, upper.used_step) == (used, key) == (used, 5)
    assert tree.pool.owner[blocks[0]] is upper and tree.pool.owner[blocks[1]] is node


# ---- what the record is told


def test_the_record_names_what_was_added_extended_split_and_removed() -> None:
    tree = tree_of()
    changes = tree.pool.changes
    seq = runs(tree, [1, 2, 3])
    tree.publish(seq)
    assert (changes.added, changes.extended, changes.split) == ([1], [], [])
    goes_on(tree, seq, 4)
    goes_on(tree, seq, 5)
    assert (changes.added, changes.extended) == ([1], [1, 1])
    tree.match([1, 2])
    assert changes.split == [2]
    leaves(tree, seq)
    tree.clear()
    assert changes.removed == [1, 2]


def test_the_record_is_told_from_where_on_a_node_is_new() -> None:
    tree = tree_of()
    seq = runs(tree, [1, 2, 3])
    tree.publish(seq)
    tree.pool.changes.take_tree()
    goes_on(tree, seq, 4)
    (change,) = tree.pool.changes.take_tree().nodes
    assert (change.tokens_kept, change.token_ids, change.blocks_kept, change.blocks) == (3, (4,), 1, ())
    goes_on(tree, seq, 5)
    (change,) = tree.pool.changes.take_tree().nodes
    assert (change.tokens_kept, change.token_ids, change.blocks_kept) == (4, (5,), 1)
    assert change.blocks == tuple(seq.block_table[1:])
    tree.match([1, 2, 3, 4, 5])
    assert tree.pool.changes.take_tree().nodes == ()
    tree.match([1, 2, 3])
    upper, lower = sorted(tree.pool.changes.take_tree().nodes, key=lambda one: one.start)
    assert (upper.tokens_kept, upper.token_ids, upper.blocks) == (0, (1, 2, 3), ())
    assert (lower.tokens_kept, lower.token_ids, lower.blocks) == (0, (4, 5), tuple(seq.block_table))

"""The radix tree by itself: what it holds, says, forgets first and tells the record."""

from __future__ import annotations

import random

import pytest

from yaie_engine import radix_tree
from yaie_engine.block_pool import BlockPool
from yaie_engine.graft import graft
from yaie_engine.radix_tree import Node, RadixTree
from yaie_engine.sequence import Sequence

SIZE = 4


def tree_of(*prompts: list[int], total: int = 64) -> RadixTree:
    tree = RadixTree(BlockPool(total, SIZE))
    for prompt in prompts:
        put(tree, prompt)
    return tree


def put(tree: RadixTree, prompt: list[int], namespace: str = "") -> None:
    """As if a request had computed it and left."""
    graft(tree, list(prompt), lambda *_: None, namespace, least=1)


def runs(tree: RadixTree, prompt: list[int], computed: int | None = None, namespace: str = "") -> Sequence:
    """A sequence that has computed so much by itself, and has not published it."""
    seq = Sequence(7, "r7", list(prompt), len(prompt), 1, namespace=namespace, state="running")
    seq.computed = len(prompt) if computed is None else computed
    seq.block_table = [tree.pool.allocate(seq) for _ in range(tree.pool.num_blocks(seq.computed))]
    return seq


def goes_on(tree: RadixTree, seq: Sequence, token: int) -> None:
    """One token more, computed and published."""
    seq.token_ids.append(token)
    seq.computed += 1
    if tree.pool.num_blocks(seq.computed) > len(seq.block_table):
        seq.block_table.append(tree.pool.allocate(seq))
    tree.publish(seq)


def leaves(tree: RadixTree, seq: Sequence) -> None:
    for block in seq.block_table:
        tree.pool.writer[block] = None
        owner = tree.pool.owner[block]
        if tree.pool.drop(block) and isinstance(owner, Node):
            tree.queue(owner)
        if owner is seq:
            tree.pool.free(block)


def contents(tree: RadixTree, namespace: str = "") -> set[tuple[int, ...]]:
    """Every path from the root to a leaf."""
    nodes = [node for node in tree.nodes() if node.namespace == namespace and node.parent and not node.children]
    return {tuple(token for part in tree.path(node) for token in part.token_ids) for node in nodes}


A, B, C = [list(range(start, start + 8)) for start in (0, 100, 200)]

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


# ---- what goes first


def first_to_go(tree: RadixTree) -> set[tuple[int, ...]]:
    before = contents(tree)
    assert tree.evict_one()
    return before - contents(tree)


def test_what_was_matched_last_goes_last() -> None:
    """Of two that were published in any order; a match alone counts as a use of its own."""
    for order in ((A, B), (B, A)):
        tree = tree_of(A, B)
        for prompt in order:
            assert tree.match(prompt).end == 8
        assert first_to_go(tree) == {tuple(order[0])}


def test_what_was_published_last_goes_last() -> None:
    tree = tree_of()
    one, two = runs(tree, A[:6]), runs(tree, B[:6])
    for seq in (one, two):
        tree.publish(seq)
    goes_on(tree, one, 50)
    for seq in (one, two):
        leaves(tree, seq)
    assert first_to_go(tree) == {tuple(B[:6])}


def test_who_reads_a_whole_prompt_from_the_cache_makes_it_recent_when_it_publishes() -> None:
    tree = tree_of(A)
    reader = Sequence(8, "r8", list(A), 8, 1, state="running")
    reader.block_table = tree.blocks_to(tree.match(A))
    for block in reader.block_table:
        tree.pool.hold(block)
    put(tree, B)
    reader.computed = 8
    tree.publish(reader)
    leaves(tree, reader)
    assert first_to_go(tree) == {tuple(B)}


def test_what_only_begins_with_the_next_token_is_not_used() -> None:
    """A sequence that has computed four tokens and knows its fifth did not use the node that goes on with it."""
    tree = tree_of()
    put(tree, [1, 2, 3, 4, 5])
    put(tree, [1, 2, 3, 4, 6])
    seq = runs(tree, [1, 2, 3, 4, 5], 4)
    tree.publish(seq)
    leaves(tree, seq)
    assert first_to_go(tree) == {(1, 2, 3, 4, 5)}


def test_eviction_is_of_leaves_and_whole_paths_go_from_their_end() -> None:
    tree = tree_of([1, 2, 3, 4, 5], [1, 2, 3, 4, 6])
    tree.match([1, 2, 3, 4, 5])
    assert first_to_go(tree) == {(1, 2, 3, 4, 6)}
    assert first_to_go(tree) == {(1, 2, 3, 4, 5)} and contents(tree) == {(1, 2, 3, 4)}
    assert first_to_go(tree) == {(1, 2, 3, 4)} and not tree.evict_one() and tree.pool.num_free == 64


def test_a_leaf_is_cut_back_to_its_last_held_block() -> None:
    tree = tree_of(list(range(14)))
    (node,) = tree.root.children.values()
    tree.pool.hold(node.blocks[1])
    assert tree.evict_one() and node.token_ids == list(range(8)) and len(node.blocks) == 2
    assert not tree.evict_one() and tree.pool.num_free == 62
    assert tree.pool.changes.evicted and not tree.pool.changes.freed


def test_to_evict_is_to_free_so_many_and_no_more() -> None:
    tree = tree_of(A, B, C, total=6)
    tree.evict(0)
    assert tree.pool.num_free == 0
    tree.evict(1)
    assert tree.pool.num_free == 2 and contents(tree) == {tuple(B), tuple(C)}
    tree.evict(2)
    assert tree.pool.num_free == 2
    for block in range(6):
        if tree.pool.owner[block]:
            tree.pool.hold(block)
    with pytest.raises(RuntimeError, match="only 2 can be freed"):
        tree.evict(3)


def test_pressure_asks_where_to_keep_it_and_a_reset_does_not() -> None:
    tree = tree_of(A, B, C)
    spilled: list[list[int]] = []
    tree.spill = lambda node: spilled.append(list(node.token_ids))
    tree.evict_one()
    assert spilled == [A] and tree.pool.changes.evicted and not tree.pool.changes.freed
    assert tree.clear() == 4
    assert spilled == [A] and len(tree.pool.changes.freed) == 4 and tree.clear() == 0


def test_a_namespace_is_dropped_as_far_as_nobody_holds_it() -> None:
    tree = tree_of(A)
    for prompt in (B, [*B, 1], [*B, 2], [*B[:4], 7]):
        put(tree, prompt, "a")
    held = tree.match([*B, 1], "a")
    tree.pool.hold(held.blocks[-1])
    tree.drop_namespace("unknown")
    tree.drop_namespace("a")
    assert contents(tree, "a") == {(*B, 1)} and contents(tree) == {tuple(A)}
    assert tree.pool.changes.freed and not tree.pool.changes.evicted, "nothing was short"
    tree.pool.drop(held.blocks[-1])
    tree.drop_namespace("a")
    assert list(tree.roots) == [""] and tree.pool.num_cached == 2


def test_a_damaged_end_is_discarded_up_to_where_another_branches_off() -> None:
    tree = tree_of(A, [*A, 1, 2, 3, 4, 5], [*A, 1, 2, 9])
    tree.discard([*A, 1, 2, 3, 4, 5], "")
    assert contents(tree) == {(*A, 1, 2, 9)}
    (held,) = tree.root.children.values()
    tree.pool.hold(held.blocks[0])
    tree.discard([*A, 1, 2, 9], "")
    assert contents(tree) == {tuple(A[:4])} and tree.pool.num_cached == 0 and tree.pool.num_held == 1
    tree.discard(B, "")
    tree.discard(B, "unknown")
    assert contents(tree) == {tuple(A[:4])}


def test_another_tree_over_a_new_pool_goes_on_with_ids_and_ages() -> None:
    tree = tree_of(A)
    tree.step, tree.spill = 9, lambda node: None
    pool = BlockPool(4, SIZE)
    other = tree.empty(pool)
    assert other.pool is pool and pool.changes.wiped and list(other.nodes()) == [other.root]
    assert (other.step, other.spill, other._clock) == (9, tree.spill, tree._clock)
    put(other, B)
    assert max(node.id for node in other.nodes()) == max(node.id for node in tree.nodes()) + 1


def test_many_removed_leaves_do_not_fill_the_queue() -> None:
    """Entries of nodes that are gone are swept when they are most of it."""
    tree = tree_of(total=4000)
    for i in range(400):
        put(tree, [i, i], f"n{i % 2}")
        tree.drop_namespace(f"n{i % 2}")
        assert len(tree._lru) <= 65 and dead(tree) == tree._num_dead
    put(tree, A)
    assert first_to_go(tree) == {tuple(A)}


def dead(tree: RadixTree) -> int:
    return sum(entry[2].parent is None for entry in tree._lru)


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_swept_the_oldest_leaf_goes_first(seed: int) -> None:
    rng = random.Random(seed)
    tree = tree_of(total=2000)
    for i in range(150):
        put(tree, [i, 7, 7])
    for _ in range(150):
        tree.match([rng.randrange(150), 7])
    for i in range(300):
        put(tree, [i], "gone")
        if i % 3:
            tree.drop_namespace("gone")
        if i % 10 == 0:
            tree.evict_one()
        assert dead(tree) == tree._num_dead
    tree.drop_namespace("gone")
    ages = []
    while tree.root.children:
        used = {node: node.used for node in tree.nodes() if node.parent and not node.children}
        assert tree.evict_one()
        gone = [node for node in used if node.parent is None]
        ages += [used[node] for node in gone]
        assert ages[-1] == min(used.values())
    assert len(ages) > 100 and dead(tree) == tree._num_dead


def test_only_leaves_are_queued_and_each_once() -> None:
    tree = tree_of()
    tree.queue(tree.root)
    assert tree._lru == []
    put(tree, [1, 2, 3, 4])
    put(tree, [1, 2, 3, 4, 5])
    put(tree, [1, 2, 3, 4, 6])
    (inner,) = tree.root.children.values()
    inner.queued = False
    before = len(tree._lru)
    tree.queue(inner)
    for leaf in inner.children.values():
        tree.queue(leaf)
    assert len(tree._lru) == before and not inner.queued


def test_who_publishes_makes_its_whole_path_recent() -> None:
    tree = tree_of([1, 2, 3, 4, 5], [1, 2, 3, 4, 6])
    tree.step = 7
    tree.publish(runs(tree, [1, 2, 3, 4, 5, 9]))
    used = {tuple(node.token_ids): node.used_step for node in tree.nodes()}
    assert used[1, 2, 3, 4] == 7 and used[6,] == 0


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

"""What a radix tree gives up first, and how much of it."""

from __future__ import annotations

import random

import pytest

from tests.property.trees import SIZE, A, B, C, contents, goes_on, leaves, put, runs, tree_of
from yaie_engine.block_pool import BlockPool
from yaie_engine.radix_tree import Node, RadixTree
from yaie_engine.sequence import Sequence


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


def test_what_somebody_holds_again_is_neither_cut_nor_spilled() -> None:
    """It was let go, so it is queued; "evicted" would be a lie that costs a copy to the host."""
    tree = tree_of(A)
    spilled: list[Node] = []
    tree.spill = spilled.append
    held = tree.blocks_to(tree.match(A))
    for block in held:
        tree.pool.hold(block)
    assert not tree.evict_one() and not spilled and contents(tree) == {tuple(A)}
    for block in held:
        tree.let_go(block)
    assert tree.evict_one() and len(spilled) == 1 and not contents(tree)


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


def test_removed_ones_that_eviction_meets_are_counted_no_more() -> None:
    tree = tree_of(total=200)
    for i in range(20):
        put(tree, [i, i], f"n{i}")
        tree.drop_namespace(f"n{i}")
    put(tree, A)
    put(tree, B)
    assert dead(tree) == tree._num_dead == 20
    assert first_to_go(tree) == {tuple(A)}
    assert dead(tree) == tree._num_dead == 0


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


@pytest.mark.parametrize("namespace", ["", "a"])
def test_a_new_start_of_a_tree_that_holds_anything_is_in_the_record(namespace: str) -> None:
    tree = tree_of()
    pool = BlockPool(8, SIZE)
    tree.empty(pool)
    assert not pool.changes.wiped
    put(tree, A, namespace)
    tree.empty(pool)
    assert pool.changes.wiped


def test_what_two_nodes_hold_takes_the_place_of_what_was_computed_twice() -> None:
    tree = tree_of([*range(8), 50], [*range(16), 60], [*range(16), 70])
    seq = runs(tree, list(range(17)))
    tree.publish(seq)
    assert seq.block_table[:4] == tree.blocks_to(tree.match(list(range(16))))[:4]
    assert len(set(seq.block_table)) == 5


def test_the_oldest_goes_first_also_after_the_list_was_swept_of_removed_ones() -> None:
    tree, order = tree_of(total=512), list[int]()
    for start in range(0, 2000, 10):
        put(tree, list(range(start, start + SIZE)), "gone" if start % 30 else "")
    tree.evict(tree.pool.num_free + 30)
    tree.drop_namespace("gone")
    put(tree, list(range(5000, 5000 + SIZE)))
    assert len(tree._lru) == 58, "removed ones are swept, not only passed over"
    tree.spill = lambda node: order.append(node.token_ids[0])
    while tree.evict_one():
        pass
    assert len(order) == 58 and order == sorted(order)

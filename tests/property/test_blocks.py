"""The block pool by itself: what each call does to counts, owners, writers and the record."""

from __future__ import annotations

from yaie_engine.block_pool import BlockPool
from yaie_engine.sequence import Sequence


def sequence() -> Sequence:
    return Sequence(0, "r0", [1], 1, 1)


def counts(pool: BlockPool) -> tuple[int, int, int, int]:
    assert pool.num_free + pool.num_held + pool.num_cached == pool.total
    return pool.num_free, pool.num_held, pool.num_cached, pool.num_available


def test_a_new_pool_is_free_and_gives_its_first_block_first() -> None:
    pool = BlockPool(3, 4)
    assert counts(pool) == (3, 0, 0, 3) and pool.moves == 0 and pool.block_size == 4
    assert pool.ref_count == [0] * 3 and pool.owner == pool.writer == [None] * 3
    seq = sequence()
    assert [pool.allocate(seq) for _ in range(3)] == [0, 1, 2] and pool.changes.allocated == [0, 1, 2]
    assert counts(pool) == (0, 3, 0, 0) and pool.ref_count == [1] * 3
    assert pool.owner == pool.writer == [seq] * 3


def test_two_pools_share_no_record() -> None:
    one, two = BlockPool(1, 1), BlockPool(1, 1)
    one.allocate(sequence())
    assert two.changes.allocated == []
    assert BlockPool(1, 1, one.changes).changes is one.changes


def test_a_block_is_held_as_often_as_it_is_named() -> None:
    pool, seq = BlockPool(2, 4), sequence()
    block = pool.allocate(seq)
    pool.hold(block)
    assert counts(pool) == (1, 1, 0, 1) and pool.ref_count[block] == 2
    assert pool.drop(block) is False and counts(pool) == (1, 1, 0, 1)
    assert pool.drop(block) is True and counts(pool) == (1, 0, 1, 2)
    pool.hold(block)
    assert counts(pool) == (1, 1, 0, 1)


def test_a_freed_block_is_nobodys_and_goes_out_next() -> None:
    pool, seq = BlockPool(3, 4), sequence()
    one, two = pool.allocate(seq), pool.allocate(seq)
    for block, evicted in ((one, False), (two, True)):
        pool.drop(block)
        pool.free(block, evicted=evicted)
    assert pool.owner == pool.writer == [None] * 3 and counts(pool) == (3, 0, 0, 3)
    assert (pool.changes.freed, pool.changes.evicted) == ([one], [two])
    pool.hold(pool.free_blocks[0])
    pool.free(one)
    assert pool.changes.freed == [one, one], "freed unless said otherwise"


def test_what_comes_next_is_known_and_every_move_counts() -> None:
    pool, seq = BlockPool(5, 4), sequence()
    blocks = [pool.allocate(seq) for _ in range(3)]
    assert pool.moves == 3
    for block in blocks[:2]:
        pool.drop(block)
        pool.free(block)
    assert pool.moves == 5
    for count in range(5):
        coming = pool.upcoming(count)
        assert len(coming) == count and coming == [1, 0, 3, 4][:count]
    assert pool.moves == 5 and pool.free_blocks == [4, 3, 0, 1]
    assert [pool.allocate(seq) for _ in range(4)] == [1, 0, 3, 4] and pool.moves == 9
    pool.free_blocks.append(9)
    assert pool.num_free == 0


def test_tokens_touch_so_many_blocks() -> None:
    pool = BlockPool(8, 4)
    assert [pool.num_blocks(n) for n in (0, 1, 4, 5, 8, 9)] == [0, 1, 1, 2, 2, 3]

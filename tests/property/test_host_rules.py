"""The rules of host blocks, one by one, on the shadow KV."""

from __future__ import annotations

from tests.property.shadow import ShadowEngine, add, run
from yaie_engine.sequence import Sequence

HEAD = [1, 2, 3, 4, 5, 6]


def engine_of(total: int = 16, **kind: object) -> ShadowEngine:
    return ShadowEngine(total, 4, **{"host": 32, "swaps": True, "budget": 32, "shared": 0, **kind})  # type: ignore[arg-type]


def swapped(engine: ShadowEngine, prompt: list[int], priority: int = 0) -> Sequence:
    """A sequence that has computed its prompt and was preempted then."""
    seq = add(engine, prompt, 6, priority=priority)
    engine.step()
    engine.scheduler.preempt(seq)
    assert seq.swapped and seq.computed == 0
    engine.check()
    return seq


def test_a_tail_that_its_node_gave_up_while_it_was_held_becomes_free() -> None:
    """A longer path comes to the host behind a swapped one: the child holds the slots of the tail from then on."""
    engine = engine_of(seqs=1)
    short = swapped(engine, HEAD)
    host = engine.scheduler.host
    engine.scheduler.tree.clear()
    longer = swapped(engine, [*HEAD, 70, 71, 72], priority=1)
    given_up = [block for block in range(host.pool.total) if host.pool.ref_count[block] and not host.pool.owner[block]]
    assert len(given_up) == 1
    engine.scheduler.finish(short, "cancelled")
    assert given_up[0] in host.pool.free_blocks
    engine.check()
    engine.scheduler.finish(longer, "cancelled")
    host.tree.clear()
    assert host.pool.num_free == host.pool.total


def test_a_sequence_whose_copy_has_not_run_is_not_swapped_out() -> None:
    """Its new block holds nothing of the match yet."""
    engine = engine_of()
    reader = add(engine, [*HEAD, 7, 8], 9)  # decodes on: its blocks stay held
    engine.step()
    seq = add(engine, [*HEAD, 90], 3)
    plan = engine.scheduler.schedule()
    assert plan.copies and seq.computed == len(HEAD)
    engine.scheduler.preempt(seq)
    engine.scheduler.abort(plan)
    assert not seq.swapped and engine.spilled == 0
    engine.check()
    engine.drain()
    assert reader.state == seq.state == "finished"


def test_the_host_tells_namespaces_apart() -> None:
    engine = engine_of(total=4, swaps=False)
    run(engine, HEAD, namespace="mine")
    for start in (100, 200, 300):
        run(engine, [start + i for i in range(9)])  # what is salted goes out
    assert engine.scheduler.host.tree.roots.keys() == {"", "mine"} and engine.longest(HEAD, "mine") == 0
    for namespace in ("", "yours"):
        assert run(engine, HEAD, namespace=namespace).num_cached_tokens == 0
    restored = engine.restored
    assert run(engine, HEAD, namespace="mine").num_cached_tokens == len(HEAD) - 1 and engine.restored > restored


def test_of_another_namespace_not_even_more_of_the_same_prefix_comes_back() -> None:
    engine = engine_of(total=4, swaps=False)
    run(engine, HEAD, namespace="mine")
    run(engine, [*HEAD, 7, 8, 9])
    for start in (100, 200, 300):
        run(engine, [start + i for i in range(9)])
    assert run(engine, [*HEAD, 7, 8, 9, 10], namespace="mine").num_cached_tokens == len(HEAD)
    assert run(engine, [*HEAD, 7, 8, 9, 10]).num_cached_tokens == len(HEAD) + 3


def test_a_swapped_sequence_is_held_in_its_own_namespace() -> None:
    engine = engine_of()
    seq = add(engine, HEAD, 6, namespace="mine")
    engine.step()
    engine.scheduler.preempt(seq)
    assert seq.swapped and set(engine.scheduler.host.tree.roots) == {"", "mine"}
    engine.scheduler.tree.clear()
    other = run(engine, [*HEAD, 9])
    assert other.num_cached_tokens == 0 and other.restored_from_host == 0
    engine.drain()
    assert seq.num_computed_total == len(HEAD) + 5, "nothing of it was computed again"


def test_what_one_request_alone_may_see_is_not_kept_when_it_is_evicted() -> None:
    engine = engine_of(swaps=False)
    seq = add(engine, HEAD, 3, namespace="fork", private=True)
    engine.step()
    engine.scheduler.preempt(seq)
    while engine.scheduler.tree.evict_one():
        pass
    assert engine.spilled == 0 and set(engine.scheduler.host.tree.roots) == {""}
    engine.drain()


def test_a_swapped_one_comes_back_only_where_the_watermark_stays_and_nobody_passes_it() -> None:
    """It needs 2 blocks and one for a copy, of 4 that are left; it waits, is not computed again, and not passed."""
    for watermark, room in ((1, True), (2, False)):
        engine = engine_of(total=8, watermark=watermark)
        seq = swapped(engine, HEAD)
        engine.scheduler.tree.clear()
        add(engine, list(range(50, 64)), 3, priority=1)  # 4 blocks, in which it ends
        small = add(engine, [90], 1)
        plan = engine.step()
        assert (seq in [entry.seq for entry in plan.batch]) is room and (engine.restored > 0) is room
        assert room or small.state == "waiting"
        engine.drain()
        assert seq.num_computed_total == len(HEAD) + 5, "nothing of it was computed again"

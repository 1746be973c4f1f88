"""Policies, followers and displacement by themselves: over small queues, without a scheduler."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.property.trees import SIZE, put, tree_of
from yaie_engine import followers
from yaie_engine.block_pool import BlockPool
from yaie_engine.displacement import makes_room
from yaie_engine.fairness import FairPolicy, check_tenant
from yaie_engine.followers import Prefixes
from yaie_engine.policy import AGEING_STEPS, LongestPrefixPolicy, Policy, PriorityPolicy
from yaie_engine.radix_tree import RadixTree
from yaie_engine.sequence import Admission, Sequence
from yaie_engine.step_limits import Limits

TREE = tree_of()


def seq(seq_id: int, prompt: list[int] | None = None, **kind: Any) -> Sequence:
    tokens = [1, 2, 3] if prompt is None else prompt
    return Sequence(seq_id, f"r{seq_id}", list(tokens), len(tokens), 4, **kind)


def ids(found: Any) -> list[int]:
    return [each.seq_id for each in found]


# ---- who is due


def test_ages_and_pauses_are_those_that_are_documented() -> None:
    assert AGEING_STEPS == 512
    assert [Policy(ageing).pause for ageing in (512, 160, 16, 5)] == [32, 10, 1, 1]
    assert [kind(64).pause for kind in (LongestPrefixPolicy, PriorityPolicy, FairPolicy)] == [4, 64, 64]
    assert FairPolicy().ageing == Policy().ageing == 512


@pytest.mark.parametrize("kind", [Policy, PriorityPolicy, LongestPrefixPolicy])
def test_the_first_to_come_of_those_who_are_old_is_due_and_ranks_above_all(kind: type[Policy]) -> None:
    policy = kind(10)
    queue = [seq(4, priority=2**31 - 1), seq(0), seq(3, waited=10), seq(1, waited=7), seq(2, waited=9)]
    assert not any(policy.due(each) for each in queue), "nobody, before anybody was asked for"
    assert ids(policy.candidates(queue, TREE, 0, 8))[0] == 3, "ten steps are enough, and at step 0 too"
    assert [policy.due(each) for each in queue] == [False, False, True, False, False]
    assert ids(policy.candidates(queue, TREE, 3, 8))[:2] != [3, 3]
    assert sorted(ids(policy.candidates(queue, TREE, 3, 8))) == [0, 1, 2, 3, 4], "everybody once"
    due = next(each for each in queue if policy.due(each))
    assert due.seq_id == 1 and policy.rank(due) > policy.rank(queue[0]) == 2**31 - 1
    policy.admitted(queue[0], 3)
    assert policy.due(due), "another one was admitted"
    policy.admitted(due, 3)
    assert not any(policy.due(each) for each in queue)


def test_after_one_was_due_a_pause_passes_and_then_the_next_one_is() -> None:
    policy = Policy(32)  # a pause of two steps
    old = [seq(i, waited=40) for i in (1, 2)]
    policy.due_first(old, 5)
    policy.admitted(old[0], 5)
    assert policy.due_first(old[1:], 6) == ([], old[1:]) and not policy.due(old[1])
    assert policy.due_first(old[1:], 7) == (old[1:], [])
    assert policy.due_first([seq(1, queued_step=6)], 8)[0] == [] and not policy.due(seq(1)), "young ones are not"


def test_only_steps_in_the_queue_make_old() -> None:
    policy = Policy(10)
    assert policy.due_first([seq(1, queued_step=20)], 29)[0] == []
    assert ids(policy.due_first([seq(1, queued_step=20)], 30)[0]) == [1]
    assert ids(policy.due_first([seq(1, queued_step=20, waited=6)], 24)[0]) == [1]


# ---- whose place is taken, and who goes first


def test_the_last_admitted_of_the_lowest_rank_below_gives_up_its_place() -> None:
    running = [seq(i, rank=rank, admitted=at) for i, (rank, at) in enumerate([(0, 1), (2, 2), (1, 3), (0, 4), (3, 5)])]
    assert ids(PriorityPolicy().outranked(seq(9, priority=2), running)) == [3, 0, 2]
    assert Policy().outranked(seq(9, priority=2), running) == [] and not Policy.displaces and PriorityPolicy.displaces


def lpm(queue: list[Sequence], tree: RadixTree, left: int = 8) -> list[int]:
    return ids(LongestPrefixPolicy().candidates(queue, tree, 0, left))


def test_the_longest_prefix_goes_first_within_a_priority() -> None:
    tree = tree_of([1, 2, 3, 4, 5, 6])
    queue = [seq(0, [9]), seq(1, [1, 2, 9]), seq(2, [1, 2, 3, 4, 9]), seq(3, [1, 2, 3, 4, 8]), seq(4, [8], priority=1)]
    assert lpm(queue, tree) == [4, 2, 3, 1, 0]
    assert lpm(queue, tree, left=0) == [0, 1, 2, 3, 4]
    unread = [seq(0, [9]), seq(1, [1, 2, 3], read_cache=False), seq(2, [1, 9])]
    assert lpm(unread, tree) == [2, 0, 1]


def test_behind_the_first_1024_the_order_is_that_of_the_queue() -> None:
    tree = tree_of([1, 2, 3, 4, 5, 6])
    queue = [seq(i, [9]) for i in range(1026)]
    queue[1023], queue[1024] = seq(1023, [1, 2, 3]), seq(1024, [1, 2, 3, 4])
    assert lpm(queue, tree) == [1023, *range(1023), 1024, 1025]


def test_behind_about_2_to_the_18_compared_tokens_the_order_is_that_of_the_queue() -> None:
    known = list(range(2**17))
    tree = tree_of(known, total=2**15 + 8)
    queue = [seq(0, [-1]), *(seq(i, known) for i in (1, 2)), seq(3, known[:9]), seq(4, known[:50]), seq(5, [-2])]
    assert lpm(queue, tree) == [1, 2, 3, 0, 4, 5], "the third one was looked at, since no more than the most were"


# ---- tenants


def serve(policy: FairPolicy, each: Sequence, tokens: int) -> None:
    """As if it had come, run and ended."""
    policy.arrived(each)
    start(policy, each)
    for _ in range(tokens):
        policy.generated(each)
    policy.left(each)


def start(policy: FairPolicy, each: Sequence) -> None:
    each.admissions.append(Admission(1, each.num_tokens, each.computed, (), (), None))
    policy.admitted(each, 1)
    each.state = "running"


def test_an_output_token_costs_two_and_a_computed_prompt_token_one() -> None:
    policy = FairPolicy()
    serve(policy, seq(1, [1, 2, 3, 4, 5], tenant="a", computed=2), 4)
    assert policy.counters == {"a": 3 + 2 * 4} and policy.rank(seq(2, priority=9)) == policy.rank(seq(3))


def test_a_tenant_has_at_most_256_characters() -> None:
    check_tenant("x" * 256)


def test_who_comes_starts_with_the_least_of_those_that_wait() -> None:
    policy = FairPolicy()
    for name, tokens in (("a", 5), ("b", 2), ("c", 0)):
        serve(policy, seq(1, tenant=name), tokens)
        policy.arrived(seq(2, tenant=name))
    assert policy.counters == {"a": 13, "b": 20, "c": 16}, "each started with what the least of the others had"
    policy.arrived(seq(3, tenant="d"))
    assert policy.counters["d"] == 13


def test_the_books_are_right_after_preemptions_and_a_new_start() -> None:
    policy = FairPolicy()
    seqs = [seq(i, tenant="ab"[i % 2]) for i in range(6)]
    for each in seqs:
        policy.arrived(each)
    for each in seqs[:4]:
        start(policy, each)
    for each in seqs[:3]:
        each.state = "waiting"
        policy.put_back(each)
    assert policy._waiting == Counter({"a": 3, "b": 2}) and policy._live == Counter({"a": 3, "b": 3})
    policy.left(seqs[0])
    policy.left(seqs[3])
    assert policy._waiting == Counter({"a": 2, "b": 2}) and policy._live == Counter({"a": 2, "b": 2})
    policy.restarted([seqs[1], seqs[2]])
    assert policy._waiting == policy._live == Counter({"a": 1, "b": 1}), "the others are gone"
    policy.left(seqs[1])
    assert policy._live == policy._waiting == Counter({"a": 1})


def test_under_fair_shares_too_a_pause_passes_after_one_was_due() -> None:
    policy = FairPolicy(4)
    old = [seq(i, waited=9, tenant="a") for i in (1, 2)]
    for each in old:
        policy.arrived(each)
    assert ids(policy.due_first(old, 1)[0]) == [1]
    start(policy, old[0])
    assert not policy.due(old[0]) and policy.due_first(old[1:], 4)[0] == []
    assert ids(policy.due_first(old[1:], 5)[0]) == [2]


def test_idle_tenants_are_forgotten_when_there_are_more_than_256_then_twice_as_many() -> None:
    """But for those that have more than who comes would start with, who live, and the last one that was served."""
    policy = FairPolicy()
    for i in range(256):
        serve(policy, seq(i, [1], tenant=f"t{i}"), 0)
    assert len(policy.counters) == 256 and policy.counters["t255"] == 256, "each starts where the one before ended"
    policy.counters["t3"] = 10**6
    serve(policy, seq(1, [1], tenant="u0"), 0)
    assert len(policy.counters) == 257, "256 were no reason yet"
    lives = [seq(2, [1], tenant=name) for name in ("u1", *(f"v{i}" for i in range(199)))]
    policy.arrived(lives[0])
    assert set(policy.counters) == {"t3", "u0", "u1"}, "the floor of 257 is not above itself"
    for each in lives[1:]:
        policy.arrived(each)
    for i in range(54):
        serve(policy, seq(3, [1], tenant=f"w{i}"), 0)
    assert len(policy.counters) == 256
    serve(policy, seq(3, [1], tenant="x0"), 0)
    assert len(policy.counters) == 257 and "u0" in policy.counters
    serve(policy, seq(3, [1], tenant="x1"), 0)
    assert len(policy.counters) == 257 and "u0" not in policy.counters, "it has what whoever comes would start with"
    for i in range(2 * 256 + 1 - 257):
        serve(policy, seq(3, [1], tenant=f"y{i}"), 0)
        policy.counters[f"y{i}"] = 0
    assert len(policy.counters) == 2 * 256 + 1, "twice as many as were kept are no reason"
    serve(policy, seq(3, [1], tenant="z"), 0)
    assert len(policy.counters) == 257 + 2 and {"t3", "u1", "v198", "w53", "x1", "y255", "z"} <= set(policy.counters)


# ---- who follows

LONG = list(range(20))


def leading(least: int, *leaders: Sequence) -> Prefixes:
    prefixes = Prefixes(least)
    for each in leaders:
        prefixes.add(each)
    return prefixes


def patience(prefixes: Prefixes, follower: Sequence, tree: RadixTree = TREE, chunk: int = 4) -> int | None:
    """How long it may wait after it waited once; None: it does not wait at all."""
    waits = prefixes.worth_a_step(follower, tree, Limits(64, long_prefill_token_threshold=chunk))
    return follower.patience if waits else None


def test_prefixes_are_filed_in_grains_of_at_most_32_tokens() -> None:
    assert [Prefixes(least).grain for least in (0, 1, 5, 32, 100)] == [1, 1, 5, 32, 32]


@pytest.mark.parametrize(("shared", "steps"), [(3, None), (4, 0), (7, 0), (8, 1), (11, 1), (12, 2), (16, 3), (20, 4)])
def test_it_waits_as_long_as_its_shared_tokens_would_take_it(shared: int, steps: int | None) -> None:
    """In whole grains, one step of them at once."""
    assert patience(leading(4, seq(1, LONG)), seq(2, [*LONG[:shared], 77, 78])) == steps
    assert patience(leading(4, seq(1, LONG)), seq(2, LONG[:shared])) == steps
    assert patience(leading(4, seq(1, LONG[:shared])), seq(2, LONG[:shared])) == steps


def test_then_it_waits_no_more() -> None:
    prefixes, follower = leading(4, seq(1, LONG)), seq(2, LONG[:12])
    assert [patience(prefixes, follower) for _ in range(5)] == [2, 1, 0, None, None] and follower.patience == 0
    assert patience(prefixes, seq(3, LONG, patience=1)) == 0


def test_what_the_tree_has_is_not_waited_for() -> None:
    prefixes = leading(4, seq(1, LONG))
    found = [patience(prefixes, seq(2, LONG), tree_of(LONG[:known])) for known in (0, 3, 8, 16, 17, 20)]
    assert found == [4, 4, 2, 0, None, None]
    assert patience(prefixes, seq(2, LONG, namespace="a"), tree_of()) is None
    tree = tree_of()
    put(tree, LONG, "a")
    assert patience(prefixes, seq(2, LONG), tree) == 4, "what others know is not"


def test_who_has_little_left_or_a_namespace_of_its_own_leads_nobody() -> None:
    for computed, steps in ((0, 4), (16, 4), (17, None), (20, None)):
        assert patience(leading(4, seq(1, LONG, computed=computed)), seq(2, LONG)) == steps
    own = {"namespace": "own", "private": True}
    assert patience(leading(4, seq(1, LONG, **own)), seq(2, LONG, **own)) is None
    assert patience(leading(0, seq(1, LONG)), seq(2, LONG)) is None
    assert patience(leading(4, seq(1, LONG)), seq(2, LONG, read_cache=False)) is None


def test_it_leads_with_what_it_has_yet_to_compute() -> None:
    prefixes = leading(4, seq(1, LONG, computed=8))
    assert patience(prefixes, seq(2, LONG[:8])) is None and patience(prefixes, seq(2, LONG[:12])) == 2
    prefixes.clear()
    assert patience(prefixes, seq(2, LONG)) is None


def test_without_a_leader_even_one_token_is_not_waited_for() -> None:
    assert patience(leading(1), seq(2, LONG)) is None
    assert patience(leading(1, seq(1, [50, 51])), seq(2, LONG)) is None
    assert patience(leading(1, seq(1, LONG)), seq(2, [0, 99])) == 0


def test_two_heads_have_a_leader_each() -> None:
    prefixes = leading(4, seq(1, LONG), seq(2, LONG[::-1]))
    assert patience(prefixes, seq(3, LONG)) == 4 == patience(prefixes, seq(4, LONG[::-1]))


def test_of_equal_hashes_the_first_leads_unless_another_is_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followers, "hash", lambda value: 7, raising=False)
    first, second = seq(1, LONG), seq(2, LONG[::-1])
    assert patience(leading(4, first, second), seq(3, LONG)) == 4
    first, second = seq(1, LONG), seq(2, LONG[::-1], computed=4)
    assert patience(leading(4, first, second), seq(3, LONG)) is None
    assert patience(leading(4, first, second), seq(4, LONG[::-1])) == 4


# ---- whether enough places are given up


def holds(tree: RadixTree, seq_id: int, blocks: list[int]) -> Sequence:
    """One that runs with these blocks."""
    found = seq(seq_id, state="running", block_table=list(blocks))
    for block in blocks:
        tree.pool.hold(block)
    return found


def test_blocks_of_the_victims_make_room_where_nobody_else_names_them() -> None:
    tree = RadixTree(BlockPool(6, SIZE))
    low, lower, stays = holds(tree, 1, [0, 1, 2]), holds(tree, 2, [2, 3]), holds(tree, 3, [3, 4])
    wants = seq(9, list(range(8)), read_cache=False)
    for victims, blocks in (([], 1), ([low], 3), ([low, lower], 4), ([low, lower, stays], 6)):
        kept = blocks - 3  # two blocks of its own, and one on the safe side
        assert makes_room(tree, wants, 8, victims, kept), victims
        assert not makes_room(tree, wants, 8, victims, kept + 1), victims


@pytest.mark.parametrize(
    ("tokens", "chunk", "blocks"), [(5, 4, 1), (5, 5, 2), (5, 9, 2), (4, 1, 1), (9, 8, 2), (9, 9, 3)]
)
def test_it_needs_the_blocks_of_its_first_chunk_and_one_more(tokens: int, chunk: int, blocks: int) -> None:
    tree = RadixTree(BlockPool(9, SIZE))
    for read_cache in (True, False):
        wants = seq(9, list(range(tokens)), read_cache=read_cache)
        assert makes_room(tree, wants, chunk, [], 9 - blocks - 1)
        assert not makes_room(tree, wants, chunk, [], 9 - blocks)


def test_a_match_is_not_found_twice_but_is_not_free_for_others_any_more() -> None:
    known = list(range(16))
    for length, cached, fresh in ((16, 4, 1), (9, 3, 1), (3, 1, 1)):
        tree = tree_of(known, total=6)
        wants = seq(9, [*known[:length], 99, 98], namespace="")
        taken = cached + max(0, -(-(length + 1) // SIZE) - cached) + fresh
        assert makes_room(tree, wants, 1, [], 6 - taken) and not makes_room(tree, wants, 1, [], 7 - taken), length
        unread = seq(9, wants.token_ids, read_cache=False)
        assert makes_room(tree, unread, 1, [], 4) and not makes_room(tree, unread, 1, [], 5)


def test_a_match_that_somebody_holds_who_stays_takes_nothing() -> None:
    known = list(range(8))
    tree = tree_of(known, total=6)
    blocks = tree.blocks_to(tree.match(known))
    stays, low = holds(tree, 1, blocks), holds(tree, 2, [*blocks, 5])
    wants = seq(9, [*known, 99])
    assert makes_room(tree, wants, 1, [low], 2) and not makes_room(tree, wants, 1, [low], 3)
    assert makes_room(tree, wants, 1, [low, stays], 2) and not makes_room(tree, wants, 1, [low, stays], 3)


def test_what_is_held_beyond_the_match_is_none_of_its_blocks() -> None:
    known = list(range(16))
    tree = tree_of(known, total=8)
    holds(tree, 1, tree.blocks_to(tree.match(known)))
    wants = seq(9, [*known[:4], 99, 98])
    assert makes_room(tree, wants, 1, [], 2) and not makes_room(tree, wants, 1, [], 3)

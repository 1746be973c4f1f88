"""What a step may hold, as a table, and what a plan says of its entries."""

from __future__ import annotations

import pytest

from yaie_engine.plan import ScheduledSequence, StepPlan, decodes_first
from yaie_engine.sequence import Sequence
from yaie_engine.step_limits import Limits


def test_the_defaults_are_those_of_the_configuration() -> None:
    assert Limits() == Limits(512, 64, 0, True, None, 32)


@pytest.mark.parametrize(
    ("remaining", "left", "share"),
    [(1, 5, 1), (1, 1, 1), (1, 0, 0), (1, -2, 0), (2, 1, 1), (9, 5, 5), (9, 0, 0), (9, -1, 0), (9, 20, 9), (0, 5, 0)],
)
def test_a_prompt_takes_what_is_left_and_a_decode_one(remaining: int, left: int, share: int) -> None:
    assert Limits(16).share(remaining, left) == share


def test_a_long_prompt_takes_no_more_than_its_limit() -> None:
    limits = Limits(16, long_prefill_token_threshold=4)
    assert [limits.share(n, 10) for n in (1, 3, 4, 5, 50)] == [1, 3, 4, 4, 4] and limits.share(50, 2) == 2


@pytest.mark.parametrize(
    ("remaining", "left", "planned", "share"),
    [(8, 8, [5], 8), (9, 8, [5], 0), (9, 8, [2], 0), (9, 8, [1, 1], 9), (9, 8, [], 9), (8, 9, [2], 8), (1, 0, [], 0)],
)
def test_a_whole_prompt_goes_where_it_fits_or_beside_decodes_alone(
    remaining: int, left: int, planned: list[int], share: int
) -> None:
    limits = Limits(16, chunked_prefill=False, long_prefill_token_threshold=4)
    assert limits.share(remaining, left, planned) == share


def sequence(prefill_end: int, valid: int = 0) -> Sequence:
    seq = Sequence(0, "r0", list(range(9)), 9, 4, valid=valid, prefill_end=prefill_end)
    seq.block_table = [3, 4, 5]
    return seq


def test_an_entry_says_what_it_computes_writes_and_gives() -> None:
    part = ScheduledSequence.of(sequence(9), 2, 4, 9)
    assert (part.start, part.stop, part.num_tokens, part.first_write) == (2, 6, 4, 2)
    assert part.kind == "prefill" and not part.samples and part.table == [3, 4, 5]
    last = ScheduledSequence.of(sequence(9, valid=9), 8, 1, 9)
    assert last.first_write == 9 and last.kind == "prefill" and last.samples
    decode = ScheduledSequence.of(sequence(8), 8, 1, 9, [7])
    assert decode.kind == "decode" and decode.samples and decode.table == [7]


def test_a_plan_is_empty_unless_told_and_puts_decodes_first() -> None:
    one, two = StepPlan(1), StepPlan(2)
    one.batch.append(ScheduledSequence.of(sequence(9), 0, 4, 9))
    assert (two.batch, two.copies, two.released, two.preempted, two.inputs) == ([], [], [], [], None)
    assert one.num_tokens == 4 and one.sampling == []
    prefill, last, decode = (
        ScheduledSequence.of(sequence(end), start, count, 9) for end, start, count in ((9, 0, 4), (9, 8, 1), (8, 8, 1))
    )
    plan = StepPlan(3, decodes_first([prefill, last, decode]))
    assert plan.batch == [decode, prefill, last] and plan.sampling == [decode, last] and plan.num_tokens == 6

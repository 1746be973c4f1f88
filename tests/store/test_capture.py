"""A prefix leaves the blocks a piece at a time, so that no stream waits for all of it; and it is whole, or not kept."""

from __future__ import annotations

from typing import Any

import pytest

from tests.store.conftest import GREEDY, Open, ask, tokens
from tests.store.test_restore import ASK, PREFIX, records
from yaie_engine import SamplingParams, StoreError
from yaie_engine.store import capture
from yaie_engine.store.capture import BlockCapture, Copying

LONG = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Pieces of one block each; notes (step, tokens copied) after each that comes later than its forward."""
    monkeypatch.setattr(capture, "PIECE_BYTES", 1)
    found: list[tuple[int, int]] = []
    next_piece = BlockCapture._next_piece

    def noting(self: BlockCapture, copying: Copying) -> bool:
        done = next_piece(self, copying)
        assert self._engine is not None
        found.append((self._engine.scheduler.step, copying.copy.copied))
        return done

    monkeypatch.setattr(BlockCapture, "_next_piece", noting)
    return found


def test_pieces_are_copied_between_the_steps_of_others(open_llm: Open, pieces: list[tuple[int, int]]) -> None:
    with open_llm(prefix_store=None) as plain:
        cold = tokens(ask(plain, ASK))
    llm = open_llm(block_size=4, num_blocks=64)
    other = llm.submit([1, 2, 3, 4], LONG)
    next(iter(other))
    llm.save_prefix(PREFIX)
    assert [count for _, count in pieces] == [*range(8, len(PREFIX), 4), len(PREFIX)]
    assert len({step for step, _ in pieces}) > 1  # the other one went on meanwhile
    assert len(tokens(other.result(60))) == 60
    llm.close()
    output = ask(open_llm(), ASK)
    assert (tokens(output), output.metrics.reuse, output.num_cached_tokens) == (cold, "store", len(PREFIX))


def test_what_was_begun_is_copied_before_the_engine_closes(open_llm: Open, pieces: list[tuple[int, int]]) -> None:
    llm = open_llm(block_size=4, num_blocks=64)
    assert llm.prefixes is not None
    llm.prefixes.store.want(PREFIX)
    ask(llm, ASK)
    llm.close()
    assert len(records(llm)) == 1 and pieces[-1][1] == len(PREFIX)


@pytest.mark.parametrize("times", [1, 99])
def test_blocks_that_make_room_meanwhile(
    open_llm: Open, pieces: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Who asked for the prefix has it computed again, and hears of it where that goes on."""
    llm, left = open_llm(block_size=4, num_blocks=64), [times]
    next_piece = BlockCapture._next_piece

    def emptied(self: BlockCapture, copying: Copying) -> bool:
        assert self._engine is not None
        if left[0] and copying.copy.copied >= 12:
            left[0] -= 1
            self._engine.scheduler.tree.clear()
        return next_piece(self, copying)

    monkeypatch.setattr(BlockCapture, "_next_piece", emptied)
    if times == 1:
        assert len(llm.save_prefix(PREFIX).token_ids) == len(PREFIX)
    else:
        with pytest.raises(StoreError, match="made room for others"):
            llm.save_prefix(PREFIX)
        assert records(llm) == [] and left[0] == 99 - 3
    assert len(tokens(ask(llm, ASK, GREEDY))) == GREEDY.max_tokens


def test_a_copy_that_fails_loses_its_record_only(
    open_llm: Open, pieces: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = open_llm(block_size=4, num_blocks=64)

    def broken(*_: Any) -> bool:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(BlockCapture, "_next_piece", broken)
        with pytest.raises(StoreError, match="MemoryError"):
            llm.save_prefix(PREFIX)
    assert len(llm.save_prefix(PREFIX).token_ids) == len(PREFIX)

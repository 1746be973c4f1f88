"""Memory in huge pages: what is handed out is apart, aligned, usable, and goes back with its last user."""

from __future__ import annotations

import mmap
from pathlib import Path

import psutil
import pytest
import torch

from yaie_cuda.cpu import pages
from yaie_cuda.cpu.pages import ALIGNED, CHUNK, HUGE, Pages


def test_pieces_are_apart_and_aligned() -> None:
    arena = Pages()
    counts = [1, 33, 5, 70_000, CHUNK // 4 + 1, 0, 7]
    pieces = [arena.empty(count, torch.float32).fill_(number) for number, count in enumerate(counts)]
    assert [len(piece) for piece in pieces] == counts
    assert all(bool((piece == number).all()) for number, piece in enumerate(pieces))
    assert all(piece.data_ptr() % ALIGNED == 0 for piece in pieces)
    assert pieces[0].data_ptr() % HUGE == 0 and pieces[1].data_ptr() - pieces[0].data_ptr() == ALIGNED
    assert arena.empty(3, torch.int8).dtype == torch.int8


def resident() -> int:
    return int(psutil.Process().memory_info().rss)


def test_memory_goes_back_with_its_last_tensor_and_takes_none_before_it_is_written() -> None:
    arena, before = Pages(), resident()
    pieces = [arena.empty(CHUNK, torch.uint8) for _ in range(4)]
    assert resident() - before < CHUNK
    for piece in pieces:
        piece.fill_(1)
    assert resident() - before > 3 * CHUNK
    part = pieces[0][:10]
    del pieces, piece
    assert resident() - before < 2 * CHUNK and part.tolist() == [1] * 10


ENABLED = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(
    not hasattr(mmap, "MADV_HUGEPAGE") or not ENABLED.exists() or "[never]" in ENABLED.read_text(encoding="utf-8"),
    reason="no huge pages here",
)
def test_the_kernel_was_asked_for_huge_pages() -> None:
    piece = Pages().empty(8 * HUGE, torch.uint8).fill_(1)
    start, advised = piece.data_ptr(), ""
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        first, _, rest = line.partition("-")
        if rest and all(letter in "0123456789abcdef" for letter in first):
            inside = int(first, 16) <= start < int(rest.split()[0], 16)
        elif inside and line.startswith("VmFlags:"):
            advised = line
    assert " hg" in advised


def test_without_huge_pages_it_is_plain_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE", raising=False)
    assert Pages().empty(1000, torch.bfloat16).fill_(2).sum() == 2000


def test_memory_that_cannot_be_had_is_a_memory_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(pages.mmap, "mmap", refuse)
    with pytest.raises(MemoryError, match="cannot be had"):
        Pages().empty(1000, torch.bfloat16)

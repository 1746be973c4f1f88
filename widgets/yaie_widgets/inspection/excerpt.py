"""Which tokens of a long text a view shows before it is asked for all."""

from __future__ import annotations

END, EDGE, FEW, SMALL_GAP = 14, 4, 48, 6
TWIN_HEAD, TWIN_TAIL = 480, 20


def prompt_parts(length: int, cached: int) -> list[tuple[int, int]]:
    """(first, last + 1) of the parts: both ends, and where the cached part ends."""
    if length <= FEW:
        return [(0, length)] if length else []
    edge = [(cached - EDGE, cached + EDGE)] if 0 < cached < length else []
    return _joined([(0, END), *edge, (length - END, length)], length)


def output_parts(length: int) -> list[tuple[int, int]]:
    """The parts of an output that a static view shows."""
    if length <= TWIN_HEAD + TWIN_TAIL:
        return [(0, length)] if length else []
    return [(0, TWIN_HEAD), (length - TWIN_TAIL, length)]


def _joined(parts: list[tuple[int, int]], length: int) -> list[tuple[int, int]]:
    """Parts in order; those with a gap of a few tokens between them are one."""
    found: list[tuple[int, int]] = []
    for first, last in sorted((max(0, first), min(length, last)) for first, last in parts):
        if found and first - found[-1][1] < SMALL_GAP:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found

"""Row 3: cancels at any step and in every state that a request can be in."""

from __future__ import annotations

import torch

from tests.fault.cancels import STATES, storm

from .figure import Figure

MOST_STEPS = 2


def random_cancels(size: int, seed: int) -> Figure:
    """At least `size` cancels over the real engine thread, a half of them while steps overlap with host work."""
    torch.set_num_threads(1)
    faults, cancels, requests, slowest = [], 0, 0, 0
    for overlap in (False, True):
        found = storm(-(-size // 2), seed, overlap)
        cancels, requests = cancels + found.cancels.total(), requests + found.requests
        slowest = max(slowest, found.slowest)
        faults += [*found.wrong, *found.leaked] + (["terminals lost: " + str(found.lost)] if found.lost else [])
        faults += [f"no cancel in state {state}" for state in STATES if not found.cancels[state]]
    if slowest > MOST_STEPS:
        faults.append(f"{slowest} steps from a cancel to the last block that it frees")
    told = f"{requests:,} requests, {len(faults)} lost, leaked or wrong, at most {slowest} steps to free"
    return Figure(f"{cancels:,} cancels", told, tuple(faults))

"""The five steps of the colour scales: how likely a token was, and how open the choice."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Final

LIKELY: Final = (0.9, 0.5, 0.2, 0.05)
OPEN: Final = (0.5, 1.0, 2.0, 3.0)
SCALES: Final[dict[str, dict[str, Any]]] = {
    "probability": {
        "title": "Probability",
        "limits": LIKELY,
        "labels": ("≥ 90 %", "50 to 90 %", "20 to 50 %", "5 to 20 %", "< 5 %"),
    },
    "entropy": {
        "title": "Entropy, at least",
        "limits": OPEN,
        "labels": ("< 0.5 bits", "0.5 to 1", "1 to 2", "2 to 3", "≥ 3 bits"),
    },
}


def level_of_probability(probability: float) -> int:
    """0 for a token that was nearly certain, 4 for one that hardly was to be expected."""
    return sum(probability < limit for limit in LIKELY)


def level_of_entropy(bits: float) -> int:
    """0 where hardly anything else could follow, 4 where the choice was wide open."""
    return bisect_right(OPEN, bits)

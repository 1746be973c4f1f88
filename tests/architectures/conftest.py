"""Freed blocks of every kind of model hold NaN, too: window, sinks, mixed layers, states beside blocks."""

from __future__ import annotations

from tests.poison import poisoned

__all__ = ["poisoned"]

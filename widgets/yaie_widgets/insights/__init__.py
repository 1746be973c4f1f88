"""What a run means: findings computed from snapshot, tape and history, and how they show."""

from __future__ import annotations

from .find import find_insights
from .finding import Figure, Finding, Span
from .view import Insights

__all__ = ["Figure", "Finding", "Insights", "Span", "find_insights"]

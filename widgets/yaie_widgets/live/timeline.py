"""The scheduler's steps, live: a bar for what each request did, and one step in figures."""

from __future__ import annotations

from .step_view import StepView


class SchedulerTimeline(StepView):
    """Follows an engine, or shows a saved run."""

    NAME = "timeline"

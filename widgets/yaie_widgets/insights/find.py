"""The one computation behind text, HTML and JSON of a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from yaie_widgets.prompt_split import Decode

from .contradictions import setting_findings
from .latency import bound_findings, first_token_findings
from .pressure import eviction_findings, pool_findings, preemption_findings
from .reuse import reuse_findings
from .run import Run, Settings
from .usage import usage_findings
from .view import Insights
from .walk import Report

if TYPE_CHECKING:
    from yaie_engine.config import EngineConfig
    from yaie_engine.record import RequestRecord
    from yaie_engine.snapshot import EngineSnapshot
    from yaie_engine.tape import Tape

PARTS = (
    bound_findings,
    first_token_findings,
    reuse_findings,
    preemption_findings,
    pool_findings,
    eviction_findings,
    setting_findings,
    usage_findings,
)


def find_insights(
    snapshot: EngineSnapshot,
    tape: Tape,
    history: Sequence[RequestRecord],
    config: EngineConfig,
    *,
    decode: Decode | None = None,
) -> Insights:
    """What the recorded run means, most severe first.

    `decode` turns token ids into text; with it the text where prompts part is exact to the token.
    """
    run = Run(snapshot, tape, tuple(history), Settings.of(config, snapshot), decode)
    report = Report(run)
    found = [finding for part in PARTS for finding in part(report)]
    return Insights(tuple(sorted(found, key=lambda finding: finding.order)), run.window)

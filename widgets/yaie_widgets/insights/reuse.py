"""Prefixes that two requests share and that were computed twice all the same, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from yaie_engine.common_start import common_start
from yaie_widgets.figures import count, counted
from yaie_widgets.prompt_split import find_split

from .finding import Confidence, Figure, Finding, Pair, Severity
from .run import Run, percent, worst_first
from .walk import Report, whole

if TYPE_CHECKING:
    from yaie_engine.record import RequestRecord

Cause = Literal["off", "state", "salt", "unread", "concurrent", "evicted", "dropped", "unrecorded", "unknown"]
# Shares of all prompt tokens that were computed although the cache could have had them. Below 5 % the first token of a
# typical prompt comes hardly earlier; from 25 % on a quarter of the prefill work is wasted.
HIGH_SHARE, MEDIUM_SHARE = 25.0, 5.0
# Pairs shown for each cause: enough to see a pattern, few enough to read.
SHOWN_PAIRS = 3
# Intended by whoever set it: worth knowing, never a problem of the engine.
_INTENDED: frozenset[Cause] = frozenset({"salt", "unread", "dropped"})
_TITLES: dict[Cause, str] = {
    "off": "Prefix caching is off, and prompts repeat",
    "state": "Prompts repeat, but this model's state cannot be shared",
    "salt": "Equal prompts were kept apart by their cache salt",
    "unread": "Equal prompts were computed without reading the cache",
    "concurrent": "Equal prompts ran before the first one was in the cache",
    "evicted": "Prefixes were evicted and computed again",
    "dropped": "Prefixes were computed again after the cache was cleared",
    "unrecorded": "Prefixes were computed twice",
    "unknown": "Prefixes were computed twice",
}
_WHY: dict[Cause, str] = {
    "off": "The engine was loaded without prefix caching, so every prompt is computed whole.",
    "state": "It keeps one state for each request instead of blocks that others could read.",
    "salt": "The earlier prompt lies in the cache under another cache_salt.",
    "unread": "The prefix was in the cache when they began; requests with prompt_logprobs do not read it.",
    "concurrent": "They were admitted before the steps that computed the prefix had ended.",
    "evicted": "The prefix was in the cache after the earlier request, and blocks were evicted before the later one.",
    "dropped": "The prefix left the cache without an eviction for room: it was reset, or built anew after an error.",
    "unrecorded": "The steps that would tell why are no longer recorded.",
    "unknown": "The recorded steps do not show why.",
}
_DO: dict[Cause, str] = {
    "off": "Load with --enable-prefix-caching.",
    "unread": "Leave prompt_logprobs out where they are not needed.",
    "concurrent": "Let one of the requests end, or get its first token, before the others are sent.",
    "evicted": "Raise --num-blocks, or send requests that share a prefix one after the other.",
}


@dataclass(frozen=True, slots=True)
class Miss:
    """`record` computed `lost` tokens that `other` had computed before; `equal` of their tokens are the same."""

    record: RequestRecord
    other: RequestRecord
    equal: int
    cause: Cause

    @property
    def lost(self) -> int:
        return self.equal - self.record.num_cached_tokens


Earlier = tuple["RequestRecord", tuple[int, ...]]
"""An earlier request with its prompt and answer."""


def reuse_findings(report: Report) -> Iterator[Finding]:
    """One finding for each cause, or one that says what is missing."""
    run = report.run
    prompt_tokens = sum(len(record.prompt_token_ids) for record in run.ran)
    by_cause: dict[Cause, list[Miss]] = {}
    for miss in misses(report):
        by_cause.setdefault(miss.cause, []).append(miss)
    for cause, found in by_cause.items():
        yield _finding(run, cause, found, prompt_tokens)


def misses(report: Report) -> list[Miss]:
    """For each request the earlier one it could have taken the most from, where it took a block less or more."""
    run, found = report.run, []
    block, begun = run.snapshot.blocks.block_size, run.ran
    groups: dict[tuple[int, ...], list[Earlier]] = {}
    for record in begun:
        prompt = record.prompt_token_ids
        best = _choose(report, record, groups.get(prompt[:block], []), block)
        if best is not None:
            other, equal = best
            found.append(Miss(record, other, equal, _cause(report, record, other, block)))
        tokens = whole(record)
        if len(tokens) >= block:
            groups.setdefault(tokens[:block], []).append((record, tokens))
    return found


def _choose(
    report: Report, record: RequestRecord, earlier: list[Earlier], block: int
) -> tuple[RequestRecord, int] | None:
    """One that it was allowed to share with, else any."""
    spaces = report.walk.namespace
    mine = spaces.get(record.request_id)
    near = [each for each in earlier if mine is None or spaces.get(each[0].request_id, mine) == mine]
    return _best(record, near, block) or _best(record, earlier, block)


def _best(record: RequestRecord, earlier: list[Earlier], block: int) -> tuple[RequestRecord, int] | None:
    """The earlier request with the longest equal start; the one that ended before this began goes first."""
    prompt, least = record.prompt_token_ids[:-1], record.num_cached_tokens + block
    best: tuple[int, bool, int] | None = None
    found = None
    for other, theirs in earlier:
        floor = max(least, best[0] if best else 0)
        if len(prompt) < floor or theirs[:floor] != prompt[:floor]:
            continue
        ended = other.last_step or 0
        rank = (common_start(prompt, theirs, floor), ended < (record.first_step or 0), ended)
        if best is None or rank >= best:
            best, found = rank, other
    return (found, best[0]) if found is not None and best is not None else None


def _cause(report: Report, record: RequestRecord, other: RequestRecord, block: int) -> Cause:
    run = report.run
    if run.snapshot.model.tier == "state":
        return "state"
    if not run.settings.caching:
        return "off"
    walk = report.walk
    began = walk.at_start.get(record.request_id)
    if began is None:
        return "unrecorded"
    mine, theirs = walk.namespace.get(record.request_id), walk.namespace.get(other.request_id)
    if mine is not None and theirs is not None and mine != theirs:
        return "salt"
    space = mine if mine is not None else theirs or ""
    wanted = record.num_cached_tokens + block
    if began.get(space, 0) >= wanted:
        return "unread"
    if (other.last_step or 0) >= (record.first_step or 0):
        return "concurrent"
    left_behind = walk.at_end.get(other.request_id)
    if left_behind is None:
        return "unrecorded"
    if left_behind.get(space, 0) < wanted:
        return "unknown"
    between = range((other.last_step or 0) + 1, (record.first_step or 0) + 1)
    evicted = any(run.steps[step].blocks.evicted for step in between if step in run.steps)
    return "evicted" if evicted else "dropped"


def _severity(cause: Cause, share: float) -> Severity:
    if cause in _INTENDED or share < MEDIUM_SHARE:
        return "info"
    return "high" if share >= HIGH_SHARE else "medium"


def _finding(run: Run, cause: Cause, found: list[Miss], prompt_tokens: int) -> Finding:
    lost = {miss.record.request_id: float(miss.lost) for miss in found}
    total = sum(miss.lost for miss in found)
    share = percent(total, prompt_tokens)
    certain: Confidence = "measured" if cause in ("off", "state") else "inferred"
    worst = sorted(found, key=lambda miss: (-miss.lost, miss.record.request_id))[:SHOWN_PAIRS]
    some = f"{counted(len(found), 'request')} computed {counted(total, 'token')} that an earlier request computed too"
    return Finding(
        id=f"reuse-{cause}",
        severity=_severity(cause, share),
        title=_TITLES[cause],
        statement=f"{some}, of {count(prompt_tokens)} prompt tokens in all. {_WHY[cause]}",
        span=run.span(run.ran),
        evidence=(
            Figure("computed again", total, "tokens"),
            Figure("share of prompts", share, "%"),
            Figure("requests", len(found)),
        ),
        request_ids=worst_first(lost),
        confidence=certain,
        recommendation=_DO.get(cause),
        pairs=tuple(_pair(run, miss) for miss in worst),
    )


def _pair(run: Run, miss: Miss) -> Pair:
    split = find_split(miss.record, miss.other, run.decode)
    return Pair(miss.record.request_id, miss.other.request_id, miss.record.num_cached_tokens, split)

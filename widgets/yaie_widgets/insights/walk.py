"""One walk along the tape: what the cache held when requests began and ended, who was left waiting, what was lost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from yaie_engine.tape import PUT_BACK, Frame, NodeState, TapeStep
from yaie_widgets.tree_view import common_prefix

from .run import Run

if TYPE_CHECKING:
    from yaie_engine.record import RequestRecord

# From this share of the pool on, blocks are what a new request lacks: the rest is the reserve for decoding requests.
POOL_FULL = 0.9
Covered = dict[str, int]
"""How many leading tokens of a sequence the tree holds, by namespace."""


@dataclass(slots=True)
class Waited:
    """Steps that ended with a request still waiting that had waited before them, by what the step was full of."""

    total: int = 0
    sequences: int = 0
    budget: int = 0
    blocks: int = 0


@dataclass(slots=True)
class Walk:
    """What was noted on the way; the dicts are by request id."""

    at_start: dict[str, Covered] = field(default_factory=dict)
    at_end: dict[str, Covered] = field(default_factory=dict)
    namespace: dict[str, str] = field(default_factory=dict)
    computed_again: dict[str, int] = field(default_factory=dict)
    peak_held: int = 0
    waited: Waited = field(default_factory=Waited)


class _Paths:
    """The tree of a frame, ready to be walked along token sequences; `lost` cuts nodes short or leaves them out."""

    def __init__(self, frame: Frame, lost: dict[int, int] | None = None) -> None:
        self.lost = lost or {}
        self.roots: dict[str, list[NodeState]] = {}
        self.below: dict[int, list[NodeState]] = {}
        for node in frame.nodes.values():
            if node.parent in frame.nodes:
                self.below.setdefault(node.parent, []).append(node)
            else:
                self.roots.setdefault(node.namespace, []).append(node)

    def cover(self, tokens: Sequence[int]) -> dict[str, tuple[int, list[NodeState]]]:
        """By namespace: how many tokens are there, and the nodes that hold them."""
        found = {name: self._follow(roots, tokens) for name, roots in self.roots.items()}
        return {name: way for name, way in found.items() if way[0]}

    def _follow(self, level: list[NodeState], tokens: Sequence[int]) -> tuple[int, list[NodeState]]:
        at, path = 0, []
        while at < len(tokens):
            node = next((n for n in level if n.token_ids and n.token_ids[0] == tokens[at]), None)
            if node is None:
                break
            path.append(node)
            run = tokens[at : at + len(node.token_ids)]
            equal = len(run) if list(run) == node.token_ids else common_prefix(run, node.token_ids)
            equal = min(equal, self.lost.get(node.id, equal))
            at += equal
            if equal < len(node.token_ids):
                break
            level = self.below.get(node.id, [])
        return at, path


class _Held:
    """The blocks in running tables, with how many tables each is in; costs what a step changes."""

    def __init__(self) -> None:
        self.users: dict[int, int] = {}

    def add(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            self.users[block] = self.users.get(block, 0) + 1

    def drop(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            self.users[block] -= 1
            if not self.users[block]:
                del self.users[block]

    def follow(self, frame: Frame, change: TapeStep) -> None:
        """Go on by one step that `frame` has not made yet."""
        left = {label for label, _ in change.left}
        for label in left & frame.tables.keys():
            self.drop(frame.tables[label].blocks)
        for table in change.tables:
            if table.label in left:
                continue
            if table.label in frame.tables:
                self.drop(frame.tables[table.label].blocks[table.kept :])
            self.add(table.blocks)


def walk(run: Run) -> Walk:
    """Move a frame along the tape and note what findings ask for."""
    return _Walker(run).go()


class _Walker:
    """The state of one walk."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.found = Walk()
        self.starting: dict[int, list[RequestRecord]] = {}
        self.ending: dict[int, list[RequestRecord]] = {}
        self.preempted: dict[str, int] = {}
        self.held = _Held()
        for record in run.ran:
            self.starting.setdefault(record.first_step or 0, []).append(record)
            self.ending.setdefault(record.last_step or 0, []).append(record)

    def go(self) -> Walk:
        frame = self.run.tape.base.copy()
        for table in frame.tables.values():
            self.held.add(table.blocks)
        self._ends(frame)
        for change in self.run.tape.steps:
            waiting = set(frame.waiting)
            self._starts(frame, change)
            self._preemptions(frame, change)
            self.held.follow(frame, change)
            frame.apply(change)
            self._ends(frame)
            self._queue(frame, change, waiting)
        return self.found

    def _starts(self, frame: Frame, change: TapeStep) -> None:
        """What the tree holds of the requests that begin with this step."""
        starting = self.starting.get(change.step, ())
        if not starting:
            return
        paths = _Paths(frame, self._lost(frame, change))
        for record in starting:
            covered = paths.cover(record.prompt_token_ids)
            self.found.at_start[record.request_id] = {name: n for name, (n, _) in covered.items()}

    def _lost(self, frame: Frame, change: TapeStep) -> dict[int, int]:
        """Tokens left of the nodes that a reset or an eviction cut before the step admitted anybody.

        What a new request matches is held from then on, so whatever the step lost of it was lost before.
        """
        if change.tree.wiped:
            return dict.fromkeys(frame.nodes, 0)
        record = self.run.steps.get(change.step)
        split = record.tree.split if record else ()
        shorter = {
            node.id: node.tokens_kept
            for node in change.tree.nodes
            if node.id in frame.nodes and node.id not in split and not node.token_ids
        }
        return shorter | dict.fromkeys(change.tree.removed, 0)

    def _ends(self, frame: Frame) -> None:
        """What the tree holds of the requests whose last step this was."""
        ending = self.ending.get(frame.step, ())
        if not ending:
            return
        paths = _Paths(frame)
        for record in ending:
            covered = paths.cover(whole(record))
            self.found.at_end[record.request_id] = {name: n for name, (n, _) in covered.items()}
            mine = {*record.blocks_owned, *record.blocks_shared}
            own = [name for name, (_, path) in covered.items() if any(mine.intersection(n.blocks) for n in path)]
            # A block belongs to one namespace, so blocks tell; without one of its own, the only candidate does.
            own = own or list(covered)
            if len(own) == 1:
                self.found.namespace[record.request_id] = own[0]

    def _preemptions(self, frame: Frame, change: TapeStep) -> None:
        """Tokens that a preempted sequence had computed and did not find again in the cache."""
        for label, hit in change.admitted:
            if label in self.preempted:
                lost = max(0, self.preempted.pop(label) - hit)
                self.found.computed_again[label] = self.found.computed_again.get(label, 0) + lost
        for label, state in change.left:
            if state in PUT_BACK and label in frame.tables:
                self.preempted[label] = frame.tables[label].num_computed

    def _queue(self, frame: Frame, change: TapeStep, waiting: set[str]) -> None:
        """Whether somebody was passed over in this step, and what there was none of."""
        total = self.run.snapshot.blocks.total
        held = len(self.held.users)
        self.found.peak_held = max(self.found.peak_held, held)
        record = self.run.steps.get(change.step)
        if record is None or not waiting & frame.waiting.keys():
            return
        waited, settings = self.found.waited, self.run.settings
        waited.total += 1
        tokens = record.num_prefill_tokens + record.num_decode_tokens
        if len(record.batch) >= settings.max_num_seqs:
            waited.sequences += 1
        elif tokens >= settings.budget:
            waited.budget += 1
        elif total and held >= POOL_FULL * total:
            waited.blocks += 1


def whole(record: RequestRecord) -> tuple[int, ...]:
    """Prompt and first answer: what a later prompt can go on from."""
    return record.prompt_token_ids + (record.output_token_ids[0] if record.output_token_ids else ())


@dataclass(frozen=True)
class Report:
    """A run with its walk, made once and read by every finding."""

    run: Run

    @cached_property
    def walk(self) -> Walk:
        return walk(self.run)

"""What the timeline draws: steps, and for each request its spans of waiting, prefill, decode and lost places."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from yaie_engine.errors import RequestError
from yaie_engine.record import RequestRecord
from yaie_engine.snapshot import EngineSnapshot, StepRecord
from yaie_engine.tape import PUT_BACK, Frame, Tape, TapeStep

from .tree_view import is_choice

Lost = Literal["preempted", "swapped"]
Kind = Literal["waiting", "prefill", "decode", "paused"] | Lost
DEFAULT_STEPS = 60
MAX_ROWS = 400
_IDLE: Final[tuple[Kind, ...]] = ("waiting", "preempted", "swapped")
_DECODED = 40


@dataclass(frozen=True, slots=True)
class Span:
    """Columns `first` to `last` of the window. A prefill chunk has its own; `cached` tokens came before it.

    "paused" means running without a token in the step: the budget was spent on others.
    """

    kind: Kind
    first: int
    last: int
    tokens: int = 0
    cached: int = 0


@dataclass(frozen=True, slots=True)
class End:
    """How a row ended. `column` is where its last step ends (0: before the window's first, n: after its n-th)."""

    column: int
    reason: str


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """One choice of one request. Figures that nothing remembers any more are None."""

    label: str
    text: str
    spans: tuple[Span, ...]
    end: End | None
    state: str
    num_prompt_tokens: int | None
    num_cached_tokens: int | None
    num_output_tokens: int | None

    def at(self, column: int) -> Span | None:
        """The span that covers a column."""
        return next((span for span in self.spans if span.first <= column <= span.last), None)


@dataclass(frozen=True, slots=True)
class TimelineStep:
    """One column: the step's record, when it ended, what it admitted from the cache, who lost its blocks and whether
    the host has them, and the pool after it."""

    record: StepRecord
    at: float
    admitted: dict[str, int]
    lost: dict[str, Lost]
    num_held: int
    num_cached: int

    @property
    def tokens(self) -> int:
        """All tokens of the step's batch."""
        return self.record.num_prefill_tokens + self.record.num_decode_tokens

    def lost_as(self, state: Lost) -> list[str]:
        """Who was preempted without a copy, or swapped to host blocks."""
        return [label for label, found in self.lost.items() if found == state]


@dataclass(frozen=True, slots=True)
class TimelineView:
    """The window. `newest` is the engine's newest step, at which rows give their state and output."""

    steps: tuple[TimelineStep, ...]
    rows: tuple[TimelineRow, ...]
    hidden: int
    finished_earlier: int
    newest: int
    num_blocks: int
    budget: int | None
    request: str = ""


@dataclass(slots=True)
class _Life:
    """A row while the tape is read."""

    label: str
    state: str
    spans: list[Span] = field(default_factory=list)
    end: End | None = None
    cached: int | None = None

    def add(self, span: Span) -> None:
        last = self.spans[-1] if self.spans else None
        if last and last.kind == span.kind != "prefill" and last.last == span.first - 1:
            self.spans[-1] = Span(last.kind, last.first, span.last, last.tokens + span.tokens)
        else:
            self.spans.append(span)


def timeline_view(
    snapshot: EngineSnapshot,
    tape: Tape,
    history: Sequence[RequestRecord] = (),
    *,
    steps: int = DEFAULT_STEPS,
    first: int | None = None,
    request: str | None = None,
    budget: int | None = None,
    decode: Callable[[Sequence[int]], str] | None = None,
    max_rows: int = MAX_ROWS,
) -> TimelineView:
    """The last `steps` recorded steps, or those from step `first` on.

    Take the snapshot before tape and history: what ended before it is then in one of them, and later steps are left
    out here. `decode` gives a text to requests that came as token ids.

    Raises:
        RequestError: a value is out of range, or the window shows no such request.
    """
    records = {record.step: record for record in snapshot.steps}
    known = [change for change in tape.steps if change.step in records]
    start = _start([change.step for change in known], steps, first)
    window = {change.step: column for column, change in enumerate(known[start : start + steps])}
    lives, columns = _read(snapshot, tape, window, records)
    facts = _Facts(snapshot, history, decode)
    last = len(columns) if columns and start + steps >= len(known) else None
    if last is not None:  # what was queued since the newest step waits, too
        lives |= {label: _Life(label, "waiting") for label in facts.live if label not in lives}
    rows = [facts.row(life, last) for life in lives.values() if life.spans or life.end or life.label in facts.live]
    shown = [row for row in rows if request is None or is_choice(row.label, request)]
    if request is not None and not shown:
        names = ", ".join(list(dict.fromkeys(request_of(row.label) for row in rows))[:8])
        where = f"there are {names}" if names else "there are no requests in them"
        raise RequestError(f"request {request!r} is not in the steps shown: {where}")
    return TimelineView(
        steps=tuple(columns),
        rows=tuple(_cut(shown, max_rows)),
        hidden=max(0, len(shown) - max_rows),
        finished_earlier=facts.finished_before(next(iter(window), 0), tape) if request is None else 0,
        newest=snapshot.step,
        num_blocks=snapshot.blocks.total,
        budget=budget,
        request=request or "",
    )


def _start(known: list[int], steps: int, first: int | None) -> int:
    if first is None:
        return max(0, len(known) - steps)
    if not known:
        raise RequestError(f"from is {first}, but no step is recorded yet")
    if not known[0] <= first <= known[-1]:
        raise RequestError(f"from is {first}: steps {known[0]} to {known[-1]} are recorded")
    return next(index for index, step in enumerate(known) if step >= first)


def _cut(rows: list[TimelineRow], most: int) -> list[TimelineRow]:
    """At most `most`: of too many, the ended ones that arrived first are left out before others."""
    if len(rows) <= most:
        return rows
    by_need = sorted(range(len(rows)), key=lambda index: (rows[index].end is not None, -index))[:most]
    return [rows[index] for index in sorted(by_need)]


def _read(
    snapshot: EngineSnapshot, tape: Tape, window: dict[int, int], records: dict[int, StepRecord]
) -> tuple[dict[str, _Life], list[TimelineStep]]:
    """Follow the tape: lives in order of arrival, and the columns of the window."""
    lives = {label: _Life(label, "running") for label in tape.base.tables}
    lives |= {label: _Life(label, "waiting") for label in tape.base.waiting}
    going = dict(lives)  # without those that ended, so that a long recording costs what it changed
    columns: list[TimelineStep] = []
    for change, frame in zip(tape.steps, tape.frames(), strict=True):
        if change.step > snapshot.step:
            break
        record, column = records.get(change.step), window.get(change.step)
        _follow(going, change, record, column)
        lives |= going
        for label in [label for label, life in going.items() if life.end is not None]:
            del going[label]
            if column is None:
                del lives[label]  # it ended before the window
        if record is not None and column is not None:
            columns.append(_step(change, record, frame))
        if window and change.step == next(reversed(window)):
            break
    return lives, columns


def _step(change: TapeStep, record: StepRecord, frame: Frame) -> TimelineStep:
    held, cached = pool_counts(frame)
    return TimelineStep(record, change.at, dict(change.admitted), lost_in(change, record), held, cached)


def pool_counts(frame: Frame) -> tuple[int, int]:
    """Blocks held by running requests, and blocks that only the cache holds."""
    held: set[int] = set().union(*(table.blocks for table in frame.tables.values()))
    owned: set[int] = set().union(*(node.blocks for node in frame.nodes.values()))
    return len(held), len(owned - held)


def lost_in(change: TapeStep, record: StepRecord | None) -> dict[str, Lost]:
    """Who lost its blocks: those that left to wait, and those that were admitted again in the same step."""
    lost: dict[str, Lost] = dict.fromkeys(record.preempted if record else (), "preempted")
    for label, state in change.left:
        if state in PUT_BACK:
            lost[label] = "swapped" if state == "swapped" else "preempted"
    return lost


def _follow(going: dict[str, _Life], change: TapeStep, record: StepRecord | None, column: int | None) -> None:
    """Go on by one step. With a `column`, the step's spans are added."""
    for label in change.arrived:
        going[label] = _Life(label, "waiting")
    admitted = dict(change.admitted)
    for label, lost in lost_in(change, record).items():
        _life(going, label).state = lost
    for label, hit in admitted.items():
        life = _life(going, label)
        life.state, life.cached = "running", hit if life.cached is None else life.cached
    batch = {entry.request_id: entry for entry in record.batch} if record else {}
    gone = change.ended
    if column is not None:
        for life in going.values():
            entry = batch.get(life.label)
            if entry is not None:
                life.add(Span(entry.kind, column, column, entry.num_tokens, admitted.get(life.label, 0)))
            elif life.label not in gone:
                life.add(Span(_idle_kind(life.state), column, column))
    for label, state in gone.items():
        life = _life(going, label)
        life.state, life.end = state, End(0 if column is None else column + (label in batch), state)


def _life(going: dict[str, _Life], label: str) -> _Life:
    """The row of a label. One that the ring's oldest frame missed is taken for running."""
    return going.setdefault(label, _Life(label, "running"))


def _idle_kind(state: str) -> Kind:
    return state if state in _IDLE else "paused"


class _Facts:
    """What snapshot and history say about a label: figures, text, how it ended."""

    def __init__(
        self,
        snapshot: EngineSnapshot,
        history: Sequence[RequestRecord],
        decode: Callable[[Sequence[int]], str] | None,
    ) -> None:
        self.snapshot, self.decode = snapshot, decode
        self.live = {view.request_id: view for view in snapshot.requests}
        self.ended = {label: (record, index) for record in history for index, label in enumerate(_labels(record))}
        self.texts: dict[str, str] = {}
        # The tree lists parents before children, so that texts come in order.
        for node in snapshot.tree:
            for label in node.request_ids:
                self.texts[label] = self.texts.get(label, "") + node.text

    def row(self, life: _Life, last: int | None) -> TimelineRow:
        """The finished row. `last` is the number of columns when the window reaches the newest step."""
        label, spans, end = life.label, tuple(life.spans), life.end
        if label in self.live:
            view = self.live[label]
            text, prompt, cached = self.texts.get(label, ""), view.num_prompt_tokens, view.num_cached_tokens
            return TimelineRow(label, text, spans, None, view.state, prompt, cached, view.num_output_tokens)
        if label not in self.ended:
            return TimelineRow(label, "", spans, end, end.reason if end else "finished", None, life.cached, None)
        record, index = self.ended[label]
        reason = "failed" if record.finish_reasons[index] == "error" else record.finish_reasons[index]
        if end is not None:
            end = End(end.column, reason)
        elif last is not None:  # it ended after the newest step, and the tape will say so with the next one
            end = End(last, reason)
        first_hit = life.cached if index else record.num_cached_tokens
        prompt, output = len(record.prompt_token_ids), len(record.output_token_ids[index])
        return TimelineRow(label, self._prompt(record), spans, end, reason, prompt, first_hit, output)

    def _prompt(self, record: RequestRecord) -> str:
        if record.prompt is not None or self.decode is None:
            return record.prompt or ""
        return self.decode(record.prompt_token_ids[:_DECODED])

    def finished_before(self, first: int, tape: Tape) -> int:
        """Requests that ended before step `first`: all that ended, less those that ended since."""
        since: set[str] = set()
        known: set[str] = set(tape.base.tables) | set(tape.base.waiting)
        before: set[str] = set()
        for change in tape.steps:
            known.update(change.arrived)
            (since if change.step >= first else before).update(change.ended)
        # On the tape without an end, and not alive: ended after the newest step.
        since |= known - since - before - set(self.live)
        over = {self._request(label) for label in since} - {self._request(label) for label in self.live}
        return max(0, sum(self.snapshot.counters.requests.values()) - len(over))

    def _request(self, label: str) -> str:
        if label in self.ended:
            return self.ended[label][0].request_id
        return request_of(label)


def request_of(label: str) -> str:
    """The request of a label: choices after the first carry their index."""
    head, _, index = label.rpartition("/")
    return head if head and index.isdigit() else label


def _labels(record: RequestRecord) -> Iterator[str]:
    for index in range(len(record.finish_reasons)):
        yield record.request_id if index == 0 else f"{record.request_id}/{index}"

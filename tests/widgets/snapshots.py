"""Snapshots for tests of views: small trees built from token sequences by the rules of blocks, without an engine."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from yaie_engine.record import RequestRecord
from yaie_engine.snapshot import (
    BlockCounts,
    Counters,
    EngineSnapshot,
    ModelInfo,
    NodeView,
    QueueCounts,
    RequestView,
)


@dataclass(frozen=True)
class Entry:
    """One sequence in the cache: running when it has a request id, left behind by an ended request otherwise."""

    tokens: tuple[str, ...]
    request_id: str = ""
    namespace: str = ""
    last_used_step: int = 1
    num_output_tokens: int = 0


@dataclass(eq=False)
class _Node:
    tokens: tuple[str, ...]
    start: int
    namespace: str = ""
    children: list[_Node] = field(default_factory=list)
    last_used: int = 0
    requests: list[str] = field(default_factory=list)
    blocks: dict[int, int] = field(default_factory=dict)
    id: int = 0

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)


class Builder:
    """Inserts entries into a radix tree, then gives every node the blocks it owns and every request its table."""

    def __init__(self, entries: Sequence[Entry], block_size: int = 16) -> None:
        self.block_size = block_size
        self.vocabulary: dict[str, int] = {}
        self.root = _Node((), 0)
        self.spaces = {"": self.root}
        self.paths = {entry: self._insert(entry) for entry in entries}
        # A later entry may have split a node on an earlier path, so paths are walked again.
        self.paths = {entry: self._insert(entry) for entry in entries}
        self.used = self._place()
        self.private = {entry: self._private_tail(entry) for entry in entries if entry.request_id}

    def _insert(self, entry: Entry) -> list[_Node]:
        node = self._space(entry.namespace)
        path, at = [node], 0
        while at < len(entry.tokens):
            rest = entry.tokens[at:]
            child = next((child for child in node.children if child.tokens[:1] == rest[:1]), None)
            if child is None:
                child = _Node(rest, at, entry.namespace)
                node.children.append(child)
            else:
                _split(child, _common(child.tokens, rest))
            path.append(child)
            node, at = child, child.end
        for touched in path:
            touched.last_used = max(touched.last_used, entry.last_used_step)
            if entry.request_id and entry.request_id not in touched.requests:
                touched.requests.append(entry.request_id)
        return path

    def _space(self, namespace: str) -> _Node:
        if namespace not in self.spaces:
            self.spaces[namespace] = _Node((), 0, namespace)
            self.root.children.append(self.spaces[namespace])
        return self.spaces[namespace]

    def _place(self) -> int:
        free, serial = 0, 0
        stack = [self.root]
        while stack:
            node = stack.pop()
            node.id, serial = serial, serial + 1
            stop = node.end // self.block_size if node.children else -(-node.end // self.block_size)
            for logical in range(node.start // self.block_size, stop) if node.tokens else ():
                node.blocks[logical], free = free, free + 1
            stack.extend(reversed(node.children))
        return free

    def _private_tail(self, entry: Entry) -> dict[int, int]:
        """A running request that ends inside a block which only the nodes below hold has that block for itself."""
        last = (len(entry.tokens) - 1) // self.block_size
        if any(last in node.blocks for node in self.paths[entry]):
            return {}
        self.used += 1
        return {last: self.used - 1}

    def ids(self, tokens: Sequence[str]) -> tuple[int, ...]:
        return tuple(self.vocabulary.setdefault(token, len(self.vocabulary) + 3) for token in tokens)

    def nodes(self) -> tuple[NodeView, ...]:
        views: list[NodeView] = []
        stack: list[tuple[_Node, int | None]] = [(self.root, None)]
        while stack:
            node, parent = stack.pop()
            views.append(self._view(node, parent))
            stack.extend((child, node.id) for child in reversed(node.children))
        return tuple(views)

    def _view(self, node: _Node, parent: int | None) -> NodeView:
        return NodeView(
            id=node.id,
            parent=parent,
            num_tokens=len(node.tokens),
            token_ids=self.ids(node.tokens),
            text="".join(node.tokens),
            blocks=tuple(node.blocks.values()),
            ref_count=len(node.requests),
            last_used_step=node.last_used,
            namespace=node.namespace,
            request_ids=tuple(node.requests),
        )

    def table(self, entry: Entry) -> tuple[int, ...]:
        """On a path the deepest node that touches a logical block supplies it."""
        supply: dict[int, int] = {}
        for node in self.paths[entry]:
            supply.update(node.blocks)
        supply.update(self.private[entry])
        return tuple(supply[logical] for logical in range(-(-len(entry.tokens) // self.block_size)))

    def request(self, entry: Entry) -> RequestView:
        prompt = len(entry.tokens) - entry.num_output_tokens
        return RequestView(
            request_id=entry.request_id,
            state="decode",
            num_prompt_tokens=prompt,
            num_computed_tokens=len(entry.tokens),
            num_output_tokens=entry.num_output_tokens + 1,
            num_cached_tokens=prompt // 2,
            block_table=self.table(entry),
            priority=0,
            age_s=0.5,
        )


def _common(left: Sequence[str], right: Sequence[str]) -> int:
    return next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


def _split(node: _Node, at: int) -> None:
    """Cut `node` after `at` tokens; a new lower part takes over the rest."""
    if at == len(node.tokens):
        return
    lower = replace(node, tokens=node.tokens[at:], start=node.start + at, requests=list(node.requests), blocks={})
    node.tokens, node.children = node.tokens[:at], [lower]


def words(text: str) -> tuple[str, ...]:
    """A text as tokens of one word each, the space before it included."""
    return tuple(re.findall(r"\s?\S+|\s", text))


def make_snapshot(
    entries: Sequence[Entry] = (), *, total: int = 160, block_size: int = 16, step: int = 58, waiting: int = 0
) -> EngineSnapshot:
    """A consistent snapshot: free + held + cached == total, tables and nodes name the same blocks."""
    builder = Builder(entries, block_size)
    requests = tuple(builder.request(entry) for entry in entries if entry.request_id)
    nodes = builder.nodes()
    held = len({block for request in requests for block in request.block_table})
    queued = tuple(RequestView(f"w{i}", "waiting", 40, 0, 0, 0, (), 0, 0.1) for i in range(waiting))
    return EngineSnapshot(
        state="ready",
        step=step,
        model=ModelInfo("tiny", "f00d", "float32", "cpu", "flat", "reference", "", 4096),
        blocks=BlockCounts(block_size, total, total - builder.used, held, builder.used - held),
        queue=QueueCounts(waiting=waiting, decode=len(requests)),
        requests=requests + queued,
        tree=nodes,
        steps=(),
        counters=Counters({"stop": 3}),
    )


_REVIEW = (
    "Review the following Python function. List bugs first, then style, then missing tests. Say nothing that you "
    "cannot show in the code, and give each finding the line that it is about, in the order of the lines. " * 3
)
_LUMEN = "You are the support assistant of Lumen, which makes home batteries. Answer in at most two sentences. " * 4
_MANUAL = "Manual, chapter 4: The inverter keeps a log of every start and stop, with the time and the reason. " * 3
_CLASSIFY = "Classify the sentence as order, refund or other. Say one word and nothing else.\n" * 4


def _entry(text: str, request_id: str = "", last: int = 58, **more: int) -> Entry:
    return Entry(words(text), request_id, last_used_step=last, **more)


def busy_entries() -> list[Entry]:
    """Three shared prefixes, seven running requests, five ended ones and a salted namespace."""
    function = "def mean(xs):\n    return sum(xs) / len(xs)\n" * 12
    return [
        _entry(_REVIEW + function, "r02", num_output_tokens=24),
        _entry(_REVIEW + "async def fetch(urls):\n    return [await get(u) for u in urls]\n" * 9, "r09"),
        _entry(_REVIEW + "class Cache(dict):\n    def __missing__(self, key):\n        ...\n" * 8, "r06"),
        _entry(_LUMEN + _MANUAL + "How do I read the log of last Tuesday? Open the app and choose Log.", "r04"),
        _entry(_LUMEN + _MANUAL + "The green key does nothing. Is the log lost?" * 3, last=55),
        _entry(_LUMEN + _MANUAL + "Which page explains the log format?", "r12", num_output_tokens=3),
        _entry(_LUMEN + "Can I mount two batteries side by side in a garage? " * 5, last=50),
        _entry(_CLASSIFY + "Sentence: I want my money back. Class: refund", "r05", num_output_tokens=1),
        _entry(_CLASSIFY + "Sentence: where is my invoice? Class: other", last=57),
        _entry("The café on the 東京 corner 🎉 opens at nine." * 2, last=12),
        Entry(words("A salted tenant shares nothing with the others, by design. " * 3), "r11", "tenant-7", 58),
    ]


def busy_snapshot() -> EngineSnapshot:
    """The snapshot that pictures in the documentation show."""
    return make_snapshot(busy_entries(), total=160, waiting=2)


def make_record(**changes: object) -> RequestRecord:
    """An ended request with round figures; keywords replace fields."""
    record = RequestRecord(
        request_id="r07",
        prompt="one two three four",
        prompt_token_ids=(3, 4, 5, 6),
        output_token_ids=((7, 8),),
        texts=(" five six",),
        finish_reasons=("stop",),
        stop_reasons=(None,),
        error=None,
        num_cached_tokens=0,
        matched=(),
        blocks_shared=(),
        blocks_owned=(0,),
        copied=None,
        first_step=4,
        last_step=6,
        num_prefill_steps=1,
        num_decode_steps=1,
        num_preemptions=0,
        queue_s=0.001,
        prefill_s=0.05,
        decode_s=0.4,
        total_s=0.451,
        submitted_at=1.0,
    )
    return replace(record, **changes)  # type: ignore[arg-type]

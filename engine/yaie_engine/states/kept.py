"""States of prefixes that requests left behind, found by their tokens. Imports no torch.

A recurrent or convolution state stands for all tokens before it and cannot be cut, so it serves only prompts that begin
with every one of them. It is used by copy, any number of times, and bounded in bytes: the least recently used go first.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from yaie_engine.store.index import SHORTEST, PrefixIndex

MOST_WANTED = 256
WORTH_ONE_BY_ONE = 8
"""A model that must take a prompt in whole goes on from a state token by token: worth it where a prompt is so many
times as long as what is missing."""


@dataclass(eq=False, slots=True)
class KeptState:
    """The state after `token_ids`, with the logits that its last token gave where these are known.

    `salt` is whose it is: only requests with the same `cache_salt` find it. Times are seconds since 1970.
    """

    token_ids: tuple[int, ...]
    salt: str
    state: object = field(repr=False)
    logits: object | None = field(repr=False)
    num_bytes: int
    pinned: bool = False
    hits: int = 0
    created: float = field(default_factory=time.time)
    used: float = field(default_factory=time.time)
    _label: str = field(default="", init=False, repr=False)

    @property
    def label(self) -> str:
        """A short name for lists."""
        if not self._label:
            self._label = hashlib.sha256(repr((self.salt, self.token_ids)).encode()).hexdigest()[:8]
        return self._label


class KeptStates:
    """At most `limit` bytes of states. With `whole` the model continues one only token by token. Any thread.

    `settle` makes those of requests that have ended known here; it belongs to the engine thread. `made` hears of each
    state that comes, also where there is no room. While it is `paused` nothing is found, and nothing is lacking.
    """

    def __init__(self, limit: int, whole: bool = False) -> None:
        self.limit, self.whole, self.paused = limit, whole, False
        self.settle: Callable[[], None] = lambda: None
        self.made: Callable[[KeptState], object] = lambda _: None
        self._lock = threading.RLock()
        self._by_salt: dict[str, PrefixIndex[KeptState]] = {}
        self._order: dict[KeptState, None] = {}  # least recently used first
        self._wanted: PrefixIndex[None] = PrefixIndex()

    # ---- reading

    @property
    def num_bytes(self) -> int:
        with self._lock:
            return sum(kept.num_bytes for kept in self._order)

    @property
    def summary(self) -> str:
        """How many there are and what they take, in words."""
        with self._lock:
            count, size = len(self._order), self.num_bytes
        states = f"{count:,} state{'' if count == 1 else 's'}"
        return f"{states} in memory, {size / 2**20:,.1f} of at most {self.limit / 2**20:,.1f} MiB (state_cache_gib)"

    def entries(self) -> list[KeptState]:
        """What is kept, most recently used first."""
        with self._lock:
            return list(self._order)[::-1]

    def get(self, token_ids: Sequence[int], salt: str = "") -> KeptState | None:
        """The state after exactly these tokens."""
        with self._lock:
            found = self._by_salt.get(salt)
            return None if found is None else found.get(token_ids)

    def longest(self, token_ids: Sequence[int], salt: str) -> KeptState | None:
        """The longest prefix of these tokens from whose state their logits can be had; it counts as used now."""
        with self._lock:
            index = None if self.paused else self._by_salt.get(salt)
            fitting = [] if index is None else [kept for _, kept in index.contained(token_ids)]
            best = max(filter(lambda kept: self._serves(kept, len(token_ids)), fitting), key=_length, default=None)
            if best is not None:
                best.used = time.time()
                self._order[best] = self._order.pop(best)
            return best

    def _serves(self, kept: KeptState, num_tokens: int) -> bool:
        return self.goes_on(_length(kept), num_tokens) and (_length(kept) < num_tokens or kept.logits is not None)

    def goes_on(self, length: int, num_tokens: int) -> bool:
        """Whether the model had better go on from a state after `length` tokens than compute a prompt anew."""
        missing = num_tokens - length
        return not self.whole or missing <= 1 or WORTH_ONE_BY_ONE * missing <= num_tokens

    # ---- keeping

    def want(self, token_ids: Sequence[int]) -> None:
        """Keep the state after these tokens once a prompt runs through them; at least SHORTEST."""
        with self._lock:
            self._wanted.put(token_ids, None)
            if len(self._wanted) > MOST_WANTED:
                self._wanted.drop(next(iter(self._wanted))[0])

    def cuts(self, prompt: Sequence[int], salt: str) -> list[int]:
        """After how many tokens of a prompt a state is wanted that is not kept yet; where a prompt goes in whole only
        the last from which the rest may be gone on with token by token.

        Its end is not among them.
        """
        with self._lock:
            if self.paused or not len(self._wanted):
                return []
            wanted = [ids for ids, _ in self._wanted.contained(prompt) if len(ids) < len(prompt)]
            cuts = sorted(len(ids) for ids in wanted if self.get(ids, salt) is None)
            return [cut for cut in cuts if self.goes_on(cut, len(prompt))][-1:] if self.whole else cuts

    def lacks(self, token_ids: Sequence[int], salt: str, logits: bool = False) -> bool:
        """Whether a state after these tokens, or one that has `logits`, is worth keeping.

        What is there counts as used.
        """
        with self._lock:
            before = self.get(token_ids, salt)
            if before is not None:
                self._order[before] = self._order.pop(before)
            known = before is not None and (before.logits is not None or not logits)
            return not known and not self.paused and len(token_ids) >= SHORTEST

    def put(self, kept: KeptState) -> bool:
        """Keep a state in the place of one of the same tokens; others make room. Whether it is kept now."""
        self.made(kept)
        with self._lock:
            before = self.get(kept.token_ids, kept.salt)
            if before is not None:
                kept.pinned, kept.hits = before.pinned, before.hits
                self._forget(before)
            if not self._make_room(kept.num_bytes):
                return False
            self._by_salt.setdefault(kept.salt, PrefixIndex()).put(kept.token_ids, kept)
            self._order[kept] = None
            return True

    def pin(self, kept: KeptState, pinned: bool) -> None:
        """Whether it stays when room is needed."""
        with self._lock:
            kept.pinned = pinned

    def discard(self, token_ids: Sequence[int], salt: str) -> None:
        """Forget all states that these tokens run through: they may be damaged."""
        with self._lock:
            index = self._by_salt.get(salt)
            for _, kept in list(index.contained(token_ids)) if index is not None else ():
                self._forget(kept)

    def clear(self, entries: Iterable[KeptState] | None = None) -> tuple[int, int]:
        """Forget these, or all; how many they were, and their bytes."""
        with self._lock:
            gone = [kept for kept in (list(self._order) if entries is None else entries) if kept in self._order]
            for kept in gone:
                self._forget(kept)
            return len(gone), sum(kept.num_bytes for kept in gone)

    def _make_room(self, num_bytes: int) -> bool:
        total = self.num_bytes
        if num_bytes + sum(kept.num_bytes for kept in self._order if kept.pinned) > self.limit:
            return False
        for kept in list(self._order):
            if total + num_bytes <= self.limit:
                break
            if not kept.pinned:
                self._forget(kept)
                total -= kept.num_bytes
        return True

    def _forget(self, kept: KeptState) -> None:
        del self._order[kept]
        index = self._by_salt[kept.salt]
        index.drop(kept.token_ids)
        if not len(index):
            del self._by_salt[kept.salt]


def _length(kept: KeptState) -> int:
    return len(kept.token_ids)

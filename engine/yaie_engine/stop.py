"""Finds stop strings in text that arrives in pieces, in time linear in the text.

Algorithm: Aho and Corasick, "Efficient string matching" (1975). The match that is complete first wins; of those that
end at the same character, the longest. So the result does not depend on how the text was cut into tokens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache

Symbol = str | int
"""A character of the visible text, or the id of a special token that is left out of it."""
Pattern = tuple[str, tuple[Symbol, ...]]
KEPT_SYMBOLS = 2048
"""Automata of stop lists up to this length stay for the next request with the same list."""


class StopAutomaton:
    """The stop strings as a trie with failure links. Immutable, shared by requests with equal stop strings.

    Per node: `held[node]` visible characters at the end of the text may still become a match; `found[node]` is the
    (stop string, number of its visible characters) that ends there.
    """

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._next: list[dict[Symbol, int]] = [{}]
        self._fail = [0]
        self.held = [0]
        self.found: list[tuple[str, int] | None] = [None]
        for text, symbols in patterns:
            self._add(text, symbols)
        self.symbols = frozenset(symbol for _, symbols in patterns for symbol in symbols)
        self._link()

    def step(self, node: int, symbol: Symbol) -> int:
        """The node of the longest pattern prefix that ends with `symbol`; amortised O(1)."""
        while True:
            child = self._next[node].get(symbol)
            if child is not None:
                return child
            if node == 0:
                return 0
            node = self._fail[node]

    def _add(self, text: str, symbols: Sequence[Symbol]) -> None:
        node = 0
        for symbol in symbols:
            child = self._next[node].get(symbol)
            if child is None:
                child = len(self._next)
                self._next[node][symbol] = child
                self._next.append({})
                self._fail.append(0)
                self.held.append(self.held[node] + isinstance(symbol, str))
                self.found.append(None)
            node = child
        self.found[node] = self.found[node] or (text, self.held[node])

    def _link(self) -> None:
        """Breadth first: a node's failure link is final before its children need it."""
        queue = deque(self._next[0].values())
        while queue:
            node = queue.popleft()
            for symbol, child in self._next[node].items():
                self._fail[child] = self.step(self._fail[node], symbol)
                self.found[child] = self.found[child] or self.found[self._fail[child]]
                queue.append(child)
            if not self._next[node]:
                # A whole pattern cannot grow; only what its suffixes began is still open.
                self.held[node] = self.held[self._fail[node]]


class StopMatcher:
    """Holds back the end of the text while it may become a stop string."""

    def __init__(self, stop: Sequence[str], specials: Mapping[str, int], include: bool) -> None:
        """`specials`: texts of tokens that are not shown; a stop string may name them. `include`: keep the match."""
        self._automaton = _automaton(tuple(_patterns(stop, specials)))
        self._include = include
        self._node = 0
        self._held = ""
        self.found: str | None = None

    def feed(self, text: str, active: bool = True) -> str:
        """What may be shown after `text` was appended. `active` False: a match that ends here does not count."""
        if self.found is not None:
            return ""
        buffer, node, found = self._held + text, self._node, self._automaton.found
        start = len(self._held) + 1
        for position, char in enumerate(text, start):
            node = self._automaton.step(node, char)
            hit = found[node]
            if hit is not None and active:
                return self._end(hit, buffer[:position])
        self._node = node
        return self._split(buffer)

    def feed_special(self, token_id: int, active: bool = True) -> str:
        """The same for a token that is not shown; one that no stop string names leaves the matching untouched."""
        if self.found is not None or not self.knows(token_id):
            return ""
        self._node = self._automaton.step(self._node, token_id)
        hit = self._automaton.found[self._node]
        return self._end(hit, self._held) if hit is not None and active else self._split(self._held)

    def knows(self, token_id: int) -> bool:
        """Whether a stop string names this hidden token."""
        return token_id in self._automaton.symbols

    def flush(self) -> str:
        """The rest, when no more text comes."""
        rest, self._held, self._node = self._held, "", 0
        return rest

    def _end(self, hit: tuple[str, int], text: str) -> str:
        self.found, num_visible = hit
        self._held = ""
        return text if self._include else text[: len(text) - num_visible]

    def _split(self, buffer: str) -> str:
        cut = len(buffer) - self._automaton.held[self._node]
        self._held = buffer[cut:]
        return buffer[:cut]


def _patterns(stop: Sequence[str], specials: Mapping[str, int]) -> list[Pattern]:
    """Each stop string as characters, and once more with hidden tokens as single symbols where it names any."""
    patterns: list[Pattern] = []
    for text in stop:
        patterns.append((text, tuple(text)))
        named = sorted((special for special in specials if special in text), key=len, reverse=True)
        if named:
            patterns.append((text, _symbols(text, named, specials)))
    return patterns


def _symbols(text: str, named: Sequence[str], specials: Mapping[str, int]) -> tuple[Symbol, ...]:
    symbols: list[Symbol] = []
    position = 0
    while position < len(text):
        special = next((name for name in named if text.startswith(name, position)), None)
        symbols.append(text[position] if special is None else specials[special])
        position += 1 if special is None else len(special)
    return tuple(symbols)


def _automaton(patterns: tuple[Pattern, ...]) -> StopAutomaton:
    """Built once for the lists that many requests share; a large one is not kept after its request."""
    small = sum(len(symbols) for _, symbols in patterns) <= KEPT_SYMBOLS
    return _kept_automaton(patterns) if small else StopAutomaton(patterns)


@lru_cache(maxsize=64)
def _kept_automaton(patterns: tuple[Pattern, ...]) -> StopAutomaton:
    return StopAutomaton(patterns)

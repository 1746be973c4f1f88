"""Fair shares for tenants: the Virtual Token Counter. Imports no torch.

Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024. Each tenant has a counter of the service that it
got: prompt tokens, and output tokens at twice the price. Whoever waits and has the smallest counter goes next. A tenant
that comes back is lifted to the smallest counter of those who wait, so that nobody saves up service while idle. Two
tenants that both wait all the time never differ by more than about twice the largest prompt or the tokens of one full
batch, whichever costs more.

Two things are ours: prompt tokens that the cache supplies are free, and what is computed again after a preemption is
not paid twice.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable

from .errors import RequestError
from .policy import AGEING_STEPS, Policy
from .radix_tree import RadixTree
from .sequence import Sequence

PROMPT_PRICE, OUTPUT_PRICE = 1, 2
KEPT_TENANTS = 256
LONGEST_TENANT = 256


def check_tenant(tenant: object) -> None:
    """Whether this names a tenant, "" nobody in particular. It is no secret: not a key, but a digest of one.

    Raises:
        RequestError: it is no text, or too long.
    """
    if not isinstance(tenant, str):
        raise RequestError(f"tenant={tenant!r}: a text is needed")
    if len(tenant) > LONGEST_TENANT:
        raise RequestError(f"tenant: {len(tenant)} characters, at most {LONGEST_TENANT} are allowed")


class FairPolicy(Policy):
    """The tenant with the smallest counter first. Within a tenant higher priorities first, then first come.

    Priority and age count within a tenant only: no tenant gets more by claiming that it is urgent or by queueing much.
    """

    PAUSES = 1

    def __init__(self, ageing: int = AGEING_STEPS) -> None:
        super().__init__(ageing)
        self.counters: dict[str, int] = {}
        self._waiting: Counter[str] = Counter()
        self._live: Counter[str] = Counter()
        self._last = ""
        self._tidy_at = KEPT_TENANTS

    def rank(self, seq: Sequence) -> int:
        return 0

    def candidates(self, waiting: list[Sequence], tree: RadixTree, step: int, left: int) -> Iterable[Sequence]:
        first, others = self.due_first(waiting, step)
        queues: dict[str, list[Sequence]] = {}
        for seq in first + others:
            queues.setdefault(seq.tenant, []).append(seq)
        turns = {tenant: iter(queue) for tenant, queue in queues.items()}
        heads = [(self.counters[tenant], next(turn), tenant) for tenant, turn in turns.items()]
        order = [(counter, seq.seq_id, seq, tenant) for counter, seq, tenant in heads]
        heapq.heapify(order)
        while order:
            _, _, seq, tenant = order[0]
            yield seq
            following = next(turns[tenant], None)
            if following is None:
                heapq.heappop(order)
            else:
                heapq.heapreplace(order, (self.counters[tenant], following.seq_id, following, tenant))

    # ---- what happens

    def arrived(self, seq: Sequence) -> None:
        if not self._waiting[seq.tenant]:
            self._tidy()
            self.counters[seq.tenant] = max(self.counters.get(seq.tenant, 0), self._floor())
        self._waiting[seq.tenant] += 1
        self._live[seq.tenant] += 1

    def put_back(self, seq: Sequence) -> None:
        self._waiting[seq.tenant] += 1

    def admitted(self, seq: Sequence, step: int) -> None:
        super().admitted(seq, step)
        self._stops_waiting(seq)
        if len(seq.admissions) == 1:
            self.counters[seq.tenant] += PROMPT_PRICE * (seq.num_tokens - seq.computed)

    def generated(self, seq: Sequence) -> None:
        self.counters[seq.tenant] += OUTPUT_PRICE

    def left(self, seq: Sequence) -> None:
        if seq.state == "waiting":
            self._stops_waiting(seq)
        self._live[seq.tenant] -= 1
        if not self._live[seq.tenant]:
            del self._live[seq.tenant]

    def restarted(self, waiting: Iterable[Sequence]) -> None:
        self._waiting = Counter(seq.tenant for seq in waiting)
        self._live = self._waiting.copy()

    def _stops_waiting(self, seq: Sequence) -> None:
        self._waiting[seq.tenant] -= 1
        if not self._waiting[seq.tenant]:
            del self._waiting[seq.tenant]
            self._last = seq.tenant

    def _floor(self) -> int:
        """What a tenant starts with at least: the least of those who wait, else what the last one that did has now."""
        if self._waiting:
            return min(self.counters[tenant] for tenant in self._waiting)
        return self.counters.get(self._last, 0)

    def _tidy(self) -> None:
        """Forget idle tenants that would be lifted anyway, now and then."""
        if len(self.counters) <= self._tidy_at:
            return
        floor, kept = self._floor(), {*self._live, self._last}
        self.counters = {name: count for name, count in self.counters.items() if name in kept or count > floor}
        self._tidy_at = max(KEPT_TENANTS, 2 * len(self.counters))

"""Equal prefixes that are computed once, though they arrive together. Imports no torch.

A waiting sequence follows a running one whose prompt has the tokens that it would have to compute itself: it stays in
the queue until they are in the tree, then takes them from there. That costs it at most one step more than computing
them, and the batch the shared tokens less. So nobody is slower for it from about as many tokens on as the fixed cost of
a step is worth (`least`): some 25 for the bundled model on two cores, hundreds on a GPU. `benchmarks/scheduling` shows
what it saves.

Nobody waits on a promise: each step asks anew who computes what, so that a leader that ends, fails or is preempted
simply leads nobody any more. And nobody follows for more steps than its own prompt's shared part would take alone.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

from .radix_tree import RadixTree
from .sequence import Sequence
from .step_limits import Limits

GRAIN = 32


class Prefixes:
    """The prompts that a step computes, filed under what they begin with, in multiples of up to `GRAIN` tokens.

    Who misses fewer than `least` tokens follows nobody (0: nobody does). A hash only files; tokens are compared before
    anybody follows.
    """

    def __init__(self, least: int) -> None:
        self.least = least
        self.grain = max(1, min(GRAIN, least))
        self._leaders: dict[int, Sequence] = {}

    def clear(self) -> None:
        """A new step."""
        self._leaders = {}

    def add(self, seq: Sequence) -> None:
        """This step computes tokens of the prompt of `seq`."""
        if not self.least or seq.private or seq.num_prompt_tokens - seq.computed < self.least:
            return
        chain = self._chain(seq)
        for mark in chain[seq.computed // self.grain :]:
            other = self._leaders.get(mark)
            if other is None or other.computed < seq.computed:
                self._leaders[mark] = seq

    def worth_a_step(self, seq: Sequence, tree: RadixTree, limits: Limits) -> bool:
        """Whether `seq` rather waits this step, of which it takes note."""
        if seq.patience == 0:
            return False
        shared = self._shared(seq)
        if not shared:
            return False
        missing = shared - tree.find(seq.token_ids, seq.namespace)[1]
        if missing < self.least:
            return False
        if seq.patience is None:
            seq.patience = -(-missing // limits.share(missing, limits.max_num_batched_tokens))
        seq.patience -= 1
        return True

    def _shared(self, seq: Sequence) -> int:
        """How many leading tokens `seq` has in common with a prompt that this step computes, in whole grains."""
        if not self._leaders or not seq.read_cache:
            return 0
        chain = self._chain(seq)
        for count in range(len(chain), 0, -1):
            leader = self._leaders.get(chain[count - 1])
            length = count * self.grain
            if leader is not None and leader.token_ids[:length] == seq.token_ids[:length]:
                return length
        return 0

    def _chain(self, seq: Sequence) -> Seq[int]:
        """A hash for each whole grain of the prompt, of all tokens up to its end."""
        if seq.marks is None:
            marks, mark = [], hash(seq.namespace)
            for start in range(0, seq.num_prompt_tokens - self.grain + 1, self.grain):
                mark = hash((mark, *seq.token_ids[start : start + self.grain]))
                marks.append(mark)
            seq.marks = tuple(marks)
        return seq.marks

"""Planted mistakes in pool, tree and scheduler. As a pytest plug-in this installs the one named by YAIE_MUTANT."""

# ruff: noqa: E501

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import yaie_engine

HOME = Path(yaie_engine.__file__).parent


@dataclass(frozen=True)
class Mutant:
    """Replace `old`, which occurs once in `module`, by `new`. An `endless` one makes the engine loop for ever.

    `tests`: those of the "rules" of blocks, tree and steps, or of the scheduling "policy".
    """

    name: str
    module: str
    old: str
    new: str
    endless: bool = False
    tests: str = "rules"

    def source(self) -> str:
        """The module's text with the mistake in it."""
        text = (HOME / f"{self.module}.py").read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"mutant {self.name}: its text occurs {text.count(self.old)} times in {self.module}")
        mutated = text.replace(self.old, self.new)
        compile(mutated, self.name, "exec")
        return mutated


MUTANTS = [
    Mutant("hold-counts-every-time", "block_pool", "if self.ref_count[block] == 0:\n            self._held += 1", "self._held += 1"),
    Mutant("drop-frees-count-early", "block_pool", "        if self.ref_count[block]:\n            return False\n", ""),
    Mutant("allocate-without-writer", "block_pool", "self.owner[block] = self.writer[block] = owner", "self.owner[block] = owner"),
    Mutant("allocate-without-hold", "block_pool", "        self.hold(block)\n        self.changes.allocated", "        self.changes.allocated"),
    Mutant("free-keeps-writer", "block_pool", "self.owner[block] = self.writer[block] = None", "self.owner[block] = None"),
    Mutant("allocation-not-recorded", "block_pool", "        self.changes.allocated.append(block)\n", ""),
    Mutant("num-blocks-rounds-down", "block_pool", "return -(-num_tokens // self.block_size)", "return num_tokens // self.block_size"),
    Mutant("match-one-token-less", "radix_tree", "position += _common(child.token_ids, 0, token_ids, position, len(token_ids))", "position += max(1, _common(child.token_ids, 0, token_ids, position, len(token_ids)) - 1)"),
    Mutant("match-does-not-touch", "radix_tree", "            self._touch(node)\n            if node is not child:", "            if node is not child:"),
    Mutant("match-ignores-namespace", "radix_tree", "node = self.roots.get(namespace)\n        if node is None:\n            return Node", "node = self.roots.get('')\n        if node is None:\n            return Node"),
    Mutant("tail-not-from-a-child", "radix_tree", "table += below.blocks[:1]", "table += below.blocks[-1:]"),
    Mutant("duplicates-leak", "radix_tree", "                self.pool.drop(mine)\n                self.pool.free(mine)\n", "                self.pool.drop(mine)\n"),
    Mutant("repoint-without-hold", "radix_tree", "                self.pool.hold(theirs)\n", ""),
    Mutant("duplicates-kept", "radix_tree", "            if mine != theirs:", "            if False:"),
    Mutant("grow-in-a-foreign-tail", "radix_tree", "if node.parent is None or node.children or not tail_is_mine:", "if node.parent is None or node.children:"),
    Mutant("child-without-its-first-block", "radix_tree", "            first = at\n", "            first = self.pool.num_blocks(position)\n"),
    Mutant("parent-keeps-its-tail", "radix_tree", "            tail = node.blocks.pop()", "            tail = node.blocks[-1]"),
    Mutant("tail-freed-under-its-writer", "radix_tree", "            if self.pool.ref_count[tail]:", "            if False:"),
    Mutant("split-keeps-one-block-more", "radix_tree", "position // self.block_size - node.start // self.block_size\n", "-(-position // self.block_size) - node.start // self.block_size\n"),
    Mutant("split-leaves-old-owner", "radix_tree", "        for block in upper.blocks:\n            self.pool.owner[block] = upper\n", ""),
    Mutant("evict-inner-or-held", "radix_tree", "if node.parent is None or node.children or self.pool.ref_count[node.blocks[-1]]:", "if node.parent is None or node.children:"),
    Mutant("evict-most-recent", "radix_tree", "heapq.heappush(self._lru, (node.used, ", "heapq.heappush(self._lru, (-node.used, ", endless=True),
    Mutant("evict-stale-age", "radix_tree", "            if used != node.used:\n                self.queue(node)\n                continue\n", ""),
    Mutant("cut-takes-a-held-block", "radix_tree", "while keep and not self.pool.ref_count[node.blocks[keep - 1]]:", "while keep and (keep == 1 or not self.pool.ref_count[node.blocks[keep - 1]]):"),
    Mutant("cut-leaves-tokens", "radix_tree", "            del node.token_ids[(node.start // self.block_size + keep) * self.block_size - node.start :]\n", ""),
    Mutant("parent-not-queued", "radix_tree", "        self.queue(parent)\n        return gone", "        return gone"),
    Mutant("parent-loses-its-tail", "radix_tree", "        if node.start % self.block_size:\n            parent.blocks", "        if False:\n            parent.blocks"),
    Mutant("parent-older-than-lost-child", "radix_tree", "max((parent.used, parent.used_step), (node.used, node.used_step))", "(parent.used, parent.used_step)"),
    Mutant("empty-namespace-kept", "radix_tree", "                self.roots.pop(parent.namespace, None)", "                pass"),
    Mutant("private-namespace-kept", "scheduler", "                self.tree.drop_namespace(seq.namespace)", "                pass"),
    Mutant("hit-not-capped", "scheduler", "computed = min(hit, seq.num_tokens - 1)", "computed = hit"),
    Mutant("hit-capped-one-too-low", "scheduler", "computed = min(hit, seq.num_tokens - 1)", "computed = max(0, min(hit, seq.num_tokens - 1) - 1)"),
    Mutant("full-hit-rewrites", "plan", "first_write=max(start, seq.valid)", "first_write=start"),
    Mutant("source-not-held", "scheduler", "        for block in blocks:  # held first: what the match needs is not available any more\n            pool.hold(block)\n", "        for block in shared:\n            pool.hold(block)\n"),
    Mutant("source-held-for-ever", "scheduler", "        for source, _ in self._copies.values():\n            self.tree.let_go(source)\n", ""),
    Mutant("copy-left-in-plan", "scheduler", "        if seq in self._copies:\n            self.tree.let_go(self._copies.pop(seq)[0])\n", ""),
    Mutant("take-over-a-held-tail", "scheduler", "not node.children and not pool.ref_count[source]", "not node.children"),
    Mutant("take-over-an-inner-tail", "scheduler", "source is not None and not node.children and not pool.ref_count[source]", "source is not None and not pool.ref_count[source]"),
    Mutant("never-take-over", "scheduler", "takes_over = source is not None and", "takes_over = source is None and"),
    Mutant("no-room-for-the-copy", "scheduler", "pool.num_blocks(max(computed + count, hit)) - len(shared)", "pool.num_blocks(computed + count) - len(blocks)"),
    Mutant("failed-admission-keeps-holds", "scheduler", "            for block in blocks:\n                self.tree.let_go(block)\n            return False", "            return False"),
    Mutant("watermark-when-alone", "scheduler", "(self.watermark if self.running else 0)", "self.watermark"),
    Mutant("no-watermark", "scheduler", "(self.watermark if self.running else 0)", "0"),
    Mutant("never-evict-alone", "scheduler", "if self.running or self._reads or self.chunk(seq.remaining) == 0 or not self.tree.evict_one():", "if True:"),
    Mutant("victim-is-the-first", "scheduler", "key=lambda s: (s.rank, -s.admitted)", "key=lambda s: (s.rank, s.admitted)"),
    Mutant("victim-by-age-only", "scheduler", "key=lambda s: (s.rank, -s.admitted)", "key=lambda s: -s.admitted"),
    Mutant("victim-stays-planned", "scheduler", "self._planned.pop(seq, 0)", "self._planned.get(seq, 0)"),
    Mutant("host-copies-the-wrong-blocks", "host_cache", "list(zip(table[first : first + len(blocks)], blocks, strict=True))\n        self._out", "list(zip(table[: len(blocks)], blocks, strict=True))\n        self._out"),
    Mutant("restore-reads-the-wrong-blocks", "host_cache", "list(zip(table[first : first + len(blocks)], blocks, strict=True))\n        self._into", "list(zip(table[: len(blocks)], blocks, strict=True))\n        self._into"),
    Mutant("restored-blocks-not-held", "host_cache", "        for block in table:  # what is evicted", "        for block in ():  # what is evicted"),
    Mutant("swapped-blocks-leak", "host_cache", "self._let_go(self._held.pop(seq, []))", "self._held.pop(seq, [])"),
    Mutant("given-up-tail-leaks", "radix_tree", "            elif owner is None:\n                self.pool.free(block)\n", ""),
    Mutant("swap-before-its-copy", "scheduler", "        if seq not in self._copies:  # else a part of its KV is yet to be copied\n            self.host.swap_out(self, seq)\n", "        self.host.swap_out(self, seq)\n"),
    Mutant("host-ignores-namespace", "host_cache", "        node = self.tree.match(seq.token_ids, seq.namespace)\n        table = ", "        node = max((self.tree.match(seq.token_ids, each) for each in list(self.tree.roots)), key=lambda node: node.end)\n        table = "),
    Mutant("spilled-without-its-namespace", "host_cache", "scheduler.tree.blocks_to(node), node.namespace)", "scheduler.tree.blocks_to(node), \"\")"),
    Mutant("swapped-without-its-namespace", "host_cache", "self._keep(scheduler, tokens, seq.block_table, seq.namespace, least=1)", "self._keep(scheduler, tokens, seq.block_table, \"\", least=1)"),
    Mutant("private-prefix-is-kept", "host_cache", "        if node.namespace not in scheduler.private:\n", "        if True:\n"),
    Mutant("admit-after-preemption", "scheduler", "if self.num_preemptions == before:", "if True:"),
    Mutant("prefill-before-decode", "scheduler", "key=lambda s: (s.remaining > 1, ", "key=lambda s: (s.remaining <= 1, "),
    Mutant("budget-ignored", "step_limits", "return max(0, min(remaining, longest, left))", "return min(remaining, longest)"),
    Mutant("chunk-limit-ignored", "step_limits", "return max(0, min(remaining, longest, left))", "return max(0, min(remaining, left))"),
    Mutant("too-many-run", "scheduler", "self.running) + taken < slots", "self.running) + taken <= slots"),
    Mutant("follower-does-not-wait", "sequence", "leader.live and leader.computed < leader.num_prompt_tokens", "False"),
    Mutant("follower-waits-for-ever", "sequence", "leader is not None and leader.live and", "leader is not None and"),
    Mutant("writer-kept-after-the-end", "scheduler", "            if self.pool.writer[block] is seq:\n                self.pool.writer[block] = None\n", ""),
    Mutant("private-block-leaks", "scheduler", "            if self.pool.owner[block] is seq:\n                self.pool.free(block)\n", ""),
    Mutant("released-leaf-not-queued", "radix_tree", "                self.queue(owner)\n", "                pass\n"),
    Mutant("abort-counts-as-computed", "scheduler", "        for entry in plan.batch:\n            if entry.seq.state == \"running\":\n                self._put_back(entry.seq)\n", "        for entry in plan.batch:\n            entry.seq.computed += entry.num_tokens\n"),
    Mutant("fits-needs-a-slot-too-many", "scheduler", "self.pool.num_blocks(num_prompt_tokens + max_tokens - 1)", "self.pool.num_blocks(num_prompt_tokens + max_tokens)"),
    Mutant("ended-while-it-ran-goes-on", "scheduler", "            if seq.state != \"running\":\n                continue\n            seq.num_computed", "            seq.num_computed"),
    Mutant("decode-past-a-gap", "radix_tree", "not isinstance(leaf, Node) or leaf.end != at", "not isinstance(leaf, Node)"),
    Mutant("guess-forgets-the-sample", "look_ahead", "entry.stop, seq.num_tokens + entry.samples", "entry.stop, seq.num_tokens"),
    Mutant("guess-in-any-order", "look_ahead", "one[2] - one[1] > 1, -one[0].rank, one[0].admitted", "one[0].admitted,"),
    Mutant("guess-with-the-old-budget", "look_ahead", "scheduler.next_budget", "scheduler.budget"),
    Mutant("guess-takes-blocks-backwards", "block_pool", "self._free[: -count - 1 : -1]", "self._free[len(self._free) - count :]"),
    Mutant("guess-does-not-evict", "look_ahead", "if sum(needs) > pool.num_free:", "if sum(needs) > pool.num_available:"),
    Mutant("guess-outlives-a-freed-block", "look_ahead", "guess.moves != pool.moves or ", ""),
    Mutant("guess-outlives-a-sequence", "look_ahead", "e.start == e.seq.computed and ", ""),
    Mutant("guess-keeps-who-comes-out", "look_ahead", "pool.moves or scheduler.admits:", "pool.moves:"),
    Mutant("guess-keeps-news-from-the-runner", "look_ahead", "scheduler.plan_of(scheduler.step + 1, order, copies=[])", "StepPlan(scheduler.step + 1, scheduler.plan_of(0, order, []).batch)"),
    Mutant("lifo", "policy", "return (-seq.priority, seq.seq_id)", "return (-seq.priority, -seq.seq_id)"),
    Mutant("lpm-shortest-first", "policy", "-known[seq], seq.seq_id", "known[seq], seq.seq_id", tests="policy"),
    Mutant("lpm-counts-an-unread-cache", "policy", " if seq.read_cache else 0\n            compared", "\n            compared", tests="policy"),
    Mutant("lpm-without-bound", "policy", "            if compared > MOST_COMPARED:\n                break\n", "", tests="policy"),
    Mutant("lpm-find-matches", "policy", "tree.find(seq.token_ids, seq.namespace)[1] if", "tree.match(seq.token_ids, seq.namespace).end if", tests="policy"),
    Mutant("find-one-token-more", "radix_tree", "        return node, position\n", "        return node, position + 1\n", tests="policy"),
    Mutant("nobody-is-due", "policy", "        if step >= self._quiet_until:\n", "        if False:\n", tests="policy"),
    Mutant("first-come-never-ages", "policy", "        first, others = self.due_first(waiting, step)\n        return first + others\n", "        return waiting[:]\n", tests="policy"),
    Mutant("due-again-at-once", "policy", "-1, step + self.pause", "-1, 0", tests="policy"),
    Mutant("the-last-to-come-is-due", "policy", "first = min(old", "first = max(old", tests="policy"),
    Mutant("age-forgets-earlier-waits", "policy", "seq.waited + step - seq.queued_step", "step - seq.queued_step", tests="policy"),
    Mutant("the-due-are-preempted-again", "policy", "return AGED if self.due(seq) else seq.priority", "return seq.priority", tests="policy"),
    Mutant("equals-take-each-other-s-place", "policy", "each.rank < seq.priority", "each.rank <= seq.priority", endless=True, tests="policy"),
    Mutant("the-first-admitted-gives-way", "policy", "(each.rank, -each.admitted)", "(each.rank, each.admitted)", tests="policy"),
    Mutant("preempted-in-vain", "displacement", "return taken + fresh + kept <= pool.num_available + gained", "return True", tests="policy"),
    Mutant("shared-blocks-do-not-count", "displacement", "taken = sum(pool.ref_count[block] == named[block] for block in blocks)", "taken = len(blocks)", tests="policy"),
    Mutant("victims-give-back-nothing", "displacement", "<= pool.num_available + gained", "<= pool.num_available", tests="policy"),
    Mutant("decodes-stopped-for-budget", "scheduler", "            victims = [victim for victim in victims if self._planned.get(victim, 0) > 1]\n", "            pass\n", tests="policy"),
    Mutant("a-slot-is-never-taken", "scheduler", "return bool(self.policy.outranked(self.waiting[0], self.running))", "return False", tests="policy"),
    Mutant("the-due-lose-their-room", "scheduler", "blocked, self._kept = True, self.pool.num_available", "blocked = False", tests="policy"),
    Mutant("high-ones-wait-behind-the-due", "scheduler", "if not (self.policy.displaces and self.policy.due(seq)):", "if True:", tests="policy"),
    Mutant("fair-by-name", "fairness", "(self.counters[tenant], following.seq_id, following, tenant)", "(0, following.seq_id, following, tenant)", tests="policy"),
    Mutant("outputs-are-free", "fairness", "        self.counters[seq.tenant] += OUTPUT_PRICE\n", "        pass\n", tests="policy"),
    Mutant("prompts-are-paid-again", "fairness", "        if len(seq.admissions) == 1:\n", "        if True:\n", tests="policy"),
    Mutant("idle-tenants-save-up", "fairness", "max(self.counters.get(seq.tenant, 0), self._floor())", "self.counters.get(seq.tenant, 0)", tests="policy"),
    Mutant("tenants-never-forgotten", "fairness", "            self._tidy()\n", "", tests="policy"),
    Mutant("nobody-follows", "followers", "        if missing < self.least:\n            return False\n", "        return False\n", tests="policy"),
    Mutant("follows-for-little", "followers", "        if missing < self.least:\n            return False\n", "", tests="policy"),
    Mutant("endless-patience", "followers", "        seq.patience -= 1\n", "", endless=True, tests="policy"),
    Mutant("hash-is-proof", "followers", "leader is not None and leader.token_ids[:length] == seq.token_ids[:length]", "leader is not None", tests="policy"),
    Mutant("follows-across-salts", "followers", "hash(seq.namespace)", "0", tests="policy"),
    Mutant("slot-of-a-follower-is-given-away", "scheduler", "taken = self._followers + self._reads", "taken = self._reads", tests="policy"),
    Mutant("blocks-of-a-follower-are-given-away", "scheduler", "        self._kept += self.pool.num_blocks(seq.num_tokens)\n", "", tests="policy"),
    Mutant("budget-of-a-follower-is-given-away", "scheduler", "if self._followers and self.chunk(seq.remaining) < seq.remaining:", "if False:", tests="policy"),
    Mutant("slot-of-a-reader-is-given-away", "scheduler", "taken = self._followers + self._reads", "taken = self._followers", tests="policy"),
    Mutant("blocks-of-a-reader-are-given-away", "scheduler", "self._kept + seq.reading\n", "self._kept\n", tests="policy"),
    Mutant("read-blocks-are-evicted", "scheduler", "if self.running or self._reads or self.chunk", "if self.running or self.chunk", tests="policy"),
    Mutant("a-new-one-does-not-wake-up", "scheduler", "seq.queued_step, self.held_up = self.step, False", "seq.queued_step = self.step", tests="policy"),
    Mutant("an-end-does-not-wake-up", "scheduler", "        self.policy.left(seq)\n        self.held_up = False\n", "        self.policy.left(seq)\n", tests="policy"),
    Mutant("read-without-room", "turns", "        return policy.displaces or not source.patient\n", "        pass\n", tests="policy"),
    Mutant("room-is-waited-for-for-ever", "turns", "return policy.displaces or not source.patient", "return policy.displaces", tests="policy"),
    Mutant("room-is-never-waited-for", "turns", "return policy.displaces or not source.patient", "return True", tests="policy"),
    Mutant("who-displaces-waits-for-room", "turns", "return policy.displaces or not source.patient", "return not source.patient", tests="policy"),
    Mutant("read-before-its-turn", "turns", "(not has_slot and not policy.outranked(seq, scheduler.running))", "False", tests="policy"),
    Mutant("priority-upside-down", "policy", "return (-seq.priority, seq.seq_id)", "return (seq.priority, seq.seq_id)"),
]  # fmt: skip


class Finder:
    """Serves one module from a source of its own."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        return importlib.util.spec_from_loader(name, self) if name == self.name else None

    def create_module(self, spec: object) -> None:
        return None

    def exec_module(self, module: object) -> None:
        exec(compile(self.text, f"<mutant of {self.name}>", "exec"), module.__dict__)  # noqa: S102


if os.environ.get("YAIE_MUTANT"):
    wanted = next(mutant for mutant in MUTANTS if mutant.name == os.environ["YAIE_MUTANT"])
    sys.meta_path.insert(0, Finder(f"yaie_engine.{wanted.module}", wanted.source()))  # type: ignore[arg-type]

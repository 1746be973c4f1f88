"""What is cached when parts of the model were replaced: KV of those before never meets a new request. Imports no torch.

Who runs goes on over the KV that it has. That KV, and what it computes from now on, is its own: its nodes move into a
namespace in which nobody new looks, and which goes with it.
"""

from __future__ import annotations

from .radix_tree import Node, RadixTree
from .scheduler import Scheduler
from .sequence import Sequence
from .step_runner import Runner

BEFORE = "before:"
"""How such namespaces begin. Others are "", "salt:...", or begin with the id of a request."""


def fresh(scheduler: Scheduler, runner: Runner) -> Scheduler:
    """`scheduler`, which is about to plan a step, without what parts computed that the model has no more."""
    if runner.renewed(scheduler.admits):
        start_over(scheduler)
    return scheduler


def start_over(scheduler: Scheduler) -> None:
    """Nothing that is cached is found any more, on the device, in host blocks or as a state. Between two steps."""
    for seq in scheduler.waiting:
        scheduler.host.release(seq)  # what was swapped out is computed again
    scheduler.host.reset(scheduler)
    names: dict[str, str] = {}
    for seq in scheduler.running:
        if not seq.namespace.startswith(BEFORE):
            if seq.namespace not in names:
                names[seq.namespace] = _set_aside(scheduler.tree, seq.namespace)
            _move(scheduler, seq, names[seq.namespace])


def _set_aside(tree: RadixTree, namespace: str) -> str:
    """Move the nodes of a namespace, all of which are held, into a new one; its name."""
    number = next(tree._ids)
    name = f"{BEFORE}{number}"
    old = tree.roots.get(namespace)
    if old is None or not old.children:
        return name
    tree.roots[name] = new = Node(number, None, 0, [], [], name)
    new.children, old.children = old.children, {}
    if old is not tree.root:
        del tree.roots[namespace]
    for child in new.children.values():
        child.parent = new
    stack = list(new.children.values())
    while stack:
        node = stack.pop()
        node.namespace = name
        tree.pool.changes.touch(node, len(node.token_ids), len(node.blocks))
        stack += node.children.values()
    return name


def _move(scheduler: Scheduler, seq: Sequence, name: str) -> None:
    """`seq` reads and writes in this namespace from now on, and leaves nothing to others."""
    private = scheduler.private
    if seq.private:
        private[seq.namespace] -= 1
        if not private[seq.namespace]:
            del private[seq.namespace]
    private[name] = private.get(name, 0) + 1
    seq.namespace, seq.private, seq.marks = name, True, None
    if seq.salt is not None:  # without a state there is nothing to go on from once it is preempted
        seq.salt, seq.read_cache = None, False

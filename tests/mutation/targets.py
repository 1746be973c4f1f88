"""Which modules are mutated, and which tests see what is wrong with them: quick ones, without a model."""

from __future__ import annotations

RULES = ("property/test_schedule", "property/test_rules", "property/test_recovery", "property/test_host_rules")
POLICIES = tuple(f"property/test_policy_{name}" for name in ("fcfs", "priority", "lpm", "fair", "followers"))
MACHINE = "property/test_scheduler_machine"
STORE = ("store/test_record", "store/test_index", "store/test_folder_rules", "store/test_folder")
BOOKS = (*RULES, MACHINE, *POLICIES)

TARGETS: dict[str, tuple[str, ...]] = {
    "block_pool": ("property/test_blocks", *RULES, MACHINE),
    "radix_tree": ("property/test_tree", "property/test_tree_eviction", *RULES, MACHINE),
    "scheduler": BOOKS,
    "plan": BOOKS,
    "step_limits": BOOKS,
    "displacement": (*POLICIES, *RULES, MACHINE),
    "policy": (*POLICIES, *RULES, MACHINE),
    "fairness": (*POLICIES[::-1], *RULES, MACHINE),
    "followers": (*POLICIES[::-1], *RULES, MACHINE),
    "store.record": STORE,
    "store.index": STORE,
    "store.folder": STORE,
}
"""Test files without ending, in the order in which they are asked: the first that fails settles it."""

DESELECTED = ("store/test_folder.py::test_killed_while_it_writes",)
"""Starts processes of its own, which would run without the mistake."""

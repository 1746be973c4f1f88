"""Which modules are mutated, and which tests see what is wrong with them: quick ones, without a model."""

from __future__ import annotations

_BOOKS = ("blocks", "tree", "tree_eviction", "rules", "recovery", "host_rules", "schedule", "limits")
_POLICIES = tuple(f"policy_{name}" for name in ("books", "fcfs", "priority", "lpm", "fair", "followers", "reads"))
PROPERTY = tuple(f"property/test_{name}" for name in (*_BOOKS, *_POLICIES, "scheduler_machine"))
BODY = ("store/test_body", "store/test_record")
STORE = ("store/test_record", "store/test_index", "store/test_folder_rules", "store/test_folder")

_MODULES = ("block_pool", "radix_tree", "scheduler", "plan", "step_limits", "displacement")
TARGETS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys((*_MODULES, "policy", "fairness", "followers"), PROPERTY),
    **dict.fromkeys(("store.record", "store.index", "store.folder"), STORE),
    "store.body": BODY,
}
"""Test files without ending."""

DESELECTED = ("store/test_folder.py::test_killed_while_it_writes",)
"""Starts processes of its own, which would run without the mistake."""

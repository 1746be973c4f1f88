"""What the pages' models of tree and block map say, and the same said by the drawings' own models."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from yaie_engine.snapshot import (
    BlockCounts,
    Counters,
    EngineSnapshot,
    ModelInfo,
    NodeView,
    QueueCounts,
    RequestView,
)
from yaie_engine.tape import Frame
from yaie_widgets.pool_view import PoolView
from yaie_widgets.tree_view import TreeIndex, state_of

PROGRAM = Path(__file__).parent / "js" / "models_cli.mjs"
NO_LIMIT = 1_000_000


def page_models(recording: dict[str, Any], steps: Sequence[int]) -> dict[int, dict[str, Any]]:
    """What the page shows after each of these steps."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node on PATH (Debian: apt-get install nodejs)")
    asked = json.dumps({"recording": recording, "steps": list(steps)})
    done = subprocess.run([node, str(PROGRAM)], input=asked, capture_output=True, text=True, timeout=120, check=True)
    return {found["step"]: found for found in json.loads(done.stdout)}


def snapshot_of(frame: Frame, recording: dict[str, Any]) -> EngineSnapshot:
    """A frame as the snapshot that an engine would have given: made anew from tables and nodes."""
    size, total = recording["engine"]["block_size"], recording["engine"]["num_blocks"]
    held = {block for table in frame.tables.values() for block in table.blocks}
    owned = {block for node in frame.nodes.values() for block in node.blocks}
    counts = BlockCounts(size, total, total - len(held | owned), len(held), len(owned - held))
    requests = tuple(
        RequestView(label, "decode", 0, table.num_computed, 0, 0, tuple(table.blocks), 0, 0.0)
        for label, table in frame.tables.items()
    )
    nothing = (ModelInfo(), counts, QueueCounts())
    return EngineSnapshot("ready", frame.step, *nothing, requests, tuple(_nodes(frame)), (), Counters({}))


def _nodes(frame: Frame) -> Iterable[NodeView]:
    owners = {block: node for node in frame.nodes.values() for block in node.blocks}
    users: dict[int, list[str]] = {}
    for label, table in frame.tables.items():
        deepest = next((owners[block] for block in reversed(table.blocks) if block in owners), None)
        while deepest is not None:
            users.setdefault(deepest.id, []).append(label)
            deepest = frame.nodes.get(deepest.parent)
    roots = {node.parent: node.namespace for node in frame.nodes.values() if node.parent not in frame.nodes} | {0: ""}
    for root, namespace in roots.items():
        yield NodeView(root, None if root == 0 else 0, 0, (), "", (), 0, 0, namespace, ())
    for node in frame.nodes.values():
        names = tuple(users.get(node.id, ()))
        tokens, blocks = tuple(node.token_ids), tuple(node.blocks)
        figures = (len(names), node.used_step, node.namespace, names)
        yield NodeView(node.id, node.parent, len(tokens), tokens, "", blocks, *figures)


def assert_equal(found: dict[str, Any], snapshot: EngineSnapshot) -> None:
    """The page and the drawings show the same figures."""
    assert found["step"] == snapshot.step
    assert_same_tree(found["tree"], snapshot)
    assert_same_blocks(found["blocks"], snapshot)


def assert_same_tree(tree: dict[str, Any], snapshot: EngineSnapshot) -> None:
    index = TreeIndex(snapshot.tree)
    shown = [node for node in snapshot.tree if node.num_tokens]
    assert tree["nodes"] == {str(node.id): _node_figures(node, index) for node in shown}
    assert {int(parent): ids for parent, ids in tree["below"].items() if ids} == {
        parent: ids
        for parent, children in index.children.items()
        if (ids := [child.id for child in children if child.num_tokens])
    }
    assert tree["totals"] == {
        "nodes": len(shown),
        "tokens": sum(node.num_tokens for node in shown),
        "blocks": sum(len(node.blocks) for node in shown),
    }
    assert tree["namespaces"] == len({node.namespace for node in shown})


def _node_figures(node: NodeView, index: TreeIndex) -> dict[str, Any]:
    sums = index.sums[node.id]
    return {
        "start": index.start_of(node),
        "tokens": node.num_tokens,
        "blocks": list(node.blocks),
        "holders": list(node.request_ids),
        "used": node.last_used_step,
        "namespace": node.namespace,
        "state": state_of(node),
        "sum": {"nodes": sums.nodes, "tokens": sums.tokens, "blocks": sums.blocks},
    }


def assert_same_blocks(blocks: dict[str, Any], snapshot: EngineSnapshot) -> None:
    pool, counts = PoolView(snapshot, None, NO_LIMIT), snapshot.blocks
    found = blocks["counts"]
    assert (found["free"], found["cached"]) == (counts.free, counts.cached)
    assert (found["held"] + found["shared"], found["shared"]) == (counts.held, pool.shared)
    assert found["free"] + found["cached"] + found["held"] + found["shared"] == counts.total == len(blocks["cells"])
    cells = map(pool.block, range(counts.total))
    assert [(cell["state"], cell["holders"], cell["node"]) for cell in blocks["cells"]] == [
        (info.state, list(info.holders), info.owner.id if info.owner else None) for info in cells
    ]


def assert_texts_fit(found: dict[str, Any], snapshot: EngineSnapshot) -> None:
    """What a cell says of positions and tokens is what its holder or its path in the tree has there."""
    size, index = snapshot.blocks.block_size, TreeIndex(snapshot.tree)
    tables = {view.request_id: view.block_table for view in snapshot.requests}
    for place, cell in enumerate(found["blocks"]["cells"]):
        if cell["state"] == "free":
            continue
        assert len(cell["tokens"]) == cell["used"] > 0
        for holder in cell["holders"]:
            assert tables[holder][cell["logical"]] == place
        if cell["node"] is not None:
            path = index.upwards(index.nodes[cell["node"]])
            tokens = [token for node in path for token in node.token_ids]
            assert cell["tokens"] == tokens[cell["logical"] * size :][: cell["used"]]

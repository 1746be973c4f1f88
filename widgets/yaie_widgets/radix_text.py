"""The radix tree of a snapshot for a terminal: the same rows and figures as the picture."""

from __future__ import annotations

from yaie_engine.snapshot import EngineSnapshot, NodeView

from .figures import count, counted, listed, ranges
from .safe_text import columns, excerpt, pad, shorten
from .state_nodes import figures, sum_words
from .tree_view import Row, Sums, TreeView, last_used, state_words

_TREE_COLUMNS = 46
_MIN_TEXT = 16


def radix_text(snapshot: EngineSnapshot, view: TreeView) -> str:
    """One line for each row: branch and text, then aligned figures."""
    lines = [(_stem(row) + _words(row, view), _figures(row, view, snapshot.step)) for row in view.rows]
    left = max(columns(words) for words, _ in lines)
    widths = [max((len(figures[i]) for _, figures in lines if figures), default=0) for i in range(2)]
    body = [_line(words, figures, left, widths) for words, figures in lines]
    return "\n".join([_head(snapshot, view), *body])


def _head(snapshot: EngineSnapshot, view: TreeView) -> str:
    sums = view.totals
    words = [f"nodes {count(sums.nodes)}", f"tokens {count(sums.tokens)}", f"blocks {count(sums.blocks)}"]
    words.append(f"step {count(snapshot.step)}")
    if snapshot.states:
        words.append(sum_words(snapshot))
    if view.namespaces > 1:
        words.append(f"namespaces {view.namespaces}")
    if view.path_words:
        words.append(f"▶ {view.path_words}")
    return "Radix tree   " + "   ".join(words)


def _stem(row: Row) -> str:
    if not row.rails:
        return ""
    rails = "".join("│  " if more else "   " for more in row.rails[:-1])
    return rails + ("├─" if row.rails[-1] else "└─") + ("▶" if row.on_path else " ")


def _words(row: Row, view: TreeView) -> str:
    node = row.node
    if node is None:
        return f"+{count(row.hidden.nodes)} more"
    if node.num_tokens:
        return excerpt(node.text, max(_TREE_COLUMNS - 3 * len(row.rails), _MIN_TEXT))
    if node.namespace:
        return f"namespace {shorten(node.namespace, 24)}"
    return "root" if view.totals.nodes else f"root · {view.empty}"


def _figures(row: Row, view: TreeView, step: int) -> list[str]:
    node = row.node
    if node is None:
        return _sums(row.hidden)
    if not node.num_tokens:
        return []
    sums = _sums(Sums(1, node.num_tokens, len(node.blocks)))
    if node.id in view.states:
        state = view.states[node.id]
        return [sums[0], "state ", " · ".join(figures(state))]
    return [*sums, *_use(node, step)]


def _sums(sums: Sums) -> list[str]:
    # A singular is padded, so that the figures of a column end at one place.
    return [
        counted(number, noun) + " " * (number == 1) for number, noun in ((sums.tokens, "token"), (sums.blocks, "block"))
    ]


def _use(node: NodeView, step: int) -> list[str]:
    holders = listed(shorten(name, 14) for name in node.request_ids)
    owned = f"blocks {ranges(node.blocks, 4)}" if node.blocks else ""
    return [f"{state_words(node):<9}  {last_used(node, step):<12}", *(word for word in (owned, holders) if word)]


def _line(words: str, figures: list[str], left: int, widths: list[int]) -> str:
    if not figures:
        return words
    aligned = [figure.rjust(width) for figure, width in zip(figures, widths, strict=False)]
    return "  ".join([pad(words, left), *aligned, *figures[2:]]).rstrip()

"""Kept states as nodes of the tree: what an engine of tier "state" has in place of blocks that prompts share."""

from __future__ import annotations

from yaie_engine.snapshot import EngineSnapshot, NodeView, StateView

from .figures import count, counted, memory

EMPTY_WORDS = "No state is kept yet."
BESIDE = "Kept beside the blocks"


def with_states(snapshot: EngineSnapshot) -> tuple[tuple[NodeView, ...], dict[int, StateView]]:
    """The nodes of the tree and, below its root, one for each state; and the state behind each of these."""
    first = max((node.id for node in snapshot.tree), default=0) + 1
    places: dict[str, int] = {"": 0}
    nodes, behind = list(snapshot.tree) or [_node(0, None)], {}
    for state in snapshot.states:  # a salt has a root of its own, as in the tree
        if state.namespace not in places:
            places[state.namespace] = first + len(snapshot.states) + len(places)
            nodes.append(_node(places[state.namespace], 0, namespace=state.namespace))
    for number, state in enumerate(snapshot.states, first):
        above = places[state.namespace] if state.parent is None else first + state.parent
        nodes.append(_node(number, above, state.token_ids, state.text, state.namespace))
        behind[number] = state
    return tuple(nodes), behind


def _node(
    number: int, parent: int | None, token_ids: tuple[int, ...] = (), text: str = "", namespace: str = ""
) -> NodeView:
    return NodeView(number, parent, len(token_ids), token_ids, text, (), 0, 0, namespace, ())


def covers(state: StateView) -> str:
    """For how many tokens in all it stands, where that is more than its node says."""
    return "" if state.parent is None else f"stands for {counted(state.num_tokens, 'token')}"


def hits(state: StateView) -> str:
    """How often a prompt went on from it."""
    return counted(state.hits, "hit") if state.hits else "no hit yet"


def figures(state: StateView) -> tuple[str, ...]:
    """Size, hits, what it stands for and its age, in words."""
    words = memory(state.num_bytes), hits(state), covers(state), used(state)
    return tuple(filter(None, words))


def used(state: StateView) -> str:
    """When it was used last, coarsely, and whether it stays when room is needed."""
    age = "used just now" if state.age_s < 1 else f"used {state.age_s:,.0f} s ago"
    return f"{age} · pinned" if state.pinned else age


def sum_words(snapshot: EngineSnapshot) -> str:
    """How many there are and what they take: `6 states, 1.2 MiB`."""
    return f"{counted(len(snapshot.states), 'state')}, {memory(sum(state.num_bytes for state in snapshot.states))}"


def totals(snapshot: EngineSnapshot) -> list[tuple[str, str]]:
    """The same as figures with their names; none where no state is kept."""
    if not snapshot.states:
        return []
    size = memory(sum(state.num_bytes for state in snapshot.states))
    return [("States", count(len(snapshot.states))), ("Memory", size)]

"""`%yaie status`: the engine in a few lines, or its whole snapshot."""

from __future__ import annotations

import json
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from yaie_magic.session import LoadedEngine, session

from .entry import ENGINE, JSON, Call, Subcommand
from .roster import roster

if TYPE_CHECKING:
    from yaie_engine import EngineSnapshot

BAR = 40
WIDTH = 90


class JsonDict(dict[str, Any]):
    """A dict that shows as JSON text."""

    def __repr__(self) -> str:
        return json.dumps(self, indent=2)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


def _status(call: Call) -> JsonDict | None:
    if "engine" not in call.given and session.current is None and not call.given.get("json"):
        print("No engine is loaded. %yaie load MODEL loads one; the bundled model is called tiny.")
        _print_roster()
        return None
    name = call.given.get("engine", session.current)
    if name in session.lost and not call.given.get("json"):
        print(f"No engine runs under the name {name}: {session.lost[name].story}.")
        return None
    snapshot = _look(call)
    if snapshot is None:
        return None
    if call.given.get("json"):
        return JsonDict(snapshot.to_dict())
    print(report(call.engine, snapshot))
    if not call.engine.alive:
        print("It serves nothing any more; %yaie restart loads it again.")
    elif snapshot.state == "draining":
        print("Its bookkeeping broke: it finishes what runs and takes nothing new; %yaie restart loads it again.")
    elif snapshot.state == "asleep":
        print("It sleeps and takes no requests; %yaie wake wakes it.")
    _print_roster()
    return None


def _look(call: Call) -> EngineSnapshot | None:
    """The engine's snapshot; when one that runs elsewhere does not answer, that is its status."""
    from yaie_engine.errors import YaieError
    from yaie_magic.remote.llm import RemoteLLM

    engine = call.engine
    try:
        if isinstance(engine.llm, RemoteLLM):
            engine.llm.reach()  # a whole snapshot may take its time, a sign of life may not
        return engine.llm.snapshot()
    except YaieError as error:
        if engine.elsewhere is None or call.given.get("json"):
            raise
        why = error
        try:
            engine.elsewhere.check()
        except YaieError as known:
            why = known
        print(f"{engine.model}, {engine.elsewhere.where}, shows nothing: {why}")
        _print_roster()
        return None


def _print_roster() -> None:
    if lines := roster():
        print("\n".join(["engines", *lines]))


def report(engine: LoadedEngine, snapshot: EngineSnapshot) -> str:
    """The figures of a snapshot, a line for each part."""
    model, counters = snapshot.model, snapshot.counters
    tier, _, attention = model.reason.partition(f"; {model.attention_backend} attention: ")
    rows = [
        (
            "model",
            f"{model.dtype} on {model.device}, attention {model.attention_backend}, {model.max_model_len:,} tokens",
        ),
        ("tier", f"{model.tier}: {tier}" if tier else model.tier),
        *([("attention", f"{model.attention_backend}: {attention}")] if attention else []),
        ("blocks", _blocks(snapshot)),
        *_host(engine),
        *_store(engine),
        ("queue", ", ".join(f"{getattr(snapshot.queue, name)} {name}" for name in snapshot.queue.__slots__)),
        ("requests", ", ".join(f"{n:,} {outcome}" for outcome, n in sorted(counters.requests.items())) or "none yet"),
        ("prompts", f"{counters.prompt_tokens:,} tokens, {_hits(counters.cached_tokens, counters.prompt_tokens)}"),
        ("work", f"{counters.computed_tokens:,} tokens computed, {counters.generated_tokens:,} generated"),
        (
            "events",
            f"{_count(counters.preemptions, 'preemption')}, {_count(counters.evictions, 'eviction')}, "
            f"{_count(counters.copies, 'copy', 'copies')}",
        ),
    ]
    head = f"{model.name} · {snapshot.state} · step {snapshot.step:,}"
    others = [name for name in session.engines if name != engine.name]
    if others:
        head += f" · engine {engine.name} (also loaded: {', '.join(others)})"
    return "\n".join([head, *(_row(name, text) for name, text in rows)])


def _row(name: str, text: str) -> str:
    """A line, or several with one indent where a page or terminal would break it anywhere."""
    lines = [text] if name == "blocks" else wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)
    return f"\n{'':12}".join([f"  {name:<9} {lines[0]}", *lines[1:]])


def _count(number: int, one: str, more: str = "") -> str:
    return f"{number:,} {one if number == 1 else more or one + 's'}"


def _store(engine: LoadedEngine) -> list[tuple[str, str]]:
    """The prefix store of an engine in this process that has one, or the states that it keeps in memory."""
    from yaie_engine import LLM
    from yaie_engine.states.service import StatePrefixes

    from .cache import summary

    llm = engine.llm
    if isinstance(llm, LLM) and isinstance(llm.prefixes, StatePrefixes):
        return [("states", "; ".join(filter(None, (llm.prefixes.kept.summary, llm.prefixes.trouble))))]
    return [("store", summary(llm))] if isinstance(llm, LLM) and llm.prefixes is not None else []


def _host(engine: LoadedEngine) -> list[tuple[str, str]]:
    """The host blocks of an engine in this process that has some."""
    from yaie_engine import LLM

    pool = engine.llm.host_blocks if isinstance(engine.llm, LLM) else None
    if pool is None:
        return []
    counts = f"{pool.held:,} held for swapped requests, {pool.cached:,} cached, {pool.free:,} free of {pool.total:,}"
    return [("host", f"{counts}; {pool.swapped:,} swapped out so far, {pool.unswapped:,} found no room")]


def _blocks(snapshot: EngineSnapshot) -> str:
    """A bar of held (#), cached (=) and free (.) blocks, and the counts."""
    blocks = snapshot.blocks
    held, cached = _share(blocks.held, blocks.total), _share(blocks.cached, blocks.total)
    bar = f"[{'#' * held}{'=' * cached}{'.' * max(0, BAR - held - cached)}]"
    counts = f"{blocks.held:,} held (#), {blocks.cached:,} cached (=), {blocks.free:,} free of {blocks.total:,}"
    return f"{bar[: BAR + 2]} {counts}, {blocks.block_size} tokens each"


def _share(part: int, total: int) -> int:
    """Cells of the bar; something that is there is never invisible."""
    return max(1, round(part / total * BAR)) if part and total else 0


def _hits(cached: int, prompts: int) -> str:
    rate = f" (hit rate {cached / prompts:.1%})" if prompts else ""
    return f"{cached:,} from the cache{rate}"


SUBCOMMANDS = (Subcommand("status", "what the engine is and does, in a few lines", _status, lambda: (JSON, ENGINE)),)

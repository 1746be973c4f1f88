"""`%yaie cache`: prefixes that are kept on disk, so that they are there after a restart; states kept in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaie_magic.aside import aside
from yaie_magic.local import local_llm
from yaie_magic.options import UsageProblem, option
from yaie_magic.render import static_mode
from yaie_magic.terminal import printable

from .entry import ENGINE, Call, Subcommand

if TYPE_CHECKING:
    from yaie_engine import LLM
    from yaie_engine.states.kept import KeptState
    from yaie_engine.store.opening import Prefixes
    from yaie_engine.store.prefix_store import Entry

    Kept = Entry | KeptState

ALL = option("all", "clear: pinned records, too", kind="flag")
SHOWN_TEXT = 48


def _cache(call: Call) -> None:
    words = list(call.given.get("words") or [])
    what, rest = (words[0], words[1:]) if words else ("list", [])
    if what not in ACTIONS:
        from yaie_engine.validation import did_you_mean

        raise UsageProblem(f"cache: {what!r} is none of {', '.join(ACTIONS)}{did_you_mean(what, ACTIONS)}")
    if call.given.get("all") and what != "clear":
        raise UsageProblem("cache: --all belongs to clear")
    llm = local_llm(call.engine, "cache")
    if llm.prefixes is None:
        raise UsageProblem("cache: this engine keeps no prefixes on disk; %yaie load MODEL --prefix-store FOLDER does")
    ACTIONS[what](call, llm, llm.prefixes, rest)


def _list(_: Call, llm: LLM, prefixes: Prefixes, words: list[str]) -> None:
    print(table(llm, _chosen(prefixes, words)))
    for remark in prefixes.remarks():
        print(remark)


def _save(call: Call, llm: LLM, prefixes: Prefixes, words: list[str]) -> None:
    _keep(call, llm, prefixes, words, pinned=False)


def _pin(call: Call, llm: LLM, prefixes: Prefixes, words: list[str]) -> None:
    named = _named(prefixes, words)
    if named and len(named) == len(words):
        print(f"{_records(prefixes.pin(words, True))} pinned.")
    else:
        _keep(call, llm, prefixes, words, pinned=True)


def _keep(call: Call, llm: LLM, prefixes: Prefixes, words: list[str], pinned: bool) -> None:
    prompt = _prompt(call, llm, words)
    entry: Kept = aside("cache", lambda: llm.save_prefix(prompt, pinned=pinned))
    kept = "saved and pinned" if pinned else "saved"
    print(f"{len(entry.token_ids):,} tokens {kept} as {entry.label} ({_mib(entry.num_bytes)}).")


def _prompt(call: Call, llm: LLM, words: list[str]) -> str | list[int]:
    """The text given, the prompt of the result that a variable names, or that of the last request."""
    if len(words) == 1 and words[0].isidentifier() and hasattr(call.shell.user_ns.get(words[0]), "request_id"):
        wanted = call.shell.user_ns[words[0]].request_id
        found = [record for record in llm.history() if record.request_id == wanted]
        if not found:
            raise UsageProblem(f"cache: the engine does not remember the request of {words[0]} any more")
        return list(found[0].prompt_token_ids)
    if words:
        return " ".join(words)
    last = llm.history(1)
    if not last:
        raise UsageProblem("cache: nothing was asked yet; give a text, or the name of a result")
    return list(last[0].prompt_token_ids)


def _load(_: Call, llm: LLM, prefixes: Prefixes, words: list[str]) -> None:
    entries = _chosen(prefixes, words)
    counts = aside("cache", lambda: prefixes.load(_labels(entries)))
    came = sum(count > 0 for count in counts)
    there = len(entries) - came
    known = f"; {there} of them were there already, or did not fit" if there else ""
    print(f"{_records(len(entries))}: {sum(counts):,} tokens brought into the engine's {prefixes.into}{known}.")


def _clear(call: Call, llm: LLM, prefixes: Prefixes, words: list[str]) -> None:
    entries = _chosen(prefixes, words)
    kept = [] if words or call.given.get("all") else [entry for entry in entries if entry.pinned]
    count, size = prefixes.clear(_labels(entry for entry in entries if entry not in kept))
    stay = f"; {_records(len(kept))} pinned and kept (--all removes them)" if kept else ""
    print(f"{_records(count)} removed, {_mib(size)}{stay}.")


def _unpin(_: Call, llm: LLM, prefixes: Prefixes, words: list[str]) -> None:
    pinned = [entry for entry in _chosen(prefixes, words) if entry.pinned]
    print(f"{_records(prefixes.pin(_labels(pinned), False))} unpinned.")


ACTIONS: dict[str, Callable[[Call, LLM, Prefixes, list[str]], Any]] = {
    "list": _list,
    "save": _save,
    "load": _load,
    "pin": _pin,
    "unpin": _unpin,
    "clear": _clear,
}


def _named(prefixes: Prefixes, words: list[str]) -> list[Kept]:
    return [entry for entry in prefixes.entries() if entry.label in words]


def _labels(entries: Iterable[Kept]) -> list[str]:
    return [entry.label for entry in entries]


def _chosen(prefixes: Prefixes, words: list[str]) -> list[Kept]:
    """The records of these names, or all.

    Raises:
        UsageProblem: a name is none.
    """
    entries: list[Kept] = [*prefixes.entries()]
    labels = _labels(entries)
    for word in words:
        if word not in labels:
            raise UsageProblem(f"cache: no record is called {word!r}; %yaie cache list shows them")
    return [entry for entry in entries if not words or entry.label in words]


def table(llm: LLM, entries: list[Kept]) -> str:
    """One line for each record, and a sum."""
    rows = [("id", "tokens", "size", "used", "hits", "", "text")]
    for entry in entries:
        age = "" if static_mode() else _age(time.time() - entry.used)
        text = printable(llm.detokenize(list(entry.token_ids[:32])).replace("\n", " "))[:SHOWN_TEXT]
        pinned = "pinned" if entry.pinned else ""
        count, size = f"{len(entry.token_ids):,}", _mib(entry.num_bytes)
        rows.append((entry.label, count, size, age, str(entry.hits), pinned, text))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    right = (1, 2, 3, 4)
    lines = []
    for row in rows if entries else []:
        cells = [cell.rjust(widths[i]) if i in right else cell.ljust(widths[i]) for i, cell in enumerate(row)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join([summary(llm), *lines])


def summary(llm: LLM) -> str:
    """The store in one line."""
    prefixes = llm.prefixes
    if prefixes is None:
        return "none"
    entries = prefixes.entries(wait=False)
    size = sum(entry.num_bytes for entry in entries)
    where = printable(_from_here(prefixes.where))
    beside = f"; {prefixes.beside}" if prefixes.beside else ""
    limit = _mib(prefixes.limit)
    trouble = f"; {printable(prefixes.trouble)}" if prefixes.trouble else ""
    return f"{_records(len(entries))} of this model, {_mib(size)} of at most {limit}, in {where}{beside}{trouble}"


def _from_here(where: str) -> str:
    """A folder in or below the one that the kernel works in is named as from there."""
    with suppress(ValueError, OSError):  # it is elsewhere, or the kernel's folder is gone
        return str(Path(where).relative_to(Path.cwd()))
    return where


def _records(count: int) -> str:
    return f"{count:,} record{'' if count == 1 else 's'}"


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:,.1f} MiB"


def _age(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _words() -> list[str]:
    return list(ACTIONS)


SUBCOMMANDS = (
    Subcommand(
        "cache",
        "prefixes that are kept: list, save, load, pin, unpin, clear",
        _cache,
        lambda: (ALL, ENGINE),
        (
            (
                "words",
                "*",
                "list [ID...] (default); save or pin [TEXT, or the name of a result; default: the last prompt]; "
                "load, unpin or clear [ID...; default: all]",
            ),
        ),
        _words,
    ),
)

"""`%yaie cancel | history | reset`."""

from __future__ import annotations

from yaie_magic.options import UsageProblem, option
from yaie_magic.render import duration, static_mode
from yaie_magic.session import DEFAULT_NAME
from yaie_magic.terminal import printable

from .entry import ENGINE, Call, Subcommand
from .names import request_ids_of

SHOWN = 20
PROMPT_WIDTH = 48
ALL = option("all", "every session", kind="flag")


def _cancel(call: Call) -> None:
    wanted = call.given.get("request")
    llm = call.engine.llm
    ids = [None] if wanted is None else request_ids_of(call.shell, wanted)
    count = sum(llm.cancel(each) for each in ids)
    if wanted is not None and not count:
        print(f"{printable(wanted)} is not running.")
    else:
        print(f"{count} {'request' if count == 1 else 'requests'} cancelled.")


def _history(call: Call) -> None:
    count = _count(call.given.get("count", str(SHOWN)))
    records = call.engine.llm.history(count)
    if not records:
        print("No request has ended yet.")
        return
    print(f"{'request':<10} {'ended':<10} {'prompt':>7} {'cached':>7} {'output':>7} {'total':>9}  text of the prompt")
    for record in records:
        total = "" if static_mode() else duration(record.total_s)
        output = sum(len(ids) for ids in record.output_token_ids)
        text = printable(record.prompt.replace("\n", "⏎")) if record.prompt is not None else "(token ids)"
        print(
            f"{record.request_id:<10} {record.finish_reasons[0]:<10} {len(record.prompt_token_ids):>7,} "
            f"{record.num_cached_tokens:>7,} {output:>7,} {total:>9}  {_short(text)}"
        )


def _reset(call: Call) -> None:
    chats = call.engine.chats
    if call.given.get("all"):
        names = list(chats)
        for chat in chats.values():
            chat.forget()
        print(f"{len(names)} {'session' if len(names) == 1 else 'sessions'} reset.")
        return
    name = call.given.get("name", DEFAULT_NAME)
    if name not in chats:
        from yaie_engine.validation import did_you_mean

        hint = did_you_mean(name, chats) or f"; there is {', '.join(chats) or 'none yet'}"
        raise UsageProblem(f"reset: no chat session is called {name!r}{hint}")
    turns = chats[name].forget()
    print(f"Session {name} reset: {turns} {'turn' if turns == 1 else 'turns'} forgotten.")


def _count(word: str) -> int:
    if not word.isdigit() or not int(word):
        raise UsageProblem(f"history: {word!r} is not a number of requests (1 or more)")
    return int(word)


def _short(text: str) -> str:
    return text if len(text) <= PROMPT_WIDTH else text[: PROMPT_WIDTH - 1] + "…"


def _running(call: Call | None = None) -> list[str]:
    from yaie_engine.errors import YaieError
    from yaie_magic.session import session

    if session.current not in session.engines:
        return []
    try:
        return session.get().llm.running()
    except YaieError:  # a server that does not answer now: nothing to offer
        return []


def _sessions() -> list[str]:
    from yaie_magic.session import session

    return [name for engine in session.engines.values() for name in engine.chats]


SUBCOMMANDS = (
    Subcommand(
        "cancel",
        "cancel one request, or all that run",
        _cancel,
        lambda: (ENGINE,),
        (("request", "?", "a request id, or the name of a result [default: all]"),),
        _running,
    ),
    Subcommand(
        "history",
        "the requests that ended last",
        _history,
        lambda: (ENGINE,),
        (("count", "?", f"how many [default: {SHOWN}]"),),
    ),
    Subcommand(
        "reset",
        "forget a chat session",
        _reset,
        lambda: (ALL, ENGINE),
        (("name", "?", "the session [default: default]"),),
        _sessions,
    ),
)

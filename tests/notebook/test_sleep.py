"""`%yaie sleep` and `%yaie wake` in a plain shell, with the real engine."""

from __future__ import annotations

from typing import Any

import pytest

from yaie_magic.session import session

ASK = "%%generate -m 6 -t 0\nOnce upon a time"


def test_a_session_sleeps_and_goes_on(real: Any) -> None:
    text = real(ASK).result.text
    real("%%chat -m 6 -t 0\nHello")
    real("%%chat -m 6 -t 0\nAnd then?")
    chat = session.get().chats
    real("%yaie sleep")
    assert real.out == (
        "tiny sleeps (level 1): 6.0 MiB of KV cache released, weights stay (they are in host memory already). "
        "%yaie wake wakes it.\n"
    )
    assert session.get().chats is chat and len(session.get().llm.history()) == 3
    assert real("%yaie sleep").out == "tiny sleeps already, at level 1; %yaie wake wakes it.\n"
    assert "asleep" in real("%yaie status").out.splitlines()[0]
    assert "It sleeps and takes no requests; %yaie wake wakes it." in real.out
    assert "with these settings; it sleeps, and %yaie wake wakes it." in real("%yaie load tiny --num-blocks 64").out
    assert real("%yaie status --json").result["state"] == "asleep"
    for look in ("tree", "blocks", "timeline", "history", "config"):
        assert real(f"%yaie {look}").error is None, look
    real(ASK)
    assert "the engine is asleep: wake it first, by %yaie wake" in real.out + real.err
    assert real("%yaie wake").out == "tiny is awake again.\n"
    assert real("%yaie wake").out == "tiny is awake; nothing to do.\n"
    assert real(ASK).result.text == text and real.result.usage.cached == 0
    turn = real("%%chat -m 6 -t 0\nAnd then?").result
    assert turn.usage.prompt > 40 and turn.usage.cached == 0  # the conversation is there, its cache is not


def test_level_2_and_names(real: Any) -> None:
    text = real(ASK).result.text
    real("%yaie load tiny --num-blocks 32 --as small")
    real("%yaie sleep default --level 2")
    assert real.out == (
        "tiny sleeps (level 2): 6.0 MiB of KV cache released, 15.5 MiB of weights dropped. "
        "%yaie wake default wakes it.\n"
    )
    assert real(ASK).result.text == text  # the other one
    assert real("%yaie wake default").out == "tiny is awake again.\n"
    assert real(ASK.replace("-t 0", "-t 0 --engine default")).result.text == text
    real("%yaie sleep")
    real("%yaie unload")
    assert real.out.startswith("tiny unloaded") and session.current == "default"


def test_running_work_is_refused_and_forced(real: Any) -> None:
    real("%%generate -m 900 --ignore-eos -b -o long\nOnce upon a time")
    real("%yaie sleep")
    assert "1 request is running in engine 'default'; wait, or --force cancels them" in real.out + real.err
    assert session.get().llm.state == "ready"
    assert "; 1 running request cancelled. %yaie wake wakes it." in real("%yaie sleep --force").out
    assert real("long.wait()\nlong.finish_reason").result == "cancelled"
    real("%yaie restart")
    assert session.get().llm.state == "ready" and real(ASK).result.text


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("sleep --level 3", "--level '3' is not one of 1, 2"),
        ("sleep nobody", "no engine is called 'nobody'"),
        ("wake nobody", "no engine is called 'nobody'"),
        ("sleep --levl 1", "--level"),
    ],
)
def test_mistakes_are_told_before_anything_happens(run: Any, line: str, said: str) -> None:
    run(f"%yaie {line}")
    assert said in run.out + run.err

"""Hostile text of a model on a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

import pytest

from tests.widgets.payloads import PAYLOADS
from yaie_engine.errors import YaieError
from yaie_engine.outputs import CompletionOutput, RequestOutput
from yaie_magic.commands.generate import print_all, print_stream
from yaie_magic.detached.health import state_of
from yaie_magic.interrupt import Interrupted
from yaie_magic.remote import RemoteLLM
from yaie_magic.terminal import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 漢 🙂\n\ttext", "plain é 漢 🙂\n\ttext"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("over\rwritten\x08", "over\\x0dwritten\\x08"),
        ("\x9b2J", "\\x9b2J"),
        ("abc\u202edcba", "abc\\u202edcba"),
        ("\u2066x\u2069", "\\u2066x\\u2069"),
    ],
)
def test_controls_become_visible(text: str, shown: str) -> None:
    assert printable(text) == shown


class Told:
    """A request whose text comes character by character, so that no sequence is seen whole."""

    def __init__(self, text: str) -> None:
        choice = CompletionOutput(0, text, (1,), finish_reason="stop")
        self.output = RequestOutput("r", "", (1,), (choice,), True, 0)
        self.cancelled = False

    def __iter__(self) -> Iterator[str]:
        return iter(self.output.outputs[0].text)

    def result(self) -> RequestOutput:
        """The end."""
        return self.output

    def cancel(self) -> None:
        """Its reader left."""
        self.cancelled = True


@pytest.mark.parametrize("text", PAYLOADS, ids=range(len(PAYLOADS)))
def test_no_answer_steers_a_terminal(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    told = Told(text)
    assert print_stream(told) == print_all([told.result()]) == 0  # type: ignore[arg-type]
    out = capsys.readouterr().out
    assert out == f"{printable(text)}\n" * 2 and told.cancelled
    assert out.encode().decode() == out
    steering = [char for char in out if unicodedata.category(char) in ("Cc", "Cs") and char not in "\n\t"]
    assert not steering and not set(out) & set(
        "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"
    )


def test_a_stranger_on_the_port_of_an_engine_that_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"status": "\x1b[2J\u202eok\n", "stage": "\x07", "active_requests": True, "queue_length": 10**30}
    monkeypatch.setattr("yaie_magic.detached.health.health", lambda _: said)
    assert state_of(None) == "[2J ok"  # type: ignore[arg-type]
    said["status"] = "ok"
    assert state_of(None) == "ready"  # type: ignore[arg-type]
    said["status"] = "loading"
    assert state_of(None) == "loading: "  # type: ignore[arg-type]


def kinds(of: type[BaseException]) -> Iterator[type[BaseException]]:
    """A class and all that come of it."""
    yield of
    for kind in of.__subclasses__():
        yield from kinds(kind)


def test_a_cell_shows_no_error_that_steers_a_terminal() -> None:
    every = {*kinds(YaieError), Interrupted}
    assert len(every) > 15 and RemoteLLM.__module__, "those of the connection, too"
    for kind in every:
        error = kind.__new__(kind, "a\x1b]52;c;AAAA\x07\u202e\nb")
        error.args = ("a\x1b]52;c;AAAA\x07\u202e\nb",)
        (line,) = error._render_traceback_()  # type: ignore[attr-defined]
        assert line.removeprefix(f"{kind.__name__}: ") == "a\\x1b]52;c;AAAA\\x07\\u202e\nb", kind

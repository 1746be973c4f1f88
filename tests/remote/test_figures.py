"""Numbers of a server: whatever it says, a figure is a count, a time, or none. No engine, no connection."""

from __future__ import annotations

import math
from typing import Any

import pytest

from yaie_engine.errors import YaieError
from yaie_magic.remote import RemoteError, RemoteLLM
from yaie_magic.remote.figures import count, seconds
from yaie_magic.remote.sleep import sleep, wake_up

NONE: list[Any] = [None, True, False, -1, "1", [], {}, math.nan, math.inf, -math.inf, 2**70, 10**400]
FREED = {"kv_bytes": 1, "weight_bytes": 2, "weights": "kept", "why": "\x1b[2Jwhy\n\u202e"}
SLEPT = {"level": 1, "num_cancelled": 0, "already": False, "freed": FREED}


@pytest.mark.parametrize("value", NONE)
def test_what_is_no_figure(value: Any) -> None:
    assert count(value) is None and seconds(value) is None


def test_figures() -> None:
    assert [count(each) for each in (0, 7, 2**31 - 1, 2**31, 1.0)] == [0, 7, 2**31 - 1, None, None]
    assert count(9, most=8) is None and count(8, most=8) == 8
    assert [seconds(each) for each in (0, 1.5, 1e9)] == [0.0, 1.5, None]


class Told(RemoteLLM):
    """An engine of a server that answers this."""

    def __init__(self, answer: Any) -> None:
        self.kind = "yaie"
        self.client: Any = self
        self.answer = answer

    url = "http://there"

    def post_json(self, path: str, body: Any, *, timeout: float | None = None) -> Any:
        """The answer."""
        return self.answer

    def __del__(self) -> None:
        """Nothing was opened."""


@pytest.mark.parametrize("value", NONE)
@pytest.mark.parametrize("name", ["kv_bytes", "weight_bytes"])
def test_bytes_that_a_sleeping_engine_cannot_have_given_back(name: str, value: Any) -> None:
    if value == 2**70:
        value = 2**63
    with pytest.raises(RemoteError, match="does not tell what it gave back"):
        sleep(Told({**SLEPT, "freed": {**FREED, name: value}}))


@pytest.mark.parametrize("answer", [*NONE, {}, {"seconds": True}, {"seconds": math.nan}, {"seconds": "1"}])
def test_a_wake_that_took_no_time_that_there_is(answer: Any) -> None:
    with pytest.raises(YaieError):
        wake_up(Told(answer))
    with pytest.raises(YaieError):
        sleep(Told(answer))


def test_why_weights_were_kept_is_printed_as_one_plain_line() -> None:
    assert sleep(Told(SLEPT)).freed.why == "[2Jwhy"
    assert wake_up(Told({"seconds": 0.5})).seconds == 0.5

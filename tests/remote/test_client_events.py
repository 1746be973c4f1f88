"""Server-sent events, however the bytes are cut."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yaie_magic.remote import events
from yaie_magic.remote.events import EventReader
from yaie_magic.remote.faults import RemoteError

LINES = st.sampled_from(
    ["data: one", "data:two", "data: ñ€", "data", ": comment", "event: x", "", "", "id: 7", "data:  "]
)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


def plain(text: str) -> list[str]:
    """What the definition says, line by line."""
    found, data = [], []
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")[:-1]:
        name, _, value = line.partition(":")
        if not line and data:
            found.append("\n".join(data))
        if not line:
            data = []
        elif name == "data":
            data.append(value.removeprefix(" "))
    return found


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(LINES, ENDS), max_size=30), st.lists(st.integers(1, 7), min_size=1))
def test_any_cut_gives_the_same_events(lines: list[tuple[str, str]], cuts: list[int]) -> None:
    text = "".join(line + end for line, end in lines) + "x"
    raw, reader, found, at, number = text.encode(), EventReader(), [], 0, 0
    while at < len(raw):
        size = cuts[number % len(cuts)]
        found += reader.push(raw[at : at + size])
        at, number = at + size, number + 1
    assert found == plain(text)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_break_it(raw: bytes) -> None:
    assert all(isinstance(each, str) for each in EventReader().push(raw))


@pytest.mark.parametrize("piece", [b"x" * 1000, b"data: " + b"x" * 400 + b"\n"])
def test_an_event_has_a_longest_size(monkeypatch: pytest.MonkeyPatch, piece: bytes) -> None:
    """In one line without end as in many that are one event."""
    monkeypatch.setattr(events, "LONGEST_LINE", 5000)
    reader = EventReader()
    with pytest.raises(RemoteError, match="not read"):
        for _ in range(20):
            list(reader.push(piece))

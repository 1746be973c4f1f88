"""The stop matcher against brute force."""

from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from yaie_engine.stop import StopMatcher

PIECES = st.lists(st.text("ab.", max_size=4), max_size=12)
STOPS = st.lists(st.text("ab.", min_size=1, max_size=5), min_size=1, max_size=4)


def brute_force(text: str, stops: list[str]) -> tuple[int, str] | None:
    """(end, stop string) of the match that is complete first; of those, the longest."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            return end, max(found, key=len)
    return None


@settings(max_examples=400, deadline=None)
@given(PIECES, STOPS, st.booleans())
def test_equals_brute_force(pieces: list[str], stops: list[str], include: bool) -> None:
    matcher = StopMatcher(stops, {}, include)
    shown = "".join(matcher.feed(piece) for piece in pieces) + matcher.flush()
    text = "".join(pieces)
    want = brute_force(text, stops)
    if want is None:
        assert matcher.found is None
        assert shown == text
    else:
        end, stop = want
        assert matcher.found == stop
        assert shown == text[: end if include else end - len(stop)]


@settings(max_examples=200, deadline=None)
@given(PIECES, STOPS)
def test_only_a_possible_beginning_is_held_back(pieces: list[str], stops: list[str]) -> None:
    matcher, given_, shown = StopMatcher(stops, {}, False), "", ""
    for piece in pieces:
        given_ += piece
        shown += matcher.feed(piece)
        if matcher.found is not None:
            return
        beginnings = {stop[:n] for stop in stops for n in range(1, len(stop))}
        longest = max((len(b) for b in beginnings if given_.endswith(b)), default=0)
        assert shown == given_[: len(given_) - longest]


def test_inactive_matches_do_not_count_but_later_ones_may_begin_there() -> None:
    matcher = StopMatcher(["ab", "bcd"], {}, False)
    assert matcher.feed("ab", active=False) == "a"
    assert matcher.feed("c") == ""
    assert matcher.feed("d") == ""
    assert matcher.found == "bcd"


def test_hidden_tokens_match_whole_only() -> None:
    specials = {"<end>": 9}
    matcher = StopMatcher(["<end>"], specials, False)
    assert matcher.feed("a <en") == "a "
    assert matcher.feed_special(8) == ""
    assert matcher.feed("b") == "<enb"
    assert matcher.feed_special(9) == ""
    assert matcher.found == "<end>"
    matcher = StopMatcher(["nd>"], specials, False)
    assert matcher.feed_special(9) == ""
    assert matcher.found is None, "a part of a token that is not shown is no match"


def test_hidden_tokens_inside_a_longer_stop_string() -> None:
    matcher = StopMatcher(["x<end>y"], {"<end>": 9}, False)
    assert matcher.feed("ax") == "a"
    assert matcher.feed_special(9) == ""
    assert matcher.feed("z") == "xz", "not this time"
    assert matcher.feed("x") == ""
    matcher.feed_special(9)
    assert matcher.feed("y") == ""
    assert matcher.found == "x<end>y"


def seconds_for(text: str, stops: list[str]) -> float:
    """Processor time of this thread: other work on the machine does not count."""

    def once() -> float:
        matcher = StopMatcher(stops, {}, False)
        started = time.thread_time()
        for start in range(0, len(text), 3):
            matcher.feed(text[start : start + 3])
        return time.thread_time() - started

    return min(once() for _ in range(5))


def test_time_is_linear_in_the_text() -> None:
    """Long stop strings that almost match, over and over: the naive search is quadratic here."""
    stops = ["a" * 1000 + "b", "a" * 500 + "c", "ab" * 400 + "c"]
    short, long = "a" * 900 + "ab" * 300 + "x", 8
    assert seconds_for(short * 4 * long, stops) < 8 * seconds_for(short * long, stops) + 0.02


def test_time_does_not_grow_with_the_number_of_stop_strings() -> None:
    text = "the small river was cold " * 400
    many = [f"{'the small river'[: 3 + i % 12]}{i}" for i in range(64)]
    assert seconds_for(text, many) < 8 * seconds_for(text, ["the smalx"]) + 0.02

"""What a screen reader finds in each view: every control has a name; what is said by itself is little and polite."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.live import answers, generations
from tests.live.conftest import Recordings
from tests.live.page import Harness, push

pytestmark = pytest.mark.browser
STEPS = ("tree", "blocks", "timeline", "dashboard", "replay")
CONTROL = r"button|slider|textbox|searchbox|combobox|tab|listbox|grid|tree|treegrid|treeitem|option|gridcell|checkbox"
NAMELESS = re.compile(rf"^\s*- '?(?:{CONTROL})\b(?! \")[^\n]*$", re.MULTILINE)
# Everything that is focusable but has no role: nothing would say what it is.
MUTE = """() => [...document.querySelectorAll(".yaie [tabindex]:not([role], button, input, select, summary)")]
  .map(node => node.outerHTML.slice(0, 90))"""
LOUD = "document.querySelectorAll('.yaie [aria-live=assertive], .yaie [role=alert]').length"
# Counts what a screen reader would say by itself from now on.
LISTEN = """() => {
  window.said = [];
  const live = "[role=status], [role=log], [aria-live=polite], [aria-live=assertive]";
  new MutationObserver(changes => {
    for (const node of new Set(changes.map(one => (one.target.closest ? one.target : one.target.parentElement))))
      if (node?.closest(live)?.textContent) window.said.push(node.closest(live).textContent);
  }).observe(document.querySelector(".yaie"), { subtree: true, childList: true, characterData: true });
}"""


def content(name: str, recording: Recordings) -> dict[str, Any]:
    """A state with as much in it as the view can have."""
    if name in STEPS:
        return recording("busy")
    if name == "inspector":
        made = [answer.to_dict() for answer in answers.told().answers]
        return {"kind": "whole", "answers": made, "scales": answers.SCALES, "colour": "probability"}
    return generations.batch(8) if name == "batch" else generations.one()


@pytest.mark.parametrize("name", [*STEPS, "inspector", "generation", "batch"])
def test_every_control_has_a_name(harness: Harness, recording: Recordings, name: str) -> None:
    page = harness("generation" if name == "batch" else name, content(name, recording))
    found = page.locator(".yaie").aria_snapshot()
    assert re.search(rf"- (?:{CONTROL}) \"", found), found
    assert NAMELESS.findall(found) == []
    assert page.evaluate(MUTE) == [] and page.evaluate(LOUD) == 0


@pytest.mark.parametrize("name", STEPS)
def test_steps_that_come_say_nothing_by_themselves(harness: Harness, recording: Recordings, name: str) -> None:
    made = recording("busy")
    steps, made["steps"] = made["steps"], made["steps"][:30]
    page = harness(name, made)
    page.evaluate(LISTEN)
    for seq, at in enumerate(range(30, len(steps), 6), 2):
        push(page, {"kind": "steps", "seq": seq, "delta": {"steps": steps[at : at + 6]}})
    assert page.evaluate("window.said") == []
    push(page, {"kind": "steps", "seq": 99, "delta": {"engine": {"state": "failed"}}})


def test_streamed_text_is_not_said_but_its_end_is(harness: Harness) -> None:
    page = harness("generation", generations.one(text=""))
    page.evaluate(LISTEN)
    for seq in range(2, 22):
        push(page, {"kind": "rows", "seq": seq, "rows": [[0, {}, "some more words "]]})
    assert page.evaluate("window.said") == []
    ended = generations.ended("req-7", "A prompt", "x" * 33, "stop").to_dict()
    push(page, {"kind": "rows", "seq": 22, "rows": [[0, ended, ""]]})
    said = page.evaluate("window.said")
    assert len(said) == 1 and said[0].startswith("finished")

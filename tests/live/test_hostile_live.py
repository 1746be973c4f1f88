"""Text in live views is hostile: sixty payloads come out as text in each of them and run nothing."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import yaie_widgets
from tests.live.conftest import Recordings
from tests.live.hostile import generation_messages, inspector_messages, step_messages
from tests.live.page import Harness, push
from tests.widgets.payloads import PAYLOADS

JS = Path(yaie_widgets.__file__).parent / "live" / "js"
# What would turn text into elements, or into a program. The unpacking of bundles is Python's business, see test_bundle.
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|setHTML|createContextualFragment|DOMParser|srcdoc|document\.write"
    r"|\beval\b|\bFunction\s*\(|setAttribute\(\s*[\"'`]on|javascript:|\.on[a-z]+\s*=[^=]|import\s*\("
)
SHOWN = {"dashboard": 3}
# Everything in the view that text could have become, or that may name a program.
MADE = """() => {
  const unknown = ["script", "iframe", "img", "image", "object", "embed", "form", "a", "foreignobject", "use", "link",
    "meta", "base", "body", "audio", "video", "math"];
  const wrong = [];
  for (const node of document.querySelectorAll("#view *")) {
    const tag = node.tagName.toLowerCase();
    if (unknown.includes(tag)) wrong.push(tag);
    for (const { name, value } of node.attributes) {
      if (name.startsWith("on") || name === "srcdoc" || name === "href" || name === "src") wrong.push(tag + " " + name);
      if (name === "style" && /url\\((?!"#)|expression/i.test(value)) wrong.push(tag + " style " + value);
    }
  }
  return wrong;
}"""
# Everything a pointer or a key can bring up: cards, panels, rows that open.
STIR = """() => {
  const kinds = ["[role=treeitem]", "[role=gridcell]", "[role=option]", "[role=tab]", "[role=row]", "[tabindex]",
    "summary", "button", "canvas", "svg"];
  const things = [...document.querySelectorAll(kinds.map(kind => "#view " + kind).join())];
  const step = Math.max(1, Math.floor(things.length / 60));
  for (let at = 0; at < things.length; at += step) {
    const node = things[at];
    for (const name of ["pointerover", "pointerenter", "mouseover", "mouseenter", "pointermove", "mousemove"])
      node.dispatchEvent(new PointerEvent(name, { bubbles: true, clientX: 300, clientY: 200 }));
    node.focus?.({ preventScroll: true });
    if (node.matches("[role=treeitem], [role=gridcell], [role=option], [role=tab], summary")) node.click();
  }
  return things.length;
}"""


def view_classes() -> dict[str, type]:
    """Every widget that the package exports, by the name of its bundle."""
    live = importlib.import_module("yaie_widgets.live.view").LiveView
    found = [getattr(yaie_widgets, name) for name in yaie_widgets.__all__]
    return {each.NAME: each for each in found if inspect.isclass(each) and issubclass(each, live)}


def messages_of(name: str, recording: Recordings) -> Callable[[], Iterator[dict[str, Any]]]:
    """Hostile messages for a view. A new kind of view has to be named here."""
    followers = importlib.import_module("yaie_widgets.live.step_view").StepView
    if issubclass(view_classes()[name], followers):
        return step_messages(recording)
    return {"generation": generation_messages, "inspector": inspector_messages}[name]


def test_every_entry_of_a_bundle_belongs_to_a_class() -> None:
    entries = {path.stem.removeprefix("entry_") for path in JS.glob("entry_*.js")}
    assert entries == set(view_classes()) and len(entries) >= 7


@pytest.mark.browser
@pytest.mark.parametrize("name", sorted(view_classes()))
def test_payloads_run_nothing(harness: Harness, recording: Recordings, name: str) -> None:
    first, *others = messages_of(name, recording)()
    page = harness(name, first)
    seen = _seen(page)
    for seq, message in enumerate(others, 2):
        push(page, {**message, "seq": seq})
        if message["kind"] in ("whole", "recording"):
            assert page.evaluate(STIR) > 0
            page.wait_for_timeout(50)
            seen += _seen(page)
    assert page.evaluate(MADE) == []
    assert page.errors == []
    shown = [each for each in PAYLOADS if each.isascii() and each.isprintable() and each[:60] in seen]
    assert len(shown) >= SHOWN.get(name, 15), "hardly a payload was shown, so hardly anything was tested"


def _seen(page: Any) -> str:
    """All text of the view, titles and labels included."""
    text: str = page.evaluate("""() => {
      const nodes = [...document.querySelectorAll("#view *")];
      const said = nodes.flatMap(node => [node.title, node.getAttribute("aria-label"), node.value]);
      return document.querySelector("#view").textContent + said.filter(Boolean).join(" ");
    }""")
    return text


def test_no_module_makes_elements_or_programs_of_text() -> None:
    for path in sorted(JS.glob("*.js")):
        lines = path.read_text(encoding="utf-8").splitlines()
        found = [line.strip() for line in lines if FORBIDDEN.search(line) and not line.strip().startswith("//")]
        assert found == [], path.name


@pytest.mark.parametrize(
    "line",
    [
        "node.innerHTML = text;",
        'node.setAttribute("onclick", text)',
        "new Function (text)",
        "eval(text)",
        "node.onclick = text;",
        'link.href = "javascript:" + text',
        "document.write(text)",
        "await import(text)",
    ],
)
def test_the_search_finds_what_it_looks_for(line: str) -> None:
    assert FORBIDDEN.search(line)
    assert not FORBIDDEN.search('node.textContent = "on " + only; option.once == 1;')


def test_there_are_sixty_payloads() -> None:
    assert len(set(PAYLOADS)) == 60

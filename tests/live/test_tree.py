"""The radix tree in a page: rows, bars, search, keys, and what a step does to them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.live.conftest import Recordings
from tests.live.looks import check_looks, height
from tests.live.models import page_models
from tests.live.page import Harness, go, settle
from tests.widgets.payloads import PAYLOADS

ROW = ".y-tree-row"
FIGURES = """
() => [...document.querySelectorAll(".y-tree-row")].map(row => ({
  words: row.querySelector(".y-tree-words").textContent,
  figures: [...row.querySelectorAll(".y-tree-num")].map(each => each.textContent),
  level: Number(row.getAttribute("aria-level")),
  gone: row.classList.contains("gone"),
}))
"""


def words(page: Any) -> list[str]:
    """The texts of the rows."""
    return [row["words"] for row in page.evaluate(FIGURES)]


def focused(page: Any) -> str:
    """The text of the row with the focus."""
    return str(page.evaluate("document.activeElement.querySelector('.y-tree-words')?.textContent ?? ''"))


@pytest.mark.browser
def test_rows_show_the_figures_of_the_model(harness: Harness, recording: Recordings) -> None:
    run = recording("busy")
    page = harness("tree", run)
    steps = [step["step"] for step in run["steps"]]
    models = page_models(run, steps)
    evicted = 0
    for step in steps:
        go(page, step)
        rows = page.evaluate(FIGURES)
        nodes = models[step]["tree"]["nodes"].values()
        shown = sorted(tuple(row["figures"][:3]) for row in rows if row["figures"][2] and not row["gone"])
        assert shown == sorted((f"{n['tokens']:,}", f"{len(n['blocks']):,}", str(len(n["holders"]))) for n in nodes)
        gone = [row for row in rows if row["gone"]]
        assert len(gone) == len(models[step]["tree"]["gone"])
        assert all(row["figures"][0].startswith("\u2212") and row["figures"][3] in ("evicted", "freed") for row in gone)
        evicted += len(gone)
        totals = models[step]["tree"]["totals"]
        assert f"{totals['tokens']:,} tokens" in page.inner_text(".y-meta")
    assert evicted > 5 and page.errors == []


@pytest.mark.browser
def test_siblings_stay_where_they_are_while_steps_follow(harness: Harness, recording: Recordings) -> None:
    run = recording("busy")
    page = harness("tree", run)
    go(page, run["steps"][0]["step"])
    keys = "() => [...document.querySelectorAll('.y-tree-row')].map(row => row.dataset.key)"
    before: list[str] = page.evaluate(keys)
    followed = 0
    for step in run["steps"][1:60]:
        go(page, step["step"])
        after: list[str] = page.evaluate(keys)
        common = [key for key in before if key in after]
        if not step.get("split"):
            assert [key for key in after if key in common] == common
            followed += len(common) > 2
        before = after
    assert followed > 10


@pytest.mark.browser
def test_marks_of_a_step(harness: Harness, recording: Recordings) -> None:
    run = recording("busy")
    page = harness("tree", run)
    seen = "mark => [...document.querySelectorAll(mark)].filter(each => !each.hidden).length"
    grown = next(step for step in run["steps"] if len(step.get("extended", ())) > 1)
    go(page, grown["step"])
    assert page.evaluate(seen, ".y-tree-row .y-tree-tick") >= 2
    cut = next(step for step in run["steps"] if step.get("removed_nodes"))
    go(page, cut["step"])
    assert page.evaluate(seen, ".y-tree-row.gone .y-tree-lost") >= 1
    go(page, cut["step"] + 1)
    assert page.evaluate(seen, ".y-tree-row.gone") == len(run["steps"][cut["step"]].get("removed_nodes", ()))


@pytest.mark.browser
def test_the_path_of_a_request(harness: Harness, recording: Recordings) -> None:
    run = recording("busy")
    step = next(s["step"] for s in run["steps"] if len(s["batch"]) > 4)
    page = harness("tree", run)
    go(page, step)
    paths = page_models(run, [step])[step]["tree"]["paths"]
    label = max(paths, key=lambda name: len(paths[name]))
    page.select_option(".y-pick", label)
    settle(page)
    marked = "() => [...document.querySelectorAll('.y-tree-row.path')].map(row => Number(row.dataset.key.slice(1)))"
    assert sorted(page.evaluate(marked)) == sorted(paths[label]) and len(paths[label]) >= 2
    page.press(".y-pick", "Escape")
    settle(page)
    assert page.evaluate(marked) == [] and page.input_value(".y-pick") == ""


@pytest.mark.browser
def test_a_request_named_by_the_kernel_is_marked_at_first(harness: Harness, recording: Recordings) -> None:
    options = {"request": "req-1", "depth": 1}
    page = harness("tree", {"kind": "recording", "recording": recording("small"), "options": options})
    assert page.input_value(".y-pick") == "req-1"
    assert page.locator(f"{ROW}.path").count() >= 1
    assert "+" in page.inner_text(".y-tree-more >> nth=0") or page.locator(f"{ROW}.path").count() > 1


@pytest.mark.browser
def test_search_marks_hits_and_keeps_what_is_above(harness: Harness, recording: Recordings) -> None:
    page = harness("tree", recording("small"))
    every = words(page)
    page.fill(".y-tree-find", "WARRANTY")
    settle(page)
    assert page.locator(".y-tree-hit:visible").all_inner_texts() == ["warranty"]
    left = page.evaluate(FIGURES)
    assert [row["level"] for row in left] == list(range(1, len(left) + 1)) and len(left) < len(every)
    page.fill(".y-tree-find", "no such text")
    settle(page)
    assert words(page) == [] and page.inner_text(".y-tree-note") == "No node contains this text."
    page.keyboard.press("Escape")
    settle(page)
    assert words(page) == every


@pytest.mark.browser
def test_keys_of_a_tree(harness: Harness, recording: Recordings) -> None:
    page = harness("tree", recording("small"))
    every = words(page)
    page.focus(f"{ROW}[tabindex='0']")
    assert page.locator(f"{ROW}[tabindex='0']").count() == 1
    page.keyboard.press("End")
    assert focused(page) == every[-1]
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    settle(page)
    assert len(words(page)) < len(every) and focused(page) == every[0]
    assert page.get_attribute(f"{ROW}:focus", "aria-expanded") == "false"
    assert "more" in page.inner_text(f"{ROW}:focus .y-tree-more")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    settle(page)
    assert words(page) == every and focused(page) == every[1]
    page.keyboard.press("ArrowLeft")
    assert focused(page) == every[0]
    page.keyboard.press("Enter")
    settle(page)
    assert page.locator(f"{ROW}.picked").count() == 1
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.type") == "search"
    page.keyboard.press("ArrowDown")
    assert focused(page) == every[0]
    assert page.errors == []


@pytest.mark.browser
def test_focus_stays_in_the_tree_when_its_row_goes(harness: Harness, recording: Recordings) -> None:
    run = recording("busy")
    cut = next(step for step in run["steps"] if step.get("removed_nodes"))
    page = harness("tree", run)
    go(page, cut["step"])
    page.locator(f"{ROW}.gone").first.focus()
    go(page, cut["step"] + 1)
    assert page.evaluate("document.activeElement.className").startswith("y-tree-row")


@pytest.mark.browser
def test_a_large_tree_builds_what_stands_open(harness: Harness, recording: Recordings) -> None:
    run = recording("full")
    page = harness("tree", run)
    nodes = int(page.inner_text(".y-meta").split(" nodes")[0].replace(",", ""))
    rows = page.locator(ROW).count()
    assert rows <= 250 and rows < nodes
    closed = page.locator(f"{ROW}[aria-expanded='false']").first
    hidden = int(closed.locator(".y-tree-more").inner_text().strip("+ more").replace(",", ""))
    closed.locator(".y-tree-toggle").click()
    settle(page)
    assert rows < page.locator(ROW).count() <= rows + hidden
    check_looks(page)


@pytest.mark.browser
def test_an_empty_tree_says_so(harness: Harness, recording: Recordings) -> None:
    page = harness("tree", recording("empty"))
    assert page.inner_text(".y-tree-note") == "The cache holds no prefix yet. Run a %%generate cell."
    assert page.inner_text(".y-meta") == "0 nodes · 0 tokens"
    check_looks(page)


@pytest.mark.browser
def test_it_grows_live(harness: Harness, recording: Recordings) -> None:
    run = recording("small")
    steps = run["steps"]
    page = harness("tree", {**run, "steps": steps[:3]})
    few = page.inner_text(".y-meta")
    page.push({"kind": "steps", "seq": 2, "delta": {"steps": steps[3:], "requests": {}, "vocab": {}, "engine": {}}})
    settle(page)
    assert page.inner_text(".y-meta") != few
    assert page.text_content(".y-where").startswith(f"Step {steps[-1]['step']} of")


def hostile(run: dict[str, Any]) -> dict[str, Any]:
    """The same run with a payload in the place of every token, every prompt and every request id."""
    for place, token in enumerate(run["vocab"]):
        payload = PAYLOADS[place % len(PAYLOADS)]
        run["vocab"][token] = list(payload.encode("utf-8", "surrogatepass"))[:4000]
    for place, facts in enumerate(run["requests"].values()):
        facts["text"] = PAYLOADS[place % len(PAYLOADS)][:200].encode("utf-8", "replace").decode()
    return run


@pytest.mark.browser
@pytest.mark.parametrize("name", ["tree", "blocks"])
def test_hostile_texts_are_texts(harness: Harness, recording: Recordings, name: str) -> None:
    run = hostile(recording("busy"))
    assert len(run["vocab"]) >= len(PAYLOADS)
    page = harness(name, run)
    elements = (
        "document.querySelectorAll('.yaie script, .yaie img, .yaie iframe, .yaie a, .yaie style:not([class])').length"
    )
    before = page.evaluate(elements)
    tall = height(page)
    for step in run["steps"][::6]:
        go(page, step["step"])
        if name == "blocks":
            for block in range(0, 26, 3):
                page.locator(f"[data-id='{block}']").hover()
        else:
            page.fill(".y-tree-find", PAYLOADS[step["step"] % 40])
            settle(page)
            page.fill(".y-tree-find", "")
            for row in page.locator(ROW).all()[:12]:
                row.hover()
        assert page.evaluate(elements) == before and height(page) == tall
    assert page.errors == []

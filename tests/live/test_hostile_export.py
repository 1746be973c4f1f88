"""A notebook with the static forms of all views, full of hostile text, exported to HTML: nothing in it runs."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

import pytest

import yaie_widgets
from tests.live import answers, generations
from tests.live.conftest import Recordings
from tests.live.hostile import payload, recordings
from tests.widgets import timelines
from tests.widgets.payloads import PAYLOADS
from tests.widgets.snapshots import Entry, make_snapshot
from yaie_widgets import draw_block_table, draw_dashboard, draw_radix_tree, draw_timeline
from yaie_widgets.inspection import Answer, Reading, twin_bundle
from yaie_widgets.live.generation_twin import generation_html, stacked_html

pytestmark = pytest.mark.browser
Bundles = dict[str, list[dict[str, str]]]


def answer() -> Answer:
    made = answers.made(["x"] * 2 * len(PAYLOADS), prompt=20, name=payload(0), error=payload(3))
    # As raw as a fault in the reading of tokens could leave them.
    readings = {i: Reading((payload(i, 2000), payload(i + 1))) for i in made.readings}
    return Answer(**{**vars(made), "readings": readings, "reason": "error", "notes": tuple(PAYLOADS[:40])})


def generations_html() -> list[str]:
    rows, texts = [], []
    for place in range(len(PAYLOADS)):
        texts.append(payload(place, 20_000))
        rows.append(
            generations.ended(
                payload(place), "x" * 300 + payload(place), texts[-1], "error" if place % 7 == 0 else "stop"
            )
        )
    return [generation_html(rows[0], texts[0]), stacked_html(payload(1), rows, texts, payload(2))]


def bundles(recording: Recordings) -> Bundles:
    """The static forms by the name of the view."""
    entries = [Entry((f"{n}", text), f"r{n} {text[:80]}", f"salt {text[:80]}") for n, text in enumerate(PAYLOADS)]
    snapshot = make_snapshot(entries, total=400)
    names = payload(0), payload(5), payload(9)
    timeline = draw_timeline(
        timelines.snapshot(names[0], names[1], "d"), timelines.tape(*names), timelines.history(names[0], names[2])
    )
    dashboards = [draw_dashboard(each)._repr_mimebundle_() for each in recordings(recording("small"))]
    steps = [draw_radix_tree(snapshot, max_nodes=200)._repr_mimebundle_(), timeline._repr_mimebundle_()]
    return {
        "tree": steps[:1],
        "blocks": [draw_block_table(snapshot)._repr_mimebundle_()],
        "timeline": steps[1:],
        "replay": steps,
        "dashboard": dashboards,
        "inspector": [twin_bundle([answer()]), twin_bundle([answer()], "entropy")],
        "generation": [{"text/plain": "text", "text/html": html} for html in generations_html()],
    }


def exported(found: Bundles) -> str:
    """The notebook as HTML, without the scripts that exporters load from elsewhere."""
    import nbformat  # its modules take seconds to read, and every process of the share reads this file

    exporter: Callable[..., Any] = importlib.import_module("nbconvert").HTMLExporter
    outputs = [nbformat.v4.new_output("display_data", data=data) for each in found.values() for data in each]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("%yaie", outputs=outputs)])
    body: str = exporter(template_name="basic").from_notebook_node(book)[0]
    return body


def test_an_exported_notebook_runs_nothing(browser: Any, recording: Recordings) -> None:
    found = bundles(recording)
    live = importlib.import_module("yaie_widgets.live.view").LiveView
    classes = [getattr(yaie_widgets, name) for name in yaie_widgets.__all__]
    assert set(found) == {each.NAME for each in classes if inspect.isclass(each) and issubclass(each, live)}
    body = exported(found)
    page, events = browser.new_page(), []
    page.on("dialog", lambda dialog: (events.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on("pageerror", lambda error: events.append(f"error {error}"))
    page.on("request", lambda request: events.append(f"request {request.url}"))
    page.set_content(f"<!doctype html><meta charset='utf-8'><body>{body}")
    page.wait_for_timeout(300)
    assert events == []
    assert (
        page.locator("script, iframe, img, a, object, embed, foreignObject, image, use, link, base, form").count() == 0
    )
    named = "[...document.querySelectorAll('*')].flatMap(node => node.getAttributeNames())"
    assert [name for name in page.evaluate(named) if name.startswith("on")] == []
    assert page.locator(".y-ins, .y-gen, .yaie-drawing").count() >= 8
    assert page.evaluate("document.body.textContent").count("<script>alert(1)</script>") >= 20
    page.close()

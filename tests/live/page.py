"""A view in a bare browser page: its bundle on a model that only remembers. No notebook, so it is quick."""

from __future__ import annotations

import json
from typing import Any

from yaie_widgets.live.bundle import css, esm

KEY = "0123456789abcdef0123456789abcdef"
DARK = (
    ":root{--jp-layout-color0:#111;--jp-ui-font-color1:rgba(255,255,255,.87);--jp-border-color2:#424242;"
    "--jp-brand-color2:#64b5f6}"
)
# A model as a host gives it to a widget: state, events, and messages to a kernel.
MODEL = """
class Model {
  constructor(state) { this.state = state; this.heard = {}; }
  get(name) { return this.state[name]; }
  set(name, value) { this.state[name] = value; this.tell("change:" + name); }
  save_changes() {}
  on(names, listen) { for (const name of names.split(" ")) (this.heard[name] ??= []).push(listen); }
  off(name, listen) { this.heard[name] = (this.heard[name] ?? []).filter(each => each !== listen); }
  tell(name, ...what) { for (const listen of [...(this.heard[name] ?? [])]) listen(...what); }
  send(message) { window.sent.push(message); }
}
window.sent = [];
window.mount = async (script, state) => {
  const url = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
  const widget = (await import(url)).default;
  window.model = new Model(state);
  await widget.initialize?.({ model: window.model });
  window.unmount = await widget.render({ model: window.model, el: document.querySelector("#view") });
};
window.push = message => window.model.tell("msg:custom", message);
"""


class Pages:
    """Pages of one browser. A page that a test is over with serves the next one: to make one takes long."""

    def __init__(self, browser: Any) -> None:
        self.browser = browser
        self.free: dict[bool, list[Any]] = {False: [], True: []}

    def take(self, width: int, touch: bool) -> Any:
        """An empty page of this width, which tells in `errors` what goes wrong in it."""
        free = self.free[touch]
        page = free.pop() if free else self._new(touch)
        page.set_viewport_size({"width": width, "height": 1000})
        page.errors = []
        return page

    def give_back(self, page: Any) -> None:
        """Leave nothing of the test on the page: no script, and no pointer over it."""
        page.mouse.move(-10, -10)
        page.goto("about:blank")
        self.free[page.touch].append(page)

    def _new(self, touch: bool) -> Any:
        page = self.browser.new_page(has_touch=touch)
        page.touch = touch
        page.on("pageerror", lambda error: page.errors.append(str(error)))
        page.on("console", lambda line: page.errors.append(line.text) if line.type == "error" else None)
        page.on("dialog", lambda dialog: (page.errors.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: _note(page, request.url))
        return page


class Harness:
    """Opens pages with views, and closes them when the test ends."""

    def __init__(self, pages: Pages) -> None:
        self.pool = pages
        self.pages: list[Any] = []

    def __call__(
        self, name: str, content: dict[str, Any], theme: str = "light", width: int = 900, touch: bool = False
    ) -> Any:
        """The page of view `name`. `content` is a recording, or the whole state of another view with its `kind`.

        The page has `py_messages()` (what the view sent), `push(message)` and `errors`: scripts that failed, dialogs,
        requests to anywhere.
        """
        page = self.pool.take(width, touch)
        self.pages.append(page)
        light = "true" if theme == "light" else "false"
        page.set_content(
            f'<!doctype html><meta charset="utf-8"><style>body{{margin:0;background:var(--jp-layout-color0,#fff)}}'
            f"{DARK if theme == 'dark' else ''}</style><style>{css(name)}</style>"
            f'<body data-jp-theme-light="{light}"><div id="view"></div>'
        )
        page.add_script_tag(content=MODEL)
        whole = {"kind": "recording", "recording": content} if "format" in content else content
        state = {"key": KEY, "snapshot": {"seq": 1, **whole}}
        page.evaluate("([script, state]) => window.mount(script, JSON.parse(state))", [esm(name), json.dumps(state)])
        page.py_messages = lambda: page.evaluate("window.sent")
        page.push = lambda message: page.evaluate("text => window.push(JSON.parse(text))", json.dumps(message))
        settle(page)
        return page

    def close(self) -> None:
        """The test is over with its pages."""
        for page in self.pages:
            self.pool.give_back(page)
        self.pages.clear()


def _note(page: Any, url: str) -> None:
    if not url.startswith(("blob:", "about:", "data:")):
        page.errors.append(f"request {url}")


def settle(page: Any) -> None:
    """Wait until what changed is drawn."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def push(page: Any, message: dict[str, Any]) -> None:
    """A message from the kernel, and what the view makes of it."""
    page.push(message)
    settle(page)


def go(page: Any, step: int) -> None:
    """Put the cursor on a step."""
    page.evaluate(
        """step => { const slider = document.querySelector(".y-slider");
        slider.value = step; slider.dispatchEvent(new Event("input")); }""",
        step,
    )
    settle(page)

"""Colours by meaning, in a light and a dark set, and the style sheet that applies them to a drawing.

DOT text carries the light literals, so that a `.dot` file looks right in any Graphviz. In SVG each literal is the key
of a role: the element gets the role's class and the style sheet decides, by theme, what the role looks like. A viewer
that ignores style sheets still shows the light literals.
"""

from __future__ import annotations

from typing import Final

# Literals are distinct on purpose (hence #fefefe beside #ffffff): each stands for one role.
LIGHT: Final = {
    "bg": "#ffffff",
    "ink": "#212121",
    "ink2": "#5b5b5b",
    "edge": "#7e7e7e",
    "free": "#8a8a8a",
    "line": "#e0e0e0",
    "sunk": "#f5f5f5",
    "cached": "#0a96a3",
    "held": "#465166",
    "shared": "#3b1768",
    "prefill": "#b96d00",
    "decode": "#1a62dc",
    "lost": "#a8120c",
    "swapped": "#a2209a",
    "g1": "#525252",
    "g2": "#949494",
    "g3": "#757575",
    "on-cached": "#111111",
    "on-held": "#fefefe",
    "on-shared": "#fdfdfd",
}
DARK: Final = {
    "bg": "#111111",
    "ink": "#e0e0e0",
    "ink2": "#aaaaaa",
    "edge": "#898989",
    "free": "#7c7c7c",
    "line": "#424242",
    "sunk": "#1f1f1f",
    "cached": "#2c8783",
    "held": "#94a1b2",
    "shared": "#e8c8fa",
    "prefill": "#f2b54c",
    "decode": "#4a80f5",
    "lost": "#e2492a",
    "swapped": "#f78fee",
    "g1": "#b8b8b8",
    "g2": "#6e6e6e",
    "g3": "#929292",
    "on-cached": "#0b0b0b",
    "on-held": "#111111",
    "on-shared": "#111111",
}
# What live views need beyond the drawings: words in a data colour, words on one, tints, focus.
VIEW_LIGHT: Final = {
    "cached-ink": "#086c76",
    "shared-ink": "#3b1768",
    "prefill-ink": "#8a5100",
    "decode-ink": "#1757c4",
    "lost-ink": "#a8120c",
    "swapped-ink": "#95188d",
    "on-prefill": "#111111",
    "on-decode": "#ffffff",
    "on-lost": "#ffffff",
    "focus": "var(--jp-brand-color1,#1976d2)",
    "tint": "14%",
}
VIEW_DARK: Final = {
    "cached-ink": "#5cc2bc",
    "shared-ink": "#e8c8fa",
    "prefill-ink": "#f2b54c",
    "decode-ink": "#8db0ff",
    "lost-ink": "#ff8a6e",
    "swapped-ink": "#f78fee",
    "on-prefill": "#111111",
    "on-decode": "#0b0b0b",
    "on-lost": "#0b0b0b",
    "focus": "var(--jp-brand-color2,#64b5f6)",
    "tint": "24%",
}
ROLE_OF: Final = {literal: role for role, literal in LIGHT.items()}

_UI = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"
_MONO = "Menlo,Consolas,'DejaVu Sans Mono',monospace"
# In a notebook, surfaces and text follow the host's theme; `color-mix` keeps secondary ink at a readable distance.
_HOST = {
    "bg": "var(--jp-layout-color0,{bg})",
    "ink": "var(--jp-ui-font-color1,{ink})",
    "ink2": "color-mix(in srgb,var(--y-ink) 74%,var(--y-bg))",
    "edge": "color-mix(in srgb,var(--y-ink) 58%,var(--y-bg))",
    "free": "color-mix(in srgb,var(--y-ink) 52%,var(--y-bg))",
    "line": "var(--jp-border-color2,{line})",
    "sunk": "color-mix(in srgb,var(--y-ink) 6%,var(--y-bg))",
}
_DARK_HOSTS = (
    '[data-jp-theme-light="false"] .yaie-drawing',
    "body.vscode-dark .yaie-drawing",
    "body.vscode-high-contrast .yaie-drawing",
    "html[theme=dark] .yaie-drawing",
)
# A page that names no theme of its own (a plain HTML export) follows the reader's system.
_SYSTEM_DARK = ":root:not([theme]):not(:has([data-jp-theme-light],body[class*=vscode-])) .yaie-drawing"
_FRAME = (
    ".yaie-drawing{background:var(--y-bg);color:var(--y-ink)}"
    "div.yaie-drawing{border:1px solid var(--y-line);border-radius:3px;overflow:auto}"
    "div.yaie-drawing{width:fit-content;max-width:100%;box-sizing:border-box}"
    ".yaie-drawing>.picture{display:block!important}.yaie-drawing>.plain{display:none!important}"
    ".yaie-drawing>.picture>svg{display:block;height:auto;margin:0}"
    ".yaie-drawing text{font-variant-numeric:tabular-nums}"
    ".yaie-drawing .path{stroke-linecap:round}"
    "div.explanation{padding:10px 12px;font-size:13px;line-height:18px}"
    "div.explanation .quote{font-size:12px;white-space:pre-wrap;overflow-wrap:anywhere}"
)


def _variables(colours: dict[str, str], host: bool) -> str:
    values = {role: _HOST[role].format(**colours) if host and role in _HOST else colours[role] for role in colours}
    return "".join(f"--y-{role}:{value};" for role, value in values.items())


def _rules() -> str:
    fills = "".join(f".yaie-drawing .f-{role}{{fill:var(--y-{role})}}" for role in LIGHT)
    return fills + "".join(f".yaie-drawing .s-{role}{{stroke:var(--y-{role})}}" for role in LIGHT)


def _fonts(ui: str, mono: str) -> str:
    plain = f".yaie-drawing,.yaie-drawing text{{font-family:{ui}}}"
    return f"{plain}.yaie-drawing text.mono,.yaie-drawing .quote{{font-family:{mono}}}"


def file_style() -> str:
    """The style sheet inside a stand-alone SVG: the reader's system decides between light and dark."""
    dark = f"@media (prefers-color-scheme:dark){{.yaie-drawing{{{_variables(DARK, host=False)}}}}}"
    return f".yaie-drawing{{{_variables(LIGHT, host=False)}}}{dark}{_fonts(_UI, _MONO)}{_FRAME}{_rules()}"


def notebook_style() -> str:
    """The style sheet of a drawing in a notebook or its HTML export: the host's theme decides."""
    dark = _variables(DARK, host=True)
    fonts = _fonts(f"var(--jp-ui-font-family,{_UI})", f"var(--jp-code-font-family,{_MONO})")
    return (
        f".yaie-drawing{{{_variables(LIGHT, host=True)}}}"
        f"{','.join(_DARK_HOSTS)}{{{dark}}}"
        f"@media (prefers-color-scheme:dark){{{_SYSTEM_DARK}{{{dark}}}}}"
        f"{fonts}{_FRAME}{_rules()}"
    )


def view_style() -> str:
    """The colours of live views and their static twins, as variables on the root class `yaie`."""
    light, dark = (_variables(colours, host=True) for colours in (LIGHT, DARK))
    light += "".join(f"--y-{role}:{value};" for role, value in VIEW_LIGHT.items())
    dark += "".join(f"--y-{role}:{value};" for role, value in VIEW_DARK.items())
    light += f"--y-ui:var(--jp-ui-font-family,{_UI});--y-mono:var(--jp-code-font-family,{_MONO});"
    hosts = [each.replace("yaie-drawing", "yaie") for each in (*_DARK_HOSTS, _SYSTEM_DARK)]
    return (
        f".yaie{{{light}}}{','.join([*hosts[:-1], '.yaie[data-theme=dark]'])}{{{dark}}}"
        f"@media (prefers-color-scheme:dark){{{hosts[-1]}:not([data-theme]){{{dark}}}}}"
    )

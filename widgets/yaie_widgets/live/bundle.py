"""The script and style of each live view, put together from the modules in `js` and `css`. No tool but Python.

Each module becomes a function that gives back what it exports, so that only exported names must differ.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from yaie_widgets.palette import view_style

HERE = Path(__file__).parent
MAX_BYTES = 50_000
_IMPORT = re.compile(r'^import\s*\{[^}]*\}\s*from\s*"\./(\w+)\.js";\n?', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class) (\w+))", re.MULTILINE)
_COMMENT = re.compile(r"^\s*//.*\n?", re.MULTILINE)
_CSS_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


class BundleError(ValueError):
    """A module breaks the rules under which modules can be put together."""


@cache
def modules(name: str) -> tuple[str, ...]:
    """The modules of a view in the order in which they are needed, its entry last."""
    order: list[str] = []
    _visit(f"entry_{name}", order, ())
    return tuple(order)


def _visit(module: str, order: list[str], path: tuple[str, ...]) -> None:
    if module in path:
        raise BundleError(f"{' > '.join([*path, module])}: modules import each other")
    if module in order:
        return
    for needed in _IMPORT.findall(read(module)):
        _visit(needed, order, (*path, module))
    order.append(module)


def read(module: str) -> str:
    """The source of a module."""
    return (HERE / "js" / f"{module}.js").read_text(encoding="utf-8")


@cache
def esm(name: str) -> str:
    """One ES module with everything that the view needs.

    Raises:
        BundleError: modules import each other, or something is left that only separate modules understand.
    """
    *needed, entry = modules(name)
    text = "".join(_scoped(module) for module in needed) + _plain(entry)
    if re.search(r"^import\b", text, re.MULTILINE):
        raise BundleError(f'{name}: an import is not of the form: import {{ a, b }} from "./module.js";')
    return text


def exports(module: str) -> list[str]:
    """The names that a module exports."""
    return _EXPORT.findall(read(module))


def _scoped(module: str) -> str:
    names = ",".join(exports(module))
    return f"const{{{names}}}=(()=>{{\n{_plain(module)}return{{{names}}};}})();\n"


def _plain(module: str) -> str:
    text = _COMMENT.sub("", _EXPORT.sub("", _IMPORT.sub("", read(module))))
    return "".join(f"{line.strip()}\n" for line in text.splitlines() if line.strip())


@cache
def css(name: str) -> str:
    """The style of a view: colours, what all views share, and the sheet of each of its modules that has one."""
    sheets = ["base", *(module for module in modules(name) if (HERE / "css" / f"{module}.css").is_file())]
    rules = "".join((HERE / "css" / f"{sheet}.css").read_text(encoding="utf-8") for sheet in dict.fromkeys(sheets))
    return view_style() + "".join(line.strip() for line in _CSS_COMMENT.sub("", rules).splitlines())

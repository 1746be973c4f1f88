"""The script and style of each live view, put together from the modules in `js` and `css`. No tool but Python.

Each module becomes a function that gives back what it exports, so that names need not differ between modules. The
script that a widget carries is packed, since every widget carries it.
"""

from __future__ import annotations

import base64
import gzip
import re
from functools import cache
from pathlib import Path

from yaie_widgets.palette import view_style

HERE = Path(__file__).parent
MAX_BYTES = 49_000
_IMPORT = re.compile(r'^import\s*(\{[^}]*\})\s*from\s*"\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class) (\w+))", re.MULTILINE)
_COMMENT = re.compile(r"^\s*//.*\n?", re.MULTILINE)
_STRING = re.compile(r'("(?:[^"\\]|\\.)*")')
# Where a line may hold a template, a regular expression or another kind of string, its spaces stay.
_DELICATE = re.compile(r"['`]|/(?! )|(?<! )/")
_SPACED = re.compile(r" ?(=>|[=!]==|[<>+-]=|\?\?|&&|\|\||[=?:,;{}<>*]) ?")
# Five characters stand for four bytes, as in Python's `base64.b85encode`; the text has a whole number of fives.
_UNPACK = (
    'const digits="0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";\n'
    "const bytes=new DataView(new ArrayBuffer(packed.length/5*4));\n"
    "for(let i=0;i<packed.length;i+=5){\n"
    "let value=0;\n"
    "for(let k=i;k<i+5;k++)value=value*85+digits.indexOf(packed[k]);\n"
    "bytes.setUint32(i/5*4,value);\n"
    "}\n"
    "const input=new Blob([bytes.buffer.slice(0,size)]);\n"
    'const plain=input.stream().pipeThrough(new DecompressionStream("gzip"));\n'
    "const text=await new Response(plain).text();\n"
    'const url=URL.createObjectURL(new Blob([text],{type:"text/javascript"}));\n'
    "export default (await import(url)).default;\n"
)
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
    for _, needed in _IMPORT.findall(read(module)):
        _visit(needed, order, (*path, module))
    order.append(module)


def read(module: str) -> str:
    """The source of a module."""
    return (HERE / "js" / f"{module}.js").read_text(encoding="utf-8")


@cache
def esm(name: str) -> str:
    """The script of a widget: the bundle, packed."""
    content = gzip.compress(bundle(name).encode(), mtime=0)
    packed = base64.b85encode(content, pad=True).decode()
    return f'const size={len(content)},packed="{packed}";\n{_UNPACK}'


@cache
def bundle(name: str) -> str:
    """One ES module with everything that the view needs.

    Raises:
        BundleError: modules import each other, or something is left that only separate modules understand.
    """
    *needed, entry = modules(name)
    text = "".join(_scoped(module) for module in needed) + _plain(entry)
    if re.search(r"^import\b", text, re.MULTILINE):
        raise BundleError(f'{name}: an import is not of the form: import {{ a, b }} from "./module.js";')
    return text


def _scoped(module: str) -> str:
    names = ",".join(_EXPORT.findall(read(module)))
    return f"const ${module}=(()=>{{\n{_plain(module)}return{{{names}}};}})();\n"


def _plain(module: str) -> str:
    text = _COMMENT.sub("", _EXPORT.sub("", _IMPORT.sub(_taken, read(module))))
    lines = [_tight(line.strip()) for line in text.splitlines() if line.strip()]
    if any(line.count("`") % 2 for line in lines):
        raise BundleError(f"{module}: a template goes over several lines")
    return "".join(f"{line}\n" for line in lines)


def _tight(line: str) -> str:
    """The line without the spaces that only people need."""
    pieces = _STRING.split(line)
    if any(_DELICATE.search(piece) for piece in pieces[::2]):
        return line
    return "".join(piece if at % 2 else _SPACED.sub(r"\1", piece) for at, piece in enumerate(pieces))


def _taken(found: re.Match[str]) -> str:
    return f"const {' '.join(found[1].split()).replace(' as ', ':')}=${found[2]};"


@cache
def css(name: str) -> str:
    """The style of a view: colours, what all views share, and the sheet of each of its modules that has one."""
    sheets = ["base", *(module for module in modules(name) if (HERE / "css" / f"{module}.css").is_file())]
    return view_style() + _rules(*dict.fromkeys(sheets))


@cache
def twin_css(*sheets: str) -> str:
    """The style of a static twin, which every saved output carries: these sheets, and of the colours what they use."""
    rules = _rules(*sheets)
    used = {"bg", "ink", *re.findall(r"var\(--y-([\w-]+)\)", rules)}  # the others are mixed from these two
    colours = re.sub(r"--y-([\w-]+):[^;]*;", lambda found: found[0] if found[1] in used else "", view_style())
    return colours + rules


def _rules(*sheets: str) -> str:
    text = "".join((HERE / "css" / f"{sheet}.css").read_text(encoding="utf-8") for sheet in sheets)
    return "".join(line.strip() for line in _CSS_COMMENT.sub("", text).splitlines())

"""The scripts and styles that widgets carry: small, of one piece, and free of what could run a model's text."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from yaie_widgets.live import bundle
from yaie_widgets.live.bundle import HERE, MAX_BYTES, BundleError, css, esm, modules

NAMES = sorted(path.stem.removeprefix("entry_") for path in (HERE / "js").glob("entry_*.js"))
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setAttribute\(\s*[\"']on|srcdoc|"
    r"fetch\(|XMLHttpRequest|WebSocket|sendBeacon|import\(|DOMParser|createContextualFragment"
)


@pytest.mark.parametrize("name", NAMES)
def test_a_bundle_is_small_and_loads(name: str, tmp_path: Path) -> None:
    assert len(esm(name).encode()) < MAX_BYTES
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node on PATH (Debian: apt-get install nodejs)")
    path = tmp_path / "bundle.mjs"
    path.write_text(bundle.bundle(name), encoding="utf-8")
    check = f"const m = await import({path.as_uri()!r}); if (typeof m.default.render !== 'function') process.exit(3)"
    subprocess.run([node, "--input-type=module", "-e", check], check=True, timeout=60)


def test_the_seven_views_have_bundles() -> None:
    assert set(NAMES) == {"blocks", "dashboard", "generation", "inspector", "replay", "timeline", "tree"}


@pytest.mark.parametrize("path", sorted((HERE / "js").glob("*.js")), ids=lambda path: path.stem)
def test_a_module_makes_no_markup_from_text(path: Path) -> None:
    found = FORBIDDEN.search(path.read_text(encoding="utf-8"))
    assert found is None, f"{path.name}: {found[0]}"


def test_every_module_and_sheet_is_part_of_some_view() -> None:
    used = {module for name in NAMES for module in modules(name)}
    assert {path.stem for path in (HERE / "js").glob("*.js")} == used
    assert {path.stem for path in (HERE / "css").glob("*.css")} <= used | {"base"}


def test_sheets_name_colours_by_their_meaning_only() -> None:
    defined = set(re.findall(r"(--y-[\w-]+):", css("replay")))
    for path in (HERE / "css").glob("*.css"):
        text = path.read_text(encoding="utf-8")
        set_here = set(re.findall(r"(--y-[\w-]+):", text))
        unknown = set(re.findall(r"var\((--y-[\w-]+)\)", text)) - defined - set_here
        assert not unknown, f"{path.name}: {unknown}"
        assert not re.search(r"#[0-9a-fA-F]{3,8}\b(?![\w-])(?=[^{}]*[;}])", text), path.name


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes modules and gives back the bundle of `entry_x`."""
    (tmp_path / "js").mkdir()
    monkeypatch.setattr(bundle, "HERE", tmp_path)

    def make(**files: str) -> str:
        for name, text in files.items():
            (tmp_path / "js" / f"{name}.js").write_text(text)
        modules.cache_clear()
        bundle.bundle.cache_clear()
        return bundle.bundle("x")

    yield make
    modules.cache_clear()
    bundle.bundle.cache_clear()


def run(text: str) -> str:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node on PATH (Debian: apt-get install nodejs)")
    return subprocess.run(
        [node, "--input-type=module", "-e", text], check=True, capture_output=True, text=True, timeout=60
    ).stdout.strip()


def test_modules_keep_their_private_and_their_equal_names(folder: Any) -> None:
    text = folder(
        a='const hidden = "a";\nexport function name() {\n  // told\n  return hidden;\n}\n',
        b='import { name as other } from "./a.js";\nconst hidden = "b";\nexport const name = () => hidden + other();\n',
        entry_x='import { name } from "./a.js";\nimport {\n  name as both,\n} from "./b.js";\n'
        "console.log(name(), both());\nexport default {};\n",
    )
    assert run(text) == "a ba" and "told" not in text


def test_modules_that_import_each_other_are_refused(folder: Any) -> None:
    with pytest.raises(BundleError, match="entry_x > a > b > a: modules import each other"):
        folder(
            a='import { b } from "./b.js";\n',
            b='import { a } from "./a.js";\n',
            entry_x='import { a } from "./a.js";\n',
        )


def test_imports_of_another_form_are_refused(folder: Any) -> None:
    with pytest.raises(BundleError, match="an import is not of the form"):
        folder(entry_x='import * as d3 from "d3";\n')

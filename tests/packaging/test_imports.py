"""What an import costs, and that no folder of the checkout hides another package."""

from __future__ import annotations

import importlib.util
import json
import sys

import pytest

from .conftest import PACKAGES, ROOT, run

HEAVY = (
    "torch",
    "transformers",
    "tokenizers",
    "pydantic",
    "numpy",
    "IPython",
    "ipywidgets",
    "cuda",
    "graphviz",
    "rich",
    "fastapi",
    "starlette",
    "uvicorn",
    "prometheus_client",
)
LIST_MODULES = """
import json, sys, time
start = time.perf_counter()
import {name}
seconds = time.perf_counter() - start
print(json.dumps([seconds, sorted(sys.modules)]))
"""
FILES_OF_MODULES = """
import importlib, json, pkgutil, sys
names = sys.argv[1:]
for name in names:
    package = importlib.import_module(name)
    for found in pkgutil.walk_packages(package.__path__, name + "."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
print(json.dumps({name: module.__file__ for name, module in sys.modules.items()
                  if getattr(module, "__file__", None) and name != "__main__"}))
"""


def test_there_is_no_cuda_init() -> None:
    assert not (ROOT / "cuda" / "__init__.py").exists(), "it would hide NVIDIA's `cuda` namespace"


@pytest.mark.skipif(importlib.util.find_spec("cuda.bindings") is None, reason="the CUDA packages are not installed")
def test_cuda_core_is_importable_from_the_repository_root() -> None:
    code = "import cuda.core, cuda.bindings, yaie_cuda; print(cuda.core.__file__)"
    assert "site-packages" in run(sys.executable, "-c", code, cwd=ROOT).stdout


@pytest.mark.parametrize("package", ["yaie_magic", "yaie_engine"])
def test_import_loads_nothing_heavy(package: str) -> None:
    done = run(sys.executable, "-c", LIST_MODULES.format(name=package), cwd=ROOT)
    seconds, modules = json.loads(done.stdout)
    print(f"\nimport {package}: {seconds * 1000:.1f} ms, {len(modules)} modules in all")
    loaded = {name for name in modules if name.split(".")[0] in HEAVY}
    assert not loaded


def test_no_module_file_is_loaded_under_two_names() -> None:
    done = run(sys.executable, "-W", "ignore", "-c", FILES_OF_MODULES, *PACKAGES, cwd=ROOT)
    names_of: dict[str, list[str]] = {}
    for name, file in json.loads(done.stdout.splitlines()[-1]).items():
        if any(file.startswith(f"{folder}/") for folder in PACKAGES.values()):
            names_of.setdefault(file, []).append(name)
    assert names_of, "none of our modules was loaded from this checkout"
    assert {file: names for file, names in names_of.items() if len(names) > 1} == {}


@pytest.mark.parametrize("stray", ["engine", "widgets", "tests", "scripts", "cuda.yaie_cuda"])
def test_folders_of_the_checkout_are_no_packages_elsewhere(
    stray: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    done = run(sys.executable, "-c", f"import {stray}", cwd=tmp_path_factory.mktemp("elsewhere"), check=False)
    assert "ModuleNotFoundError" in done.stderr

"""The wheel alone, in a folder that is not the checkout: the notebook extension, the command line, the API."""

from __future__ import annotations

import json

import pytest

from .conftest import ROOT, Runner

LOAD_EXTENSION = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "yaie_magic")
shell.run_line_magic("load_ext", "yaie_magic")
magics = shell.magics_manager.magics
ours = {"yaie", "generate", "chat", "batch"}
print(sorted({name for kind in magics.values() for name in kind if name in ours}))
"""


def test_nothing_of_the_checkout_is_on_the_path(in_wheel_only: Runner) -> None:
    code = "import yaie_magic, yaie_engine, yaie_cuda, yaie_widgets as w; print(yaie_magic.__file__, w.__file__)"
    assert str(ROOT) not in in_wheel_only("python", "-c", code).stdout


def test_load_ext(in_wheel_only: Runner) -> None:
    done = in_wheel_only("python", "-c", LOAD_EXTENSION)
    assert done.stdout.splitlines()[-1] == "['batch', 'chat', 'generate', 'yaie']"
    assert done.stderr == ""


def test_version(in_wheel_only: Runner) -> None:
    assert in_wheel_only("yaie", "--version").stdout == "yaie 0.1.0\n"


@pytest.mark.slow
def test_generate(in_wheel_only: Runner) -> None:
    done = in_wheel_only("yaie", "generate", "Once upon a time", "--max-tokens", "8", "--temperature", "0")
    assert done.stdout.strip()


@pytest.mark.slow
def test_models(in_wheel_only: Runner) -> None:
    models = json.loads(in_wheel_only("yaie", "models", "--json").stdout)
    assert "tiny" in {model["name"] for model in models}


@pytest.mark.slow
def test_doctor(in_wheel_only: Runner) -> None:
    report = json.loads(in_wheel_only("yaie", "doctor", "--json").stdout)
    assert report["usable"] is True


@pytest.mark.slow
def test_one_line_of_python(in_wheel_only: Runner) -> None:
    code = "from yaie_engine import LLM; print(LLM('tiny').generate('Hello', use_tqdm=False)[0].outputs[0].text)"
    assert in_wheel_only("python", "-c", code).stdout.strip()

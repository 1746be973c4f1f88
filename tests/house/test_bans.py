"""The lint refuses what would turn data into code: each ban is tried with a line that breaks it."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RUFF = Path(sysconfig.get_path("scripts")) / "ruff"
BANNED = {
    "import pickle\npickle.loads(b'')": "TID251",
    "from pickle import loads\nloads(b'')": "TID251",
    "import marshal\nmarshal.loads(b'')": "TID251",
    "import shelve\nshelve.open('x')": "TID251",
    "import dill\ndill.loads(b'')": "TID251",
    "import cloudpickle\ncloudpickle.loads(b'')": "TID251",
    "import joblib\njoblib.load('x')": "TID251",
    "import torch\ntorch.load('x')": "TID251",
    "import torch\ntorch.load('x', weights_only=True)": "TID251",
    "from torch import load\nload('x')": "TID251",
    "from torch.serialization import load\nload('x')": "TID251",
    "import numpy as np\nnp.load('x')": "TID251",
    "import jinja2\njinja2.Template('x')": "TID251",
    "import jinja2\njinja2.Environment()": "TID251",
    "eval(input())": "S307",
    "exec(input())": "S102",
    "import subprocess\nsubprocess.run('ls', shell=True)": "S602",
    "import os\nos.system('ls')": "S605",
    "import yaml\nyaml.load('x')": "S506",
    "import tempfile\ntempfile.mktemp()": "S306",
    "import xml.etree.ElementTree as ET\nET.fromstring('x')": "S314",
    "import httpx\nhttpx.get('https://x', verify=False)": "S501",
    "assert input()": "S101",
}
FOLDERS = ("engine/yaie_engine", "cuda/yaie_cuda", "widgets/yaie_widgets", "yaie_magic")


def found(folder: str, code: str) -> str:
    """What ruff says of this code in a file of the folder, by the settings of the project."""
    path = str(ROOT / folder / "new_module.py")
    command = [str(RUFF), "check", "--no-cache", "--output-format", "concise", "--stdin-filename", path, "-"]
    return subprocess.run(
        command, input=f"{code}\n", cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    ).stdout


@pytest.mark.parametrize("code", BANNED)
def test_a_ban_bites(code: str) -> None:
    assert BANNED[code] in found(FOLDERS[0], code)


@pytest.mark.parametrize("folder", FOLDERS)
def test_it_bites_in_every_package(folder: str) -> None:
    assert "TID251" in found(folder, "import pickle\npickle.loads(b'')")


def test_harmless_lines_pass() -> None:
    assert "All checks passed" in found(FOLDERS[0], 'import json\n\njson.loads("1")')


def test_the_layers_name_the_modules_that_read_code() -> None:
    """What import-linter forbids the engine, so that a line without ruff's eye is caught as well."""
    import tomllib

    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    forbidden = next(each["forbidden_modules"] for each in contracts if each["id"] == "no-code-as-data")
    assert {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"} <= set(forbidden)


def test_the_sandbox_of_templates_is_one_without_the_known_ways_out() -> None:
    """CVE-2024-56326 and CVE-2025-27516 were mended in 3.1.5 and 3.1.6: no older one may be installed with us."""
    import tomllib
    from importlib.metadata import version

    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert "jinja2>=3.1.6,<4" in needed
    assert tuple(map(int, version("jinja2").split(".")[:3])) >= (3, 1, 6)

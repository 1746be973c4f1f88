"""`yaie models`: what can be loaded here without a download."""

from __future__ import annotations

import json
from collections.abc import Sequence

from yaie_magic.cli import DONE
from yaie_magic.commands import form
from yaie_magic.parser import OptionParser
from yaie_magic.terminal import printable

ABOUT = "List the models on this machine. A local folder, a Hub id or a .gguf file can be loaded as well."
EXAMPLES = (
    ("what is here", "yaie models"),
    ("the same for a program: name, source, architecture, size_bytes, path", "yaie models --json"),
    ("what another cache holds", "HF_HOME=/srv/models yaie models"),
)


def parser() -> OptionParser:
    """Its one option."""
    return form.form("models", ABOUT, (form.JSON,), examples=EXAMPLES, variables=(form.CACHES,))


def run(arguments: Sequence[str]) -> int:
    """Print the models."""
    given = parser().parse(arguments)

    from yaie_magic.catalog import models_here

    entries = models_here()
    if given.get("json"):
        print(json.dumps([entry.to_dict() for entry in entries], indent=2))
    else:
        for entry in entries:
            print(printable(entry.to_text()))
    return DONE

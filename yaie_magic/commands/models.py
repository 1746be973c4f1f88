"""`yaie models`: what can be loaded here without a download."""

from __future__ import annotations

import json
from collections.abc import Sequence

from yaie_magic.cli import DONE
from yaie_magic.options import option
from yaie_magic.parser import OptionParser
from yaie_magic.terminal import printable

OPTIONS = (option("json", "a JSON list instead of a table", kind="flag"),)


def run(arguments: Sequence[str]) -> int:
    """Print the models."""
    from yaie_magic.catalog import models_here

    text = "List the models on this machine. A local folder, a Hub id or a .gguf file can be loaded as well."
    given = OptionParser("yaie models", OPTIONS, text).parse(arguments)
    entries = models_here()
    if given.get("json"):
        print(json.dumps([entry.to_dict() for entry in entries], indent=2))
    else:
        for entry in entries:
            print(printable(entry.to_text()))
    return DONE

"""The views need neither torch nor the engine's machinery."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
import yaie_widgets
assert "graphviz" not in sys.modules
for name, home in yaie_widgets._HOME.items():
    assert home.startswith("live.") or getattr(yaie_widgets, name)
plain = "snapshot snapshot_check plain_data record tape sequence".split()
plain += "errors printable outputs increment common_start".split()
allowed = {"yaie_engine", *(f"yaie_engine.{name}" for name in plain)}
loaded = {name for name in sys.modules if name.startswith("yaie_engine")}
assert loaded <= allowed, loaded
assert not {"torch", "transformers", "pydantic", "IPython"} & set(sys.modules)
assert set(yaie_widgets.__all__) <= set(dir(yaie_widgets))
try:
    yaie_widgets.nothing
except AttributeError as error:
    assert "nothing" in str(error)
"""


def test_drawings_load_plain_data_only() -> None:
    subprocess.run([sys.executable, "-c", CODE], check=True)

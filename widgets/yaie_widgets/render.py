"""Finding a Graphviz program and running it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from yaie_engine.errors import YaieError

HINT = "no Graphviz program was found: `pip install graphviz-pure` draws, or name a `dot` program in YAIE_DOT"
TIMEOUT_S = 20.0
_FORMATS = {"svg": ("-Tsvg",), "png": ("-Tpng", "-Gdpi=144")}


class RenderError(YaieError):
    """A drawing could not be rendered; its `.text` and `.dot` are still there."""


def find_renderer() -> str | None:
    """The program that draws: $YAIE_DOT, the pinned graphviz-pure (same bytes everywhere), or the system's dot."""
    named = os.environ.get("YAIE_DOT")
    if named:
        return shutil.which(named)
    # Kernels often run without their environment's scripts folder on PATH, so the installed place comes first.
    suffix = ".exe" if sys.platform == "win32" else ""
    installed = Path(sysconfig.get_path("scripts")) / f"graphviz-pure{suffix}"
    if os.access(installed, os.X_OK):
        return str(installed)
    return shutil.which("graphviz-pure") or shutil.which("dot")


def render(dot: str, kind: str, timeout: float = TIMEOUT_S) -> bytes:
    """`dot` as "svg" or "png". Raises RenderError with one line that says why not."""
    program = find_renderer()
    if program is None:
        raise RenderError(_missing())
    try:
        # stderr is captured and dropped on success: it holds one notice for each character without font metrics.
        done = subprocess.run(
            [program, "-Kdot", *_FORMATS[kind]], input=dot.encode(), capture_output=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        raise RenderError(
            f"{Path(program).name} took longer than {timeout:g} s: draw less with depth or max_nodes"
        ) from None
    except OSError as error:
        raise RenderError(f"{Path(program).name} did not start: {error.strerror or error}") from None
    if done.returncode != 0 or not done.stdout:
        raise RenderError(f"{Path(program).name} failed (exit {done.returncode}): {_complaint(done.stderr)}")
    return done.stdout


def _missing() -> str:
    named = os.environ.get("YAIE_DOT")
    return f"YAIE_DOT names {named!r}, which is no program" if named else HINT


def _complaint(stderr: bytes) -> str:
    lines = [line.strip() for line in stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    return next((line for line in lines if line.startswith("Error")), lines[-1] if lines else "no message")

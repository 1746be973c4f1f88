"""A JupyterLab of its own: fresh settings in a temporary folder, on loopback, without pop-ups."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

QUIET = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "notebook-extension/tracker": {"windowingMode": "none"},
}


@dataclass(frozen=True, slots=True)
class Lab:
    """A running server."""

    url: str
    token: str

    def notebook(self, name: str) -> str:
        """Address of a notebook alone on the page, with a fresh layout."""
        return f"{self.url}/doc/tree/{name}?token={self.token}&reset"

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """The JSON answer of the server's REST interface."""
        headers = {"Authorization": f"token {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/api/{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def start_kernel(self, notebook: str) -> None:
        """Start the kernel that the notebook's page will find."""
        kernel = {"name": "python3"}
        self.ask("POST", "sessions", {"path": notebook, "name": notebook, "type": "notebook", "kernel": kernel})

    def restart_kernels(self) -> None:
        """Give every running kernel a new process."""
        for kernel in self.ask("GET", "kernels"):
            self.ask("POST", f"kernels/{kernel['id']}/restart", {})

    def kernel_states(self) -> list[str]:
        """What each kernel does, as the server saw it last: "idle", "busy", "starting" or "dead"."""
        return [kernel["execution_state"] for kernel in self.ask("GET", "kernels")]


def free_port() -> int:
    """A port of the loopback interface that nothing uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def write_settings(folder: Path, theme: str) -> None:
    """User settings: the theme, no news, every cell on the page."""
    for name, values in {**QUIET, "apputils-extension/themes": {"theme": theme}}.items():
        path = folder / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))


@contextmanager
def running_lab(root: Path, scratch: Path, *, theme: str, environment: Mapping[str, str]) -> Iterator[Lab]:
    """Start JupyterLab on `root`, wait until it answers, stop it at the end."""
    port, token = free_port(), secrets.token_hex(16)
    names = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTERLAB_WORKSPACES_DIR", "IPYTHONDIR")
    folders = {name: str(scratch / name.lower()) for name in names}
    settings = scratch / "settings"
    write_settings(settings, theme)
    log = (scratch / "lab.log").open("w")
    server = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "jupyterlab",
            "--allow-root",
            "--no-browser",
            "--ip=127.0.0.1",
            f"--port={port}",
            "--ServerApp.port_retries=0",
            f"--IdentityProvider.token={token}",
            f"--ServerApp.root_dir={root}",
        ],
        env={**os.environ, **folders, "JUPYTERLAB_SETTINGS_DIR": str(settings), **environment},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        lab = Lab(f"http://127.0.0.1:{port}", token)
        wait_until_up(lab, server)
        yield lab
    finally:
        stop(server)
        log.close()


def stop(server: subprocess.Popen[bytes], seconds: float = 60) -> None:
    """Ask the server to end, which ends its kernels first; end it by force when that takes too long."""
    server.terminate()
    try:
        server.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait(timeout=seconds)


def wait_until_up(lab: Lab, server: subprocess.Popen[bytes], seconds: float = 60) -> None:
    """Return when the server answers; raise when it ended or took too long."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"JupyterLab ended with code {server.returncode}")
        try:
            with urllib.request.urlopen(f"{lab.url}/api/status?token={lab.token}", timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"JupyterLab did not answer within {seconds:.0f} s")

"""A Hugging Face Hub of one model on loopback: enough of its protocol for the real client."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """Serves `folder` as `repo_id`; `fail_next` answers that many requests with 503; `served` lists the paths asked."""

    daemon_threads = True

    def __init__(self, folder: Path, repo_id: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder, self.repo_id = folder, repo_id
        self.fail_next = 0
        self.served: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, body: bool) -> None:
        hub, path = self.server, self.path.partition("?")[0]
        hub.served.append(path)
        if hub.fail_next:
            hub.fail_next -= 1
            self.reply(503, b"busy", {}, body)
        elif path.startswith(f"/api/models/{hub.repo_id}"):
            self.reply(200, json.dumps(self.model_info()).encode(), {"Content-Type": "application/json"}, body)
        elif path.startswith((f"/{hub.repo_id}/resolve/{COMMIT}/", f"/{hub.repo_id}/resolve/main/")):
            file = hub.folder / path.rpartition("/")[2]
            if not file.is_file():
                return self.reply(404, b"", {"X-Error-Code": "EntryNotFound"}, body)
            data = file.read_bytes()
            etag = hashlib.sha256(data).hexdigest()
            self.reply(200, data, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT}, body)
        else:
            self.reply(404, b"{}", {"X-Error-Code": "RepoNotFound"}, body)

    def model_info(self) -> dict[str, Any]:
        files = sorted(path for path in self.server.folder.iterdir() if path.is_file())
        siblings = [{"rfilename": path.name, "size": path.stat().st_size, "blobId": "0"} for path in files]
        name = self.server.repo_id
        return {
            "_id": "0",
            "id": name,
            "modelId": name,
            "sha": COMMIT,
            "siblings": siblings,
            "tags": [],
            "private": False,
        }

    def reply(self, status: int, data: bytes, headers: dict[str, str], body: bool) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def serving(folder: Path, repo_id: str) -> Iterator[Hub]:
    """A running hub."""
    hub = Hub(folder, repo_id)
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()

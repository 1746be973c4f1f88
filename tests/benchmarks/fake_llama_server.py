"""A program that talks as llama.cpp's server does, as far as the comparison needs it. It has no model: it counts."""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Handler(BaseHTTPRequestHandler):
    """GET /health and POST /completion, streamed."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        wanted = ("return_tokens", "ignore_eos", "stream", "cache_prompt")
        good = self.path == "/completion" and all(body[name] is True for name in wanted) and body["temperature"] == 0
        self.send_response(200 if good else 400)
        self.end_headers()
        for i in range(body["n_predict"] if good else 0):
            if i == 1:
                continue  # half a character: the server is silent until its text is whole
            event = {"content": "x", "tokens": [len(body["prompt"]) if i == 0 else i], "stop": False}
            event["tokens_predicted"] = i + 1
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        if good:
            self.wfile.write(b'data: {"content": "", "tokens": [], "stop": true}\n\n')

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def main(words: list[str]) -> int:
    if "--help" in words:
        print("--kv-unified share the cache\n--flash-attn [on|off|auto] use it")
        return 0
    if "--version" in words:
        print("version: 99 (abc)\nbuilt with cc", file=sys.stderr)
        return 0
    model = Path(words[words.index("--model") + 1])
    print("system_info: n_threads = 1 | CPU : AVX2 = 1 | AVX512 = 0 |", file=sys.stderr)
    if not model.is_file() or model.read_bytes()[:4] not in (b"", b"GGUF"):
        print("cannot read the model", file=sys.stderr)
        return 3
    print(" ".join(words), flush=True)
    ThreadingHTTPServer(("127.0.0.1", int(words[words.index("--port") + 1])), Handler).serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

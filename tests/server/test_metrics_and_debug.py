"""What a running server tells about itself: figures for Prometheus, drawings, the access log."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.engine.fakes import eventually
from tests.server.conftest import Serve
from tests.server.fakes import RawStream, counted, endless, get, idle, in_state, send
from yaie_engine import LLM
from yaie_magic.server.background import BackgroundServer
from yaie_magic.server.metrics import FRESH_S

NAMES = {
    "yaie:time_to_first_token_seconds": "histogram",
    "yaie:inter_token_latency_seconds": "histogram",
    "yaie:e2e_request_latency_seconds": "histogram",
    "yaie:num_requests_running": "gauge",
    "yaie:num_requests_waiting": "gauge",
    "yaie:kv_cache_usage_perc": "gauge",
    "yaie:prefix_cache_queries": "counter",
    "yaie:prefix_cache_hits": "counter",
    "yaie:num_preemptions": "counter",
    "yaie:prompt_tokens": "counter",
    "yaie:generation_tokens": "counter",
    "yaie:invariant_breaches": "counter",
    "yaie:requests": "counter",
    "yaie:batch_fill_ratio": "gauge",
    "yaie:process_memory_bytes": "gauge",
    "yaie:process_memory_peak_bytes": "gauge",
}


def figures(server: BackgroundServer) -> dict[str, float]:
    """Every sample by its name, labels of outcomes included."""
    families = text_string_to_metric_families(get(server, "/metrics").text)
    return {
        sample.name + "".join(sample.labels.get(label, "") for label in ("outcome",)): sample.value
        for family in families
        for sample in family.samples
        if "le" not in sample.labels
    }


def test_every_name_is_there_with_its_kind(http: httpx.Client, server: BackgroundServer) -> None:
    answer = http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    found = {family.name: family.type for family in text_string_to_metric_families(answer.text)}
    assert found.items() >= NAMES.items()
    assert all(name in NAMES or name.endswith("_created") for name in found)


def test_figures_follow_what_happens(serve: Serve) -> None:
    server = serve({"max_num_seqs": 2})
    body = {"prompt": "abcdefgh" * 4, "max_tokens": 6, "ignore_eos": True}
    for _ in range(2):
        assert send(server, "/v1/completions", body).status_code == 200
    stream = send(server, "/generate", {**body, "stream": True})
    assert stream.text.endswith("data: [DONE]\n\n")
    send(server, "/generate", {"prompt": ""})
    counted(server, ok=3, rejected=1)
    time.sleep(FRESH_S)
    found = figures(server)
    assert found["yaie:prompt_tokens_total"] == found["yaie:prefix_cache_queries_total"] == 96
    assert found["yaie:prefix_cache_hits_total"] == 62 and found["yaie:generation_tokens_total"] == 18
    assert found["yaie:time_to_first_token_seconds_count"] == 3
    assert found["yaie:e2e_request_latency_seconds_count"] == 3
    assert found["yaie:inter_token_latency_seconds_count"] == 15
    assert found["yaie:num_requests_running"] == found["yaie:kv_cache_usage_perc"] == 0
    assert found["yaie:process_memory_peak_bytes"] >= found["yaie:process_memory_bytes"] > 10**6
    endless(server.llm, pause=0.01)
    streams = [RawStream(server, "/generate", {**body, "max_tokens": 200, "stream": True}) for _ in range(3)]
    in_state(server.llm, "waiting")
    in_state(server.llm, "decode")
    time.sleep(FRESH_S)
    found = figures(server)
    assert found["yaie:num_requests_running"] == 2 and found["yaie:num_requests_waiting"] == 1
    assert 0 < found["yaie:kv_cache_usage_perc"] <= 1 and 0 < found["yaie:batch_fill_ratio"] <= 1
    for opened in streams:
        opened.reset()
    idle(server)


def test_debug_routes(http: httpx.Client, server: BackgroundServer, tiny: LLM) -> None:
    http.post("/generate", json={"prompt": "Once upon a time there was a cat", "max_tokens": 2})
    snapshot = http.get("/debug/snapshot").json()
    assert snapshot["version"] == 1 and snapshot["state"] == "ready"
    assert set(snapshot) == set(tiny.snapshot().to_dict())
    for path in ("/debug/tree.svg", "/debug/blocks.svg"):
        answer = http.get(path)
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("image/svg+xml")
        assert "<svg" in answer.text and "sandbox" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"


def access(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines of the access log."""
    return [record.getMessage() for record in caplog.records if record.name == "yaie.access"]


@pytest.mark.parametrize("form", ["plain", "json"])
def test_access_log_has_one_line_each_and_no_text(serve: Serve, caplog: pytest.LogCaptureFixture, form: str) -> None:
    server = serve(access_log=form, api_key="a-key-of-the-test")
    key = {"x-api-key": "a-key-of-the-test"}
    with caplog.at_level(logging.INFO, "yaie"), caplog.at_level(logging.INFO, "yaie.access"):
        get(server, "/debug/recording", headers=key)  # what live views ask for again and again is no news
        answers = [
            send(server, "/generate?prompt=XYZZY", {"prompt": "XYZZY", "max_tokens": 1}, headers=key),
            send(server, "/generate", {"prompt": "XYZZY", "max_tokens": 0}, headers=key),
            send(server, "/v1/completions", {"prompt": "XYZZY", "max_tokens": 1}),
            get(server, "/no%1b[31mthing", headers=key),
        ]
        eventually(lambda: len(access(caplog)) == 4, 5)
    lines = access(caplog)
    for line, answer, status in zip(lines, answers, (200, 422, 401, 404), strict=True):
        assert answer.status_code == status and "\x1b" not in line
        assert (answer.headers["x-request-id"] in line and str(status) in line and " ms" in line) or form == "json"
        if form == "json":
            found = json.loads(line)
            assert found["status"] == status and found["duration_ms"] >= 0
            assert found["request_id"] == answer.headers["x-request-id"]
            assert found["method"] in ("GET", "POST") and found["path"].startswith("/")
    assert "XYZZY" not in caplog.text and "a-key-of-the-test" not in caplog.text


def test_a_rejected_request_does_not_reach_the_engine(post: Callable[..., httpx.Response], tiny: LLM) -> None:
    before = sum(tiny.snapshot().counters.requests.values())
    post("/generate", prompt="x", temperature=-1)
    assert sum(tiny.snapshot().counters.requests.values()) == before

"""`%yaie metrics` of an engine here, of one on our server, and of servers that are not ours."""

from __future__ import annotations

import json

import pytest

from tests.notebook.shell_run import Run, ok
from tests.remote.conftest import KEY
from tests.remote.scripted import ScriptedServer
from yaie_magic.server.background import BackgroundServer


def test_here_they_cover_the_requests_of_the_history(run: Run) -> None:
    ok(run, "%yaie load tiny --num-blocks 64")
    ok(run, "%%generate -m 3 -t 0 --ignore-eos -q\nOnce upon a time")
    assert run("%yaie metrics").error is None
    lines = {line.split()[0]: line for line in run.out.splitlines()}
    assert lines["yaie:generation_tokens_total"].split()[1] == "3"
    assert "1 observed" in lines["yaie:time_to_first_token_seconds"]
    assert "2 observed" in lines["yaie:inter_token_latency_seconds"]
    assert "yaie:requests_total{outcome=ok}" not in lines, "nobody serves it"
    ok(run, "found = %yaie metrics --json")
    found = run.shell.user_ns["found"]
    assert found["yaie:num_requests_running"] == 0 and found["yaie:e2e_request_latency_seconds"]["count"] == 1
    json.dumps(found)
    assert "# TYPE yaie:num_requests_running gauge" in ok(run, "%yaie metrics --raw").out


def test_of_our_server(run: Run, own_server: BackgroundServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YAIE_API_KEY", KEY)
    ok(run, f"%yaie connect {own_server.url}")
    ok(run, "%%generate -m 2 -t 0 -q\nOnce upon a time")
    out = ok(run, "%yaie metrics").out
    (line,) = (line for line in out.splitlines() if "yaie:requests_total{outcome=ok}" in line)
    assert int(line.split()[1].replace(",", "")) >= 1 and KEY not in out


def test_a_server_without_them_says_so(run: Run, scripted: ScriptedServer) -> None:
    ok(run, f"%yaie connect {scripted.url}")
    assert "has no metrics" in str(run("%yaie metrics").error)

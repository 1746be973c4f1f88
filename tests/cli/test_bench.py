"""`yaie bench` on the bundled model, and `yaie bench serve` against our own server and against written-down ones."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.cli.sse_server import DONE, OK, Script, SseServer, Step, event, usage
from tests.engine.models import save_model
from tests.server.fakes import endless
from yaie_engine import LLM
from yaie_magic import cli
from yaie_magic.bench.load import Load, schedule
from yaie_magic.server import ServerConfig
from yaie_magic.server.background import BackgroundServer

Scripted = Callable[..., SseServer]


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No variables of the person who runs the tests; one thread, since the model is small."""
    for name in ("YAIE_API_KEY", "YAIE_NUM_BLOCKS", "YAIE_MODEL"):
        monkeypatch.delenv(name, raising=False)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    made: list[SseServer] = []

    def start(script: Script, **given: Any) -> SseServer:
        made.append(SseServer(script, **given))
        return made[-1]

    yield start
    for server in made:
        server.stop()


def figures(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    """What `yaie bench WORDS --json` prints."""
    assert cli.main(["bench", *words, "--json"]) == code, capsys.readouterr().err
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


# ---- this engine


def test_workloads_on_this_engine(capsys: pytest.CaptureFixture[str]) -> None:
    found = figures(capsys, "w5", "W1", "--small", "--repetitions", "2", "--num-blocks", "256")
    assert [row["name"] for row in found["workloads"]] == ["W1", "W5"] and found["small"]
    one, edits = found["workloads"]
    assert (one["requests"], one["output_tokens"], edits["requests"]) == (1, 6, 5)
    assert all(len(row["repetitions"]) == 2 for row in found["workloads"])
    assert all(value > 0 for row in found["workloads"] for each in row["repetitions"] for value in each.values())
    assert found["model"]["name"] == "tiny" and found["model"]["dtype"] == "float32"


def test_a_table_for_people_and_the_config_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "engine.yaml").write_text("max_model_len: 100\nnum_blocks: 64\n")
    assert cli.main(["bench", "w4", "--small", "--repetitions", "1", "--config", str(tmp_path / "engine.yaml")]) == 0
    shown = capsys.readouterr().out
    assert "W4: the same long prompt twice (2 requests, 6 tokens)" in shown and "TTFT, warm" in shown
    assert cli.main(["bench", "w4", "--config", str(tmp_path / "engine.yaml")]) == 2
    assert "W4 needs 1064 tokens in one request, this engine takes 100" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["W9"], "unknown workload 'W9'"),
        (["sreve", "x"], "did you mean 'serve'?"),
        (["--repetitions", "0"], "--repetitions 0: a number from 1 to 1000"),
        (["--request-rate", "3"], "--request-rate is for yaie bench serve URL"),
        (["--block-size", "0"], "block_size=0"),
        (["serve"], "one address is needed"),
        (["serve", "a", "b"], "one address is needed"),
        (["serve", "x", "--num-blocks", "9"], "--num-blocks is for measuring the engine here"),
        (["serve", "x", "--small"], "--small is for measuring the engine here"),
        (["serve", "x", "--request-rate", "0"], "--request-rate 0.0: more than 0, or inf"),
        (["serve", "x", "--request-rate", "nan"], "more than 0, or inf"),
        (["serve", "x", "--num-prompts", "0"], "--num-prompts 0: from 1 to 100000"),
        (["serve", "x", "--range-ratio", "1.5"], "--range-ratio 1.5: from 0 to 1"),
        (["serve", "x", "--goodput", "ttft"], "--goodput ttft: NAME:MS is needed"),
        (["serve", "x", "--goodput", "itl:3"], "names are ttft, tpot, e2el"),
        (["serve", "x", "--details"], "--details is for --json"),
        (["serve", "x", "--key-env", "NOT_SET_ANYWHERE"], "this variable is not set"),
        (["serve", "http://u:p@x"], "a key does not belong into the address"),
    ],
)
def test_a_wrong_line_is_refused_before_anything_happens(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["bench", *words]) == 2
    shown = capsys.readouterr()
    assert reason in shown.err and shown.err.count("\n") == 1 and not shown.out


# ---- arrivals


def test_arrivals_are_a_poisson_process_and_the_same_for_a_seed() -> None:
    due = schedule(Load("m", count=4000, rate=50.0, seed=3))
    assert due == schedule(Load("m", count=4000, rate=50.0, seed=3)) != schedule(Load("m", count=4000, rate=50.0))
    gaps = np.diff([0.0, *(each.at for each in due)])
    assert (gaps >= 0).all() and gaps.mean() == pytest.approx(1 / 50, rel=0.1)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.1)  # as in an exponential distribution
    assert {each.at for each in schedule(Load("m", count=9, rate=math.inf))} == {0.0}


def test_lengths_vary_around_what_was_asked_for() -> None:
    due = schedule(Load("m", count=300, input_len=20, output_len=10, range_ratio=0.5))
    words, tokens = [len(each.prompt.split()) for each in due], [each.tokens for each in due]
    assert (min(words), max(words), min(tokens), max(tokens)) == (10, 30, 5, 15)
    fixed = schedule(Load("m", count=3, input_len=20, output_len=10))
    assert [(len(each.prompt.split()), each.tokens) for each in fixed] == [(20, 10)] * 3
    assert len({each.prompt for each in fixed}) == 3


# ---- our own server


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundServer]:
    """A server with a key, over a model that takes five milliseconds a token."""
    llm = LLM(str(save_model(tmp_path_factory.mktemp("model"))), block_size=4, num_blocks=256, dtype="float32")
    endless(llm, pause=0.005)
    server = BackgroundServer(llm, ServerConfig(port=0, access_log="off", api_key="sesame-sesame-42"))
    yield server
    server.stop()
    llm.close()


def test_a_load_on_our_server(
    slow: BackgroundServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sesame-sesame-42")
    given = ["--num-prompts", "12", "--request-rate", "60", "--input-len", "3", "--output-len", "8", "--ignore-eos"]
    goals = ["--goodput", "ttft:60000", "tpot:60000"]
    found = figures(capsys, "serve", slow.url, *given, *goals, "--details", "--key-env", "MY_KEY")
    assert (found["completed"], found["failed"], found["errors"]) == (12, 0, {})
    assert found["total_output_tokens"] == 96 and found["tokens_counted_by"] == "server"
    assert found["total_input_tokens"] == sum(found["input_lens"]) > 12 * 3
    assert found["request_goodput"] == found["request_throughput"] == pytest.approx(12 / found["duration"])
    assert found["output_throughput"] == pytest.approx(96 / found["duration"])
    ttfts, itls = np.array(found["ttfts"]) * 1e3, np.concatenate(found["itls"]) * 1e3
    e2els = ttfts + np.array([sum(gaps) for gaps in found["itls"]]) * 1e3
    for name, values in (("ttft", ttfts), ("itl", itls), ("e2el", e2els), ("tpot", (e2els - ttfts) / 7)):
        expected = [np.mean(values), np.median(values), np.std(values), *np.percentile(values, [50, 90, 99])]
        heads = ("mean", "median", "std", "p50", "p90", "p99")
        assert [found[f"{head}_{name}_ms"] for head in heads] == pytest.approx(expected), name
    assert ttfts.min() >= 5 and found["mean_tpot_ms"] >= 4  # the model's pace
    assert "sesame" not in json.dumps(found)
    assert cli.main(["bench", "serve", slow.url, *given[:2], "--input-len", "2", "--chat", "--key-env", "MY_KEY"]) == 0
    shown = capsys.readouterr().out
    assert "12 requests answered" in shown and "TTFT" in shown and "goodput" not in shown


def test_without_the_key_it_is_asked_for(slow: BackgroundServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "serve", slow.url]) == 1
    assert "wants a key; set YAIE_API_KEY" in capsys.readouterr().err


# ---- servers that are written down


def answer(number: int, body: dict[str, Any]) -> list[Step]:
    """Three pieces with pauses; six tokens by the server's count."""
    pieces: list[Step] = [OK, 0.03, event(text="a"), 0.02, event(text="b"), 0.02, event(text="c")]
    return [*pieces, event(text="", finish_reason="length"), usage(5, 6), DONE]


def test_times_are_those_of_the_pieces(scripted: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    server = scripted(answer)
    found = figures(capsys, "serve", server.url, "--num-prompts", "3", "--num-warmups", "2", "--details")
    assert len(server.bodies) == 5 and found["completed"] == 3  # warm-ups do not count
    assert server.bodies[0]["model"] == "scripted" and server.bodies[0]["stream_options"] == {"include_usage": True}
    assert "ignore_eos" not in server.bodies[0] and not any("authorization" in head.lower() for head in server.heads)
    assert (found["total_input_tokens"], found["total_output_tokens"]) == (15, 18)
    assert min(found["ttfts"]) >= 0.029 and all(len(gaps) == 2 and min(gaps) >= 0.01 for gaps in found["itls"])
    for gaps, lengths in zip(found["itls"], found["output_lens"], strict=True):
        assert sum(gaps) >= 0.03 and lengths == 6
    assert found["mean_tpot_ms"] == pytest.approx(np.mean([sum(gaps) for gaps in found["itls"]]) * 1e3 / 5)


@pytest.mark.parametrize("bound", [[], ["--max-concurrency", "1"]])
def test_a_request_that_has_to_wait_is_late_from_when_it_was_due(
    bound: list[str], scripted: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    server = scripted(answer, one_at_a_time=not bound)
    found = figures(capsys, "serve", server.url, "--num-prompts", "4", "--num-warmups", "0", "--details", *bound)
    ttfts = sorted(found["ttfts"])
    assert all(ttft >= 0.029 + 0.069 * i for i, ttft in enumerate(ttfts))  # the wait counts, wherever it was
    assert found["max_concurrent_requests"] == (1 if bound else 4)
    assert not bound or found["p99_send_delay_ms"] >= 0.069 * 1e3 * 2.9


def test_errors_are_told_by_kind_and_do_not_stop_the_load(
    scripted: Scripted, capsys: pytest.CaptureFixture[str]
) -> None:
    busy = b'{"error": {"message": "full", "code": "busy"}}'
    scripts: list[list[Step]] = [
        answer(0, {}),
        [b"HTTP/1.1 429 Too Many\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(busy) + busy],
        [OK, event(text="a")],
        [OK, event(text="a"), b'data: {"error": {"code": "boom"}}\n\n'],
        [OK, b"data: {nonsense\n\n", DONE],
        [OK, DONE],
        [b""],
        [OK, event(text="a"), 60.0],
    ]
    server = scripted(lambda number, body: scripts[number])
    given = ["--num-prompts", str(len(scripts)), "--num-warmups", "0", "--request-deadline", "3"]
    found = figures(capsys, "serve", server.url, *given, "--goodput", "e2el:60000")
    assert (found["completed"], found["failed"]) == (1, 7)
    assert found["errors"] == {
        "HTTP 429 busy": 1,
        "stream ended early": 1,
        "error in the stream: boom": 1,
        "answer that cannot be read": 1,
        "no text": 1,
        "connection broke": 1,
        "timeout": 1,
    }
    assert found["total_output_tokens"] == 6 and found["request_goodput"] == pytest.approx(1 / found["duration"])


def test_goodput_counts_who_meets_every_goal(scripted: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    server = scripted(answer)
    found = figures(capsys, "serve", server.url, "--num-prompts", "3", "--goodput", "ttft:60000,tpot:0.5")
    assert found["request_goodput"] == 0.0 and found["completed"] == 3
    assert found["goodput"] == {"ttft": 60000.0, "tpot": 0.5}


def test_a_server_that_counts_no_tokens(scripted: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    server = scripted(lambda number, body: [step for step in answer(0, {}) if step != usage(5, 6)])
    found = figures(capsys, "serve", server.url, "--num-prompts", "2", "--model", "other")
    assert found["total_input_tokens"] is None and found["total_token_throughput"] is None
    assert found["total_output_tokens"] == 6 and found["tokens_counted_by"] == "pieces of text"
    assert {body["model"] for body in server.bodies} == {"other"}


def test_nothing_answered_is_a_failure(scripted: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    server = scripted(lambda number, body: [OK, DONE])
    assert cli.main(["bench", "serve", server.url, "--num-prompts", "2"]) == 1
    assert "did not answer a warm-up: no text" in capsys.readouterr().err
    assert cli.main(["bench", "serve", server.url, "--num-prompts", "2", "--num-warmups", "0"]) == 1
    shown = capsys.readouterr()
    assert "no request was answered: no text" in shown.err and "failed: 2 x no text" in shown.out
    assert cli.main(["bench", "serve", "http://127.0.0.1:9"]) == 1
    assert "nothing listens on http://127.0.0.1:9" in capsys.readouterr().err

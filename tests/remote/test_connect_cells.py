"""`%yaie connect` in a shell: the same cells and subcommands with an engine that runs elsewhere."""

from __future__ import annotations

import os
import signal
import threading
from time import sleep
from typing import Any

import pytest

from tests.engine.fakes import eventually
from tests.notebook.shell_run import Run, ok
from tests.remote.conftest import KEY
from tests.remote.scripted import MODELS, ScriptedServer, chat_chunk, chunk
from yaie_engine import LLM, SamplingParams
from yaie_magic.remote import RemoteLLM
from yaie_magic.remote.faults import RemoteError
from yaie_magic.server.background import BackgroundServer
from yaie_magic.session import session


@pytest.fixture
def connected(run: Run, own_server: BackgroundServer, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The shell with our server's engine."""
    monkeypatch.setenv("YAIE_API_KEY", KEY)
    run(f"%yaie connect {own_server.url}")
    assert run.error is None, run.error
    assert run.out == f"tiny on {own_server.url} connected: all cells and views.\n"
    return run


def test_cells_give_what_they_give_with_an_engine_here(connected: Run, llm: LLM) -> None:
    ok(connected, "%%generate -m 12 -t 0 --logprobs 2\nOnce upon a time")
    made = connected["_yaie"]
    record = llm.history()[-1]
    assert connected.out.startswith(record.texts[0])
    assert made.request_id == record.request_id
    assert made.tokens == record.output_token_ids[0]
    assert dict(made.usage) == {"prompt": 4, "completion": 12, "cached": record.num_cached_tokens}
    assert len(made.logprobs) == 12
    assert made.timings.ttft > 0
    ok(connected, "%%batch -m 3 -t 0\none\n---\ntwo\n---\nthree")
    here = llm.generate(["one", "two", "three"], SamplingParams(max_tokens=3, temperature=0), use_tqdm=False)
    assert [one.text for one in connected["_yaie"]] == [each.outputs[0].text for each in here]


def test_the_history_has_a_prompt_as_it_was_written(connected: Run, llm: LLM) -> None:
    text = "Tell me of  the sea"
    ok(connected, f"%%generate -m 2 -t 0\n{text}")
    record = llm.history()[-1]
    assert (record.prompt, list(record.prompt_token_ids)) == (text, llm.tokenize(text))
    ok(connected, "%yaie history 1")
    assert connected.out.rstrip().endswith(text)


def test_the_next_turn_of_a_chat_is_all_cached(connected: Run, llm: LLM) -> None:
    ok(connected, "%%chat -m 60 -t 0 --new\nWhat does the lighthouse keeper do?")
    first = llm.history()[-1]
    ok(connected, "%%chat -m 5 -t 0\nAnd then?")
    second = llm.history()[-1]
    before = (*first.prompt_token_ids, *first.output_token_ids[0])
    assert second.prompt_token_ids[: len(before)] == before
    assert connected["_yaie"].usage.cached == len(before) - 1


def test_a_chat_with_another_model_behind_the_address_is_encoded_anew(connected: Run, llm: LLM) -> None:
    ok(connected, "%%chat -m 4 -t 0 --new\nHi")
    chat = session.get().chats["default"]
    chat.model, chat.ids = "a model of before", [7] * len(chat.ids)
    ok(connected, "%%chat -m 4 -t 0\nAnd?")
    said = [*chat.messages[:2], {"role": "user", "content": "And?"}]
    assert list(llm.history()[-1].prompt_token_ids) == llm.chat_ids(said)


@pytest.mark.parametrize("line", ["%yaie status", "%yaie history", "%yaie tree --format text", "%yaie explain"])
def test_views_are_those_of_the_servers_engine(connected: Run, llm: LLM, line: str) -> None:
    ok(connected, "%%generate -m 4 -t 0\nThe lighthouse")
    ok(connected, line)
    shown = f"{connected.out}{connected.result!r}"
    told = {
        "status": f"step {llm.step:,}",
        "history": connected["_yaie"].request_id,
        "tree": "lighthouse",
        "explain": "4",
    }
    assert told[line.split()[1]] in shown


def test_an_interrupted_or_cancelled_cell_frees_the_server(connected: Run, llm: LLM) -> None:
    ok(connected, "%%generate -m 3000 -b -o story --ignore-eos\nOnce upon a time")
    eventually(lambda: bool(llm.running()))
    eventually(lambda: connected["story"].request_id == llm.running()[0])
    ok(connected, "%yaie cancel story")
    assert connected["story"].wait(20).finish_reason == "cancelled"
    assert connected["story"].error is None
    eventually(lambda: not llm.running())


def test_tokens_can_be_inspected_and_branched_from(connected: Run, llm: LLM) -> None:
    ok(connected, "%%generate -m 6 -t 0 --logprobs 2\nOnce upon a time")
    ok(connected, "inspector = _yaie.inspect()\nbranch = inspector.branch(2, 5)\nbranch.wait()")
    record = llm.history()[-1]
    assert connected["branch"].request_id == record.request_id
    assert record.prompt_token_ids == (
        *llm.tokenize("Once upon a time"),
        *connected["inspector"].answers[0].output[:2],
        5,
    )
    eventually(lambda: connected["inspector"].answers[1].reason == "length")
    assert connected["inspector"].answers[1].name == record.request_id
    assert connected["inspector"].answers[1].output[3:] == record.output_token_ids[0]


def test_unload_disconnects_and_the_server_goes_on(connected: Run, own_server: BackgroundServer) -> None:
    ok(connected, "%yaie unload")
    assert connected.out == "tiny disconnected; its server goes on.\n"
    assert own_server.llm.state == "ready"
    connected("%%generate --engine default\nx")
    assert "no engine is called 'default'" in str(connected.error)


def test_restart_connects_again_and_keeps_chats(connected: Run) -> None:
    ok(connected, "%%chat -m 4 -t 0 --new\nHi")
    before = session.get().llm
    ok(connected, "%yaie restart")
    assert session.get().llm is not before
    assert before.state == "closed"
    assert session.get().chats["default"].num_turns == 1
    ok(connected, "%%generate -m 2 -t 0\nx")


def test_engines_here_and_there_live_beside_each_other(connected: Run, own_server: BackgroundServer) -> None:
    ok(connected, f"%yaie connect {own_server.url} --as second")
    assert connected.out.startswith(f"tiny on {own_server.url} connected as second:")
    assert session.current == "second"
    assert list(session.engines) == ["default", "second"]
    ok(connected, "%%generate --engine default -m 2 -t 0\nx")


def test_replacing_an_engine_with_running_work_is_refused(connected: Run, own_server: BackgroundServer) -> None:
    ok(connected, "%%generate -m 3000 -b -o story --ignore-eos\nOnce upon a time")
    kept = session.get().llm
    connected(f"%yaie connect {own_server.url}")
    assert "1 request is running" in str(connected.error)
    assert session.get().llm is kept
    ok(connected, f"%yaie connect {own_server.url} --force")
    assert "1 running request cancelled" in connected.out
    assert connected["story"].wait(20).finish_reason == "cancelled"


@pytest.mark.parametrize(
    ("code", "what"), [("%yaie serve", "serve"), ("%%kernel rms_norm --use\n__global__ void f() {}", "--use")]
)
def test_what_needs_an_engine_in_this_kernel_says_so(connected: Run, code: str, what: str) -> None:
    connected(code)
    assert f"{what}: engine 'default' runs elsewhere, and this needs one in this kernel" in str(connected.error)


# ---- a server that is not ours


def test_a_foreign_server_generates_and_shows_nothing(run: Run, scripted: ScriptedServer) -> None:
    scripted.on("/v1/completions", lambda asked, reply: reply.stream(chunk(f"<{asked.body['prompt']}>", "stop")))
    scripted.on("/v1/chat/completions", lambda _, reply: reply.stream(chat_chunk("Hello!", "stop"), "[DONE]"))
    ok(run, f"%yaie connect {scripted.url}/v1")
    works = "%%generate, %%chat and %%batch; it is not a YAIE server and shows no views"
    assert run.out == f"m on {scripted.url} connected: {works}.\n"
    ok(run, "%%generate\nabc")
    assert run.out.startswith("<abc>")
    ok(run, "%%batch\none\n---\ntwo")
    assert [one.text for one in run["_yaie"]] == ["<one>", "<two>"]
    assert run.err == ""  # both answers have the same id, which says nothing
    ok(run, "%%chat\nHi")
    ok(run, "%%chat\nAgain")
    sent = scripted.requests("/v1/chat/completions")[-1].body["messages"]
    assert [each["content"] for each in sent] == ["Hi", "Hello!", "Again"]
    for line in ("tree", "blocks", "timeline", "dashboard", "history", "explain", "insights"):
        run(f"%yaie {line}")
        assert f"{scripted.url} is not a YAIE server: it has no" in str(run.error), line
        assert len(str(run.error).splitlines()) == 1
    ok(run, "%yaie unload")


@pytest.mark.parametrize(
    ("details", "shown"), [({}, "7 prompt tokens"), ({"cached_tokens": 4}, "4 of 7 prompt tokens cached")]
)
def test_figures_claim_no_cache_that_a_server_does_not_tell(
    run: Run, scripted: ScriptedServer, details: dict[str, int], shown: str
) -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": details or None}
    scripted.on("/v1/completions", lambda _, reply: reply.stream(chunk("abc", "stop", usage=usage)))
    ok(run, f"%yaie connect {scripted.url}")
    ok(run, "%%generate\nabc")
    assert repr(run["_yaie"]) == f"<Completion: 3 tokens · stop · {shown}>"


def test_an_interrupt_counts_no_tokens_that_a_server_does_not_tell(run: Run, scripted: ScriptedServer) -> None:
    def begin(_: Any, reply: Any) -> None:
        reply.stream(chunk("some text"))
        sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)
        reply.gone()

    scripted.on("/v1/completions", begin)
    ok(run, f"%yaie connect {scripted.url}")
    run("%%generate\nabc")
    assert str(run.error) == "interrupted: the text so far is kept"
    assert run["_yaie"].text == "some text"


def test_a_failure_is_one_line_and_the_text_is_bound(run: Run, scripted: ScriptedServer) -> None:
    scripted.on("/v1/completions", lambda _, reply: reply.stream(chunk("so far")))
    ok(run, f"%yaie connect {scripted.url}")
    run("%%generate\nabc")
    assert str(run.error) == f"{scripted.url} broke off its answer; the text so far is kept"
    assert run["_yaie"].text == "so far"
    assert run["_yaie"].finish_reason == "error"


# ---- mistakes and keys


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("%yaie connect", "required"),
        ("%yaie connect 127.0.0.1:1 --api-key x", "unknown option '--api-key'"),
        ("%yaie connect http://a:b@127.0.0.1:1", "a key does not belong into the address"),
        ("%yaie connect 127.0.0.1:1 --key-env NOT_THERE", "NOT_THERE: this variable is not set"),
        ("%yaie connect 127.0.0.1:1", "nothing listens on http://127.0.0.1:1"),
    ],
)
def test_mistakes_are_one_line_and_change_nothing(run: Run, line: str, words: str) -> None:
    run(line)
    assert words in str(run.error)
    assert session.engines == {}


def test_the_key_comes_from_the_variable_that_was_named(
    run: Run, scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("YAIE_API_KEY", "the-usual-one")
    monkeypatch.setenv("MY_KEY", KEY)
    ok(run, f"%yaie connect {scripted.url} --key-env MY_KEY")
    assert {each.headers["authorization"] for each in scripted.asked} == {f"Bearer {KEY}"}


def test_a_missing_key_is_asked_for_unseen(run: Run, scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def models(request: Any, reply: Any) -> None:
        if request.headers.get("authorization") == f"Bearer {KEY}":
            reply.json(MODELS)
        else:
            reply.json({}, 401)

    def getpass(prompt: str) -> str:
        asked.append(prompt)
        return KEY

    scripted.on("/v1/models", models)
    monkeypatch.setattr("getpass.getpass", getpass)
    run(f"%yaie connect {scripted.url}")  # nobody sits at this terminal
    assert "wants a key; set YAIE_API_KEY" in str(run.error)
    assert asked == []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    ok(run, f"%yaie connect {scripted.url}")
    assert asked == [f"{scripted.url} wants a key. Key: "]
    assert KEY not in run.out + run.err + str(run.shell.user_ns.get("_ih")) + repr(session.engines)


def test_a_connection_that_comes_after_an_interrupt_is_closed(
    run: Run, scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def models(_: Any, reply: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        answered.wait(20)
        reply.json(MODELS)

    def wires() -> int:
        return sum(thread.name == "yaie-remote" for thread in threading.enumerate())

    answered, before = threading.Event(), wires()
    made: list[RemoteLLM] = []
    close = RemoteLLM.close

    def closing(llm: RemoteLLM) -> None:
        made.append(llm)
        close(llm)

    monkeypatch.setattr(RemoteLLM, "close", closing)
    scripted.on("/v1/models", models)
    run(f"%yaie connect {scripted.url}")
    assert str(run.error) == "connect interrupted"
    assert session.engines == {}
    answered.set()
    eventually(lambda: bool(made) and wires() == before)


def test_a_traceback_that_shows_variables_has_no_key(
    run: Run, scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from yaie_magic.remote import probe

    def broken(*_: object) -> None:
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr(probe, "read_cards", broken)
    monkeypatch.setenv("YAIE_API_KEY", KEY)
    run.shell.run_line_magic("xmode", "Verbose")
    run(f"%yaie connect {scripted.url}")
    shown = run.out + run.err
    assert "Key(***)" in shown
    assert KEY not in shown


def test_the_status_of_an_engine_that_hangs_waits_for_a_sign_of_life_alone(
    connected: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, float]] = []

    def hang(path: str, *, timeout: float = 60.0, **_: Any) -> Any:
        asked.append((path, timeout))
        raise RemoteError("it stopped answering")

    monkeypatch.setattr(session.get().llm.client, "get_json", hang)  # type: ignore[attr-defined]
    ok(connected, "%yaie status")
    assert "shows nothing: it stopped answering" in connected.out and "serves nothing any more" in connected.out
    assert [path for path, _ in asked] == ["/health"] and asked[0][1] < 2

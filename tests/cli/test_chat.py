"""`yaie chat`: from a pipe, in a real terminal, and with an engine that runs elsewhere."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pexpect
import pytest
from prompt_toolkit.application import create_app_session

from tests.remote.scripted import Asked, Reply, ScriptedServer, chat_chunk
from yaie_engine import LLM
from yaie_magic.cli import main
from yaie_magic.commands.chat import reader
from yaie_magic.options import UsageProblem
from yaie_magic.server import ServerConfig
from yaie_magic.server.background import BackgroundServer
from yaie_magic.talk.conversation import COMMANDS, command_of
from yaie_magic.talk.history import MOST_BYTES, open_history
from yaie_magic.talk.reader import Terminal, read_line

KEY = "a-key-for-this-test"
Talk = Callable[..., tuple[int, str, str]]
GREEDY = ("--temperature", "0", "--max-tokens", "12", "--num-blocks", "256")


@pytest.fixture(scope="session")
def tiny() -> Iterator[LLM]:
    with LLM("tiny", num_blocks=256) as llm:
        yield llm


@pytest.fixture
def talk(tiny: LLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Talk:
    """Runs `yaie chat` with these lines on standard input, on an engine that is there already."""
    for name in [name for name in os.environ if name.startswith("YAIE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("yaie_magic.loading.load", lambda config: tiny)
    monkeypatch.setattr(LLM, "close", lambda self: None)
    tiny.reset()

    def run(*lines: str, words: tuple[str, ...] = GREEDY) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        code = main(["chat", *words])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


def test_turns_reset_and_what_an_answer_cost(talk: Talk) -> None:
    code, out, err = talk("Hello.", "", "/reset", "Hello.", "/quit", "never said")
    first, forgotten, second = out.splitlines()
    assert code == 0 and first == second and forgotten == "1 turn forgotten"
    costs = [re.fullmatch(r"([\d,]+) prompt tokens, ([\d,]+) cached · (\d+) new · [\d,]+ tokens/s · (\w+)", line)
             for line in err.splitlines()]  # fmt: skip
    assert all(costs) and len(costs) == 2
    prompt, cached = (int(costs[1][group]) for group in (1, 2))  # type: ignore[index]
    assert cached == prompt - 1


def test_a_second_turn_finds_the_first_in_the_cache(talk: Talk) -> None:
    _, _, err = talk("Hello.", "And now?")
    first, second = (re.findall(r"\d+", line) for line in err.splitlines())
    assert int(second[1]) == int(first[0]) + int(first[2]) - 1


def test_the_system_text_is_shown_set_and_begins_anew(talk: Talk) -> None:
    code, out, _ = talk("/system", "Hello.", "/system Be brief.", "/system", "/stats")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].startswith("no system text") and lines[2:4] == ["set; 1 turn forgotten", "Be brief."]
    assert "turns            0" in lines


@pytest.mark.parametrize("name", ["talk.md", "talk.json"])
def test_a_conversation_is_saved_once(name: str, talk: Talk, tmp_path: Path) -> None:
    code, out, err = talk("Hello.", f"/save {name}", f"/save {name}", words=(*GREEDY, "--system", "Be brief."))
    text = (tmp_path / name).read_text()
    assert f"1 turn saved in {name}" in out and code == 0
    assert f"{name} exists already and stays as it is" in err
    answer = out.splitlines()[0]
    if name.endswith(".json"):
        messages = json.loads(text)["messages"]
        assert [message["role"] for message in messages] == ["system", "user", "assistant"]
        assert messages[-1]["content"] == answer
    else:
        assert "## System\n\nBe brief.\n" in text and f"## Assistant\n\n{answer}\n" in text


def test_what_cannot_be_saved_is_said(talk: Talk) -> None:
    _, _, err = talk("/save", "/save talk.txt", "/save absent/talk.md")
    without, suffix, folder = err.splitlines()
    assert "/save FILE" in without and ".md or .json" in suffix and "No such file" in folder


@pytest.mark.parametrize("path", ["~nobody-has-this-name/talk.md", "nul\0.md", "x" * 300 + ".md", ".", "~"])
def test_an_odd_path_does_not_end_the_conversation(path: str, talk: Talk) -> None:
    code, out, err = talk(f"/save {path}", "/system")
    assert code == 0 and "no system text" in out
    assert err.startswith("yaie: ") and err.count("\n") == 1


def test_stats_and_help(talk: Talk) -> None:
    _, out, _ = talk("Hello.", "Hello again.", "/stats", "/help")
    assert re.search(r"^model +tiny$", out, re.MULTILINE) and re.search(r"^answers +2$", out, re.MULTILINE)
    assert re.search(r"^prompt tokens +\d+, \d+ of them cached \(\d+%\)$", out, re.MULTILINE)
    assert re.search(r"^context +\d+ of 4,096 tokens$", out, re.MULTILINE)
    assert all(f"/{name}" in out for name in COMMANDS)


def test_a_full_context_says_what_to_do_and_the_talk_goes_on(talk: Talk) -> None:
    code, out, err = talk("Hello.", "word " * 6000, "/reset", "Hello.")
    assert code == 0 and out.splitlines()[1] == "1 turn forgotten" and out.splitlines()[0] == out.splitlines()[2]
    complaint = next(line for line in err.splitlines() if line.startswith("yaie: "))
    assert "4096" in complaint.replace(",", "")
    assert "/save FILE keeps it, /reset starts anew" in err


def test_controls_of_a_model_and_a_question_do_not_reach_the_terminal(talk: Talk) -> None:
    _, out, err = talk("/system \x1b[31mred", "/system")
    assert "\x1b" not in out + err and "\\x1b[31mred" in out


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("hello", None),
        ("/etc/passwd holds what?", None),
        ("/etc/passwd", None),
        ("/why not", None),
        ("//reset", None),
        ("/reset", ("reset", "")),
        ("  /system Be brief.\nAnd kind. ", ("system", "Be brief.\nAnd kind.")),
    ],
)
def test_what_is_a_command(text: str, meaning: tuple[str, str] | None) -> None:
    assert command_of(text) == meaning


@pytest.mark.parametrize(("text", "hint"), [("/rest", "'/reset'"), ("/what", "/help lists"), ("/sytem x", "'/system'")])
def test_a_command_that_is_none(text: str, hint: str) -> None:
    with pytest.raises(UsageProblem, match=re.escape(hint)):
        command_of(text)


def test_the_history_is_its_owners_alone_and_bounded(tmp_path: Path) -> None:
    path = tmp_path / "state" / "yaie" / "chat_history"
    history, problem = open_history(path)
    assert problem is None
    history.store_string("one\ntwo")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(open_history(path)[0].load_history_strings()) == ["one\ntwo"]
    for number in range(60):
        history.store_string(f"{number} " + "x" * 20_000)
    kept = list(open_history(path)[0].load_history_strings())
    assert path.stat().st_size <= MOST_BYTES and kept[0].startswith("59 ") and all(len(each) > 20_000 for each in kept)


def test_a_history_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    history, problem = open_history(tmp_path / "link")
    history.store_string("kept in memory")
    assert problem is not None and "no history is kept" in problem and (tmp_path / "target").read_text() == ""


def test_options_that_exclude_each_other(talk: Talk) -> None:
    for words, reason in (
        (("--url", "http://127.0.0.1:1", "--num-blocks", "4"), "--num-blocks is for an engine that is loaded here"),
        (("--key-env", "X"), "--key-env is for --url"),
        (("--url", "http://127.0.0.1:1", "--key-env", "NO_SUCH"), "--key-env NO_SUCH: this variable is not set"),
    ):
        code, _, err = talk("Hello.", words=words)
        assert code == 2 and reason in err


@pytest.fixture
def url(tiny: LLM, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The engine behind our server, with a key."""
    server = BackgroundServer(tiny, ServerConfig(port=0, access_log="off", api_key=KEY))
    yield server.url
    server.stop()


def test_with_an_engine_that_runs_elsewhere(talk: Talk, url: str, tiny: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    here = talk("Hello.", "And now?")
    tiny.reset()
    monkeypatch.setenv("MY_KEY", KEY)
    words = ("--url", url, "--key-env", "MY_KEY", *GREEDY[:4])
    code, out, err = talk("Hello.", "And now?", words=words)
    assert code == 0 and out == here[1]
    first, second = (re.findall(r"\d+", line) for line in err.splitlines())
    assert int(second[1]) == int(first[0]) + int(first[2]) - 1
    assert KEY not in out + err


def test_without_the_key_it_says_where_one_is_looked_for(talk: Talk, url: str) -> None:
    code, out, err = talk("Hello.", words=("--url", url))
    assert code == 1 and out == "" and err.count("\n") == 1 and "YAIE_API_KEY" in err and "--key-env" in err


def test_a_missing_key_is_asked_for_unseen(
    talk: Talk, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    questions: list[str] = []

    def typed(question: str) -> str:
        questions.append(question)
        return KEY

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("getpass.getpass", typed)
    assert main(["generate", "--url", url, "One plus one is", "-m", "3"]) == 0
    shown = capsys.readouterr()
    assert questions == [f"{url} wants a key. Key: "] and KEY not in shown.out + shown.err


def test_generate_with_an_engine_that_runs_elsewhere(
    talk: Talk, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("YAIE_API_KEY", KEY)
    words = ("One plus one is", "Once upon a time", "--json", "--temperature", "0", "-m", "6")
    assert main(["generate", *words]) == 0
    here = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert main(["generate", "--url", url, *words]) == 0
    there = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for name in ("prompt_token_ids", "outputs"):
        assert [each[name] for each in here] == [each[name] for each in there]
    assert main(["generate", "--url", url, "--chat", "Hello.", "--temperature", "0"]) == 0
    assert capsys.readouterr().out.strip()


def test_with_a_server_that_is_not_ours(talk: Talk, capsys: pytest.CaptureFixture[str]) -> None:
    """It is sent messages; what it does not tell is left out."""
    server = ScriptedServer()
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 5}}

    def answer(asked: Asked, reply: Reply) -> None:
        told = {"choices": [], "usage": usage} if len(asked.body["messages"]) > 1 else {"choices": []}
        reply.stream(chat_chunk("Good "), chat_chunk("day.", "stop"), told, "[DONE]")

    server.on("/v1/chat/completions", answer)
    try:
        code, out, err = talk("Hello.", "And now?", "/stats", words=("--url", server.url, "--temperature", "0"))
        assert code == 0 and out.splitlines()[:2] == ["Good day.", "Good day."] and "model            m" in out
        first, second = err.splitlines()
        assert first == "stop" or (first.endswith("tokens/s · stop") and "prompt" not in first)
        assert second.startswith("9 prompt tokens, 5 cached · 4 new · ") and second.endswith(" · stop")
        asked = server.requests("/v1/chat/completions")[-1].body
        assert [each["content"] for each in asked["messages"]] == ["Hello.", "Good day.", "And now?"]
        assert main(["generate", "--url", server.url, "--chat", "One", "Two", "--json"]) == 0
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [line["outputs"][0]["text"] for line in lines] == ["Good day.", "Good day."]
    finally:
        server.close()


def test_a_server_that_goes_away_takes_nothing_with_it(talk: Talk, tmp_path: Path) -> None:
    server = ScriptedServer()

    def answer(asked: Asked, reply: Reply) -> None:
        reply.stream(chat_chunk("Good day.", "stop"))
        server.close()  # before the answer ends: what is asked next finds nobody
        reply.event("[DONE]")

    server.on("/v1/chat/completions", answer)
    code, out, err = talk("Hello.", "And now?", "/save talk.json", words=("--url", server.url))
    assert code == 1 and out.splitlines() == ["Good day.", "", "1 turn saved in talk.json"]
    assert "yaie: nothing listens on" in err and "the conversation is kept" in err
    assert len(json.loads((tmp_path / "talk.json").read_text())["messages"]) == 2


@pytest.mark.parametrize("seen", ["stdout", "stderr", None])
def test_the_prompt_is_drawn_where_somebody_sees_it(seen: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = pty.openpty()
    with open(master, "rb"), open(slave, "r+b", 0) as device, open(os.devnull, "w") as elsewhere, create_app_session():
        screen = io.TextIOWrapper(device, write_through=True)
        monkeypatch.setattr("sys.stdin", screen)
        for name in ("stdout", "stderr"):
            monkeypatch.setattr(f"sys.{name}", screen if name == seen else elsewhere)
        found = reader({"no_history": True})
        if seen is None:
            assert found is read_line
        else:
            assert isinstance(found, Terminal) and found._session.output.fileno() == screen.fileno()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # of forkpty, from Python 3.12 on
def test_in_a_terminal(tmp_path: Path) -> None:
    """Editing, several lines, an interrupted answer, history, and the two ways to end."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("YAIE_")}
    state = tmp_path / "state"
    own = {"XDG_STATE_HOME": str(state), "HF_HUB_OFFLINE": "1", "PROMPT_TOOLKIT_NO_CPR": "1", "TERM": "xterm"}
    words = ["-m", "yaie_magic.cli", "chat", "--temperature", "0", "--num-blocks", "256", "--ignore-eos", "-m", "3000"]
    shell = pexpect.spawn(
        sys.executable, words, encoding="utf-8", env=plain | own, cwd=str(tmp_path), timeout=60, dimensions=(40, 160)
    )
    answer = "2004l[^\x1b]{6}"  # the prompt has given the terminal back, and text has come
    try:
        shell.expect("tiny is listening")
        shell.expect("you>")
        shell.send("Hello.\x1b\rAnd more.\r")
        shell.expect(answer)
        shell.sendintr()
        shell.expect("\x1b\\[2m[0-9]+ prompt tokens, 0 cached .* cancelled\x1b\\[0m")
        shell.expect("you>")
        shell.send("/save talk.json\r")
        shell.expect("1 turn saved in talk.json")
        shell.expect("you>")
        shell.send("half a thought")
        shell.sendintr()  # clears the line
        shell.send("\x1b[A\x1b[A\r")  # the message again, from the history
        shell.expect("And more")
        shell.expect(answer)
        shell.sendintr()
        shell.expect("cancelled")
        shell.expect("you>")
        shell.sendintr()
        shell.expect("Ctrl-C once more ends")
        shell.expect("you>")
        shell.sendintr()
        shell.expect("yaie: interrupted")
        shell.expect(pexpect.EOF)
    finally:
        shell.close(force=True)
    assert shell.exitstatus == 130
    messages = json.loads((tmp_path / "talk.json").read_text())["messages"]
    assert messages[0]["content"] == "Hello.\nAnd more." and messages[1]["content"]
    kept = state / "yaie" / "chat_history"
    assert "half a thought" not in kept.read_text() and stat.S_IMODE(kept.stat().st_mode) == 0o600

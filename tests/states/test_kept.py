"""The index of kept states: bounded in bytes, pinned ones stay, and only what a prompt begins with is found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architectures.peers import word_tokenizer
from tests.architectures.zoo import BY_NAME
from tests.notebook.shell_run import Run
from tests.plain_shell import plain_shell
from tests.states.conftest import PROMPT, Open, ask, kept
from yaie_engine import LLM, StoreError
from yaie_engine.states import service
from yaie_engine.states.kept import KeptState, KeptStates
from yaie_engine.store import boundary
from yaie_magic.session import session


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    with plain_shell(tmp_path, YAIE_NOTEBOOK="static") as shell:
        yield Run(shell, capsys)


def state(start: int, count: int = 20, size: int = 10, salt: str = "", logits: object = None) -> KeptState:
    return KeptState(tuple(range(start, start + count)), salt, object(), logits, size)


def test_the_least_recently_used_makes_room_and_pinned_ones_stay() -> None:
    states = KeptStates(30)
    one, two, three, four = (state(100 * i) for i in range(4))
    assert all(states.put(each) for each in (one, two, three))
    states.pin(one, True)
    assert states.longest([*two.token_ids, 1], "") is two
    assert states.put(four) and states.entries() == [four, two, one]
    assert not states.put(state(7, size=25)) and states.entries() == [four, two, one]
    assert states.put(state(7, size=20)) and states.num_bytes == 30
    assert states.clear()[1] == 30 and states.entries() == []


def test_only_a_whole_prefix_is_found_and_its_end_only_with_logits() -> None:
    states = KeptStates(100)
    short, long = state(0, 20), state(0, 30)
    states.put(short)
    states.put(long)
    ids = list(range(40))
    assert states.longest(ids, "") is long and states.longest(ids[:30], "") is short
    assert states.longest(ids[:29], "") is short and states.longest(ids[:20], "") is None
    assert states.longest([0, 5, *ids[2:]], "") is None and states.longest(ids, "other") is None
    states.put(state(0, 30, logits=1))
    assert states.longest(ids[:30], "") is states.entries()[0] and len(states.entries()) == 2
    assert not states.lacks(ids[:30], "") and not states.lacks(ids[:30], "", logits=True)
    assert states.lacks(ids[:20], "", logits=True) and not states.lacks(ids[:15], "")


def test_pinned_prompts(open_llm: Open) -> None:
    llm = open_llm()
    with pytest.raises(StoreError, match="at least 16"):
        llm.save_prefix(PROMPT[:9])
    entry = llm.save_prefix(PROMPT, pinned=True)
    assert entry.pinned and ask(llm, [*PROMPT, 5]).num_cached_tokens == len(PROMPT)
    kept(llm).limit = entry.num_bytes
    with pytest.raises(StoreError, match="unpin or clear some"):
        llm.save_prefix(PROMPT[1:])


def test_the_system_part_of_a_chat_and_the_cache_command(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    BY_NAME["lfm2"].build().save_pretrained(folder)
    word_tokenizer().save_pretrained(folder)
    template = tmp_path / "template"
    template.write_text("{% for m in messages %}{{ 'w9 ' + m['content'] + ' w8 ' }}{% endfor %}")
    monkeypatch.setattr(service, "WORTH_KEEPING", 16)
    monkeypatch.setattr(boundary, "WORTH_KEEPING", 16)

    def said(line: str) -> str:
        run(line)
        return str(run.out + run.err)

    run(f"%yaie load {folder} --block-size 4 --num-blocks 64 --chat-template {template}")
    assert "0 records of this model, 0.0 MiB of at most" in said("%yaie cache") and "in memory" in run.out
    rules = " ".join(f"w{40 + i % 7}" for i in range(40))
    for question in ("w50 w51 w52", "w60"):
        run("%yaie reset")
        run(f"%%chat -m 3 -t 0 -s '{rules}' -o answer\n{question}")
    llm = session.get().llm
    assert isinstance(llm, LLM)
    record = llm.history(1)[0]
    assert record.num_cached_tokens == 43 < len(record.prompt_token_ids)
    out = said("%yaie cache list")
    assert "w9 w40 w41" in out and "5 records of this model" in out
    assert "5 states in memory" in said("%yaie status")
    label = out.splitlines()[-1].split()[0]
    assert "1 record pinned." in said(f"%yaie cache pin {label}")
    assert "4 records removed" in said("%yaie cache clear") and "1 record pinned and kept" in run.out
    assert "1 record unpinned." in said("%yaie cache unpin")
    assert "saved and pinned as" in said(f"%yaie cache pin {rules}")
    assert "0 tokens brought" in said("%yaie cache load")
    assert "2 records removed" in said("%yaie cache clear --all")
    run("%yaie sleep")
    assert "0 states in memory" in said("%yaie status")

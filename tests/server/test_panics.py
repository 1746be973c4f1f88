"""A tokenizer that panics: its Rust library gives up with a BaseException. One request pays, in one clear line."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.fakes import assert_idle
from tests.server.fakes import send
from yaie_engine import LLM, SamplingParams
from yaie_engine.errors import ModelLoadError, RequestError
from yaie_engine.models.bundled import bundled_folder
from yaie_engine.panics import unless_foreign
from yaie_engine.tokenizer import Tokenizer
from yaie_magic.server import ServerConfig
from yaie_magic.server.background import BackgroundServer

PROMPT = "z" * 40 + "b"
"""On which the pattern below exceeds what its library tries."""
SPLIT = {"type": "Split", "pattern": {"Regex": "^(z|zz)+$"}, "behavior": "Isolated", "invert": False}
STRIP = {"type": "Strip", "content": "Ġ", "start": 0, "stop": 5}
"""Looks before the start of a token that is nothing but a space."""
SPACE = 223


def spoiled(folder: Path, spoil: Callable[[dict[str, Any]], object]) -> Path:
    source = bundled_folder("tiny")
    assert source is not None
    shutil.copytree(source, folder)
    content = json.loads((folder / "tokenizer.json").read_text())
    spoil(content)
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return folder


def panicking(content: dict[str, Any]) -> None:
    content["pre_tokenizer"]["pretokenizers"].insert(0, SPLIT)
    content["decoder"] = {"type": "Sequence", "decoders": [STRIP, content["decoder"]]}


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    folder = spoiled(tmp_path_factory.mktemp("panics") / "model", panicking)
    with LLM(str(folder), num_blocks=64, attention_backend="reference") as found:
        yield found


@pytest.fixture(scope="module")
def server(llm: LLM) -> Iterator[BackgroundServer]:
    found = BackgroundServer(llm, ServerConfig(port=0, access_log="off"))
    yield found
    found.stop()


async def drained(llm: LLM) -> None:
    async for _ in llm.stream(PROMPT):
        pass


CALLS: dict[str, Callable[[LLM], object]] = {
    "generate": lambda llm: llm.generate(PROMPT),
    "generate_many": lambda llm: llm.generate(["a", PROMPT]),
    "stream": lambda llm: asyncio.run(drained(llm)),
    "chat": lambda llm: llm.chat([{"role": "user", "content": PROMPT}]),
    "tokenize": lambda llm: llm.tokenize(PROMPT),
    "detokenize": lambda llm: llm.detokenize([SPACE]),
    "prompt of ids": lambda llm: llm.generate([SPACE]),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_call_ends_in_one_line_and_the_next_is_served(name: str, llm: LLM) -> None:
    with pytest.raises(RequestError, match=r"the tokenizer cannot (en|de)code th[a-z ]*: .") as caught:
        CALLS[name](llm)
    assert "\n" not in str(caught.value)
    assert_idle(llm)
    assert llm.generate("abc", SamplingParams(max_tokens=2))[0].error is None


def test_text_that_cannot_be_decoded_fails_its_own_request_only(llm: LLM) -> None:
    bad, good = SamplingParams(max_tokens=3, logit_bias={SPACE: 100.0}), SamplingParams(max_tokens=3)
    spoiled, sound = llm.generate(["abc", "abc"], [bad, good])
    assert isinstance(spoiled.error, RequestError) and "cannot decode these token ids: " in str(spoiled.error)
    assert sound.error is None
    assert_idle(llm)


ROUTES: list[tuple[str, dict[str, Any]]] = [
    ("/generate", {"prompt": PROMPT}),
    ("/batch_generate", {"prompts": ["a", PROMPT]}),
    ("/v1/completions", {"prompt": PROMPT}),
    ("/v1/completions", {"prompt": PROMPT, "stream": True}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": PROMPT}]}),
    ("/tokenize", {"prompt": PROMPT}),
    ("/detokenize", {"tokens": [SPACE]}),
]


@pytest.mark.parametrize(("path", "body"), ROUTES)
def test_every_route_says_that_this_prompt_cannot_be_served(
    path: str, body: dict[str, Any], server: BackgroundServer
) -> None:
    answer = send(server, path, body)
    assert answer.status_code in (400, 422) and "the tokenizer cannot " in answer.text, answer.text
    assert send(server, "/generate", {"prompt": "abc", "max_tokens": 2}).status_code == 200


def test_a_tokenizer_that_panics_when_it_is_read(tmp_path: Path) -> None:
    damaged = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
    folder = spoiled(tmp_path / "model", lambda content: content.update(normalizer=damaged))
    with pytest.raises(ModelLoadError, match="no tokenizer could be read"):
        LLM(str(folder), num_blocks=8)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_is_no_panic_goes_its_way(kind: type[BaseException], llm: LLM) -> None:
    class Interrupted:
        truncation = padding = None

        def encode(self, *_: object, **__: object) -> None:
            raise kind

        decode = encode

    tokenizer = Tokenizer(llm.tokenizer.hf)
    tokenizer._backend = Interrupted()
    with pytest.raises(kind):
        tokenizer.encode("a")
    with pytest.raises(kind):
        tokenizer.decode([1])
    with pytest.raises(kind):
        unless_foreign(kind())

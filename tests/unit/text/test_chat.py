"""From messages to prompt ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from tests.unit.text.builders import byte_level, sentencepiece
from yaie_engine.chat import load_template, plain_text, render_chat, render_text
from yaie_engine.errors import ConfigError, RequestError
from yaie_engine.tokenizer import Tokenizer

CHATML = (
    "{% for m in messages %}<s>{{ m.role }}\n{{ m.content }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "the river?"}]


def with_template(template: Any) -> Tokenizer:
    """A tokenizer of its own, so that the shared one keeps no template."""
    hf = PreTrainedTokenizerFast(tokenizer_object=byte_level().hf.backend_tokenizer, bos_token="<s>", eos_token="</s>")
    hf.chat_template = template
    return Tokenizer(hf)


def test_same_as_transformers() -> None:
    tokenizer = with_template(CHATML)
    for prompt in (True, False):
        ids = render_chat(tokenizer, MESSAGES, add_generation_prompt=prompt)
        text = tokenizer.hf.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=prompt)
        assert ids == tokenizer.encode(text, add_special_tokens=False)
        assert render_text(tokenizer, MESSAGES, add_generation_prompt=prompt) == (text, True)
    assert ids[0] == 0


def test_the_option_wins_over_the_models_template(tmp_path: Path) -> None:
    tokenizer = with_template(CHATML)
    option = "{{ bos_token }}!{{ messages[1].content }}"
    assert render_text(tokenizer, MESSAGES, chat_template=option)[0] == "<s>!the river?"
    file = tmp_path / "template.jinja"
    file.write_text("{{ messages | length }}")
    assert render_text(tokenizer, MESSAGES, chat_template=str(file))[0] == "2"


def test_a_base_model_gets_plain_lines() -> None:
    text, from_template = render_text(byte_level(), MESSAGES)
    assert text == "system: Be brief.\nuser: the river?\nassistant:"
    assert not from_template
    assert plain_text(MESSAGES, add_generation_prompt=False).endswith("river?")
    tokenizer = sentencepiece()
    assert render_chat(tokenizer, MESSAGES) == tokenizer.encode(text)


def test_tools_need_a_template() -> None:
    with pytest.raises(RequestError, match="tools"):
        render_chat(byte_level(), MESSAGES, tools=[{"type": "function"}])


def test_named_templates() -> None:
    tokenizer = with_template({"default": "plain", "tool_use": "tools: {{ tools[0].name }}"})
    assert render_text(tokenizer, MESSAGES)[0] == "plain"
    assert render_text(tokenizer, MESSAGES, tools=[{"name": "add"}])[0] == "tools: add"
    with pytest.raises(ConfigError, match="rag"):
        render_text(with_template({"rag": "x"}), MESSAGES)


def test_developer_becomes_system_where_the_template_knows_only_that() -> None:
    messages = [{"role": "developer", "content": "x"}]
    assert render_text(byte_level(), messages, chat_template="{{ messages[0].role }}")[0] == "system"
    template = "{{ messages[0].role }}{# developer #}"
    assert render_text(byte_level(), messages, chat_template=template)[0] == "developer"


def test_template_variables_are_allow_listed() -> None:
    template = "{{ enable_thinking }}"
    assert render_text(byte_level(), MESSAGES, chat_template=template, enable_thinking=False)[0] == "False"
    for name in ("tokenize", "messages_", "bos_token", "padding", "continue_final_message"):
        with pytest.raises(RequestError, match=f"unknown template variable '{name}'"):
            render_chat(byte_level(), MESSAGES, **{name: "x"})
    with pytest.raises(RequestError, match="did you mean 'enable_thinking'"):
        render_chat(byte_level(), MESSAGES, enable_thinkin=True)


def test_case_25_no_messages() -> None:
    with pytest.raises(RequestError, match="at least one"):
        render_chat(byte_level(), [])


def test_lone_surrogates_in_a_message() -> None:
    with pytest.raises(RequestError, match="surrogate"):
        render_chat(byte_level(), [{"role": "user", "content": "\ud800"}], chat_template=CHATML)


@pytest.mark.parametrize("option", ["no-such-file.jinja", "/", "a\0b", "x" * 5000])
def test_a_template_file_that_cannot_be_read(option: str) -> None:
    with pytest.raises(ConfigError, match="chat_template="):
        load_template(option)


def test_a_template_that_is_too_large_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="over"):
        load_template("{{ x }}" + " " * 2**20)
    file = tmp_path / "binary"
    file.write_bytes(b"\xff\xfe{{")
    with pytest.raises(ConfigError, match="UTF-8"):
        load_template(str(file))

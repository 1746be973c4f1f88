"""Targets that take text: requests, event streams, stop strings, tokens, command lines, labels."""

from __future__ import annotations

import json
import unicodedata
import xml.etree.ElementTree as ET
from functools import cache

from pydantic import BaseModel

from tests.unit.text.builders import byte_level, sentencepiece
from yaie_engine.detokenizer import Detokenizer
from yaie_engine.errors import RequestError
from yaie_engine.messages import check_messages
from yaie_engine.params import SamplingParams
from yaie_engine.stop import StopMatcher
from yaie_magic.batch import split_json_lines
from yaie_magic.cell_options import cell_parser
from yaie_magic.options import UsageProblem
from yaie_magic.parser import OptionParser, split_line
from yaie_magic.remote.events import EventReader
from yaie_magic.remote.faults import RemoteError
from yaie_magic.server.body import parse
from yaie_magic.server.config import ServerConfig
from yaie_magic.server.errors import ApiError
from yaie_magic.server.guard import host_name
from yaie_magic.server.params import as_prompts, template_values
from yaie_magic.server.schema import BatchBody, ChatBody, CompletionBody, GenerateBody, TokenizeBody, checked
from yaie_widgets.safe_text import escape_label

BODIES: tuple[type[BaseModel], ...] = (ChatBody, CompletionBody, GenerateBody, BatchBody, TokenizeBody)
LIMITS = ServerConfig(port=0)


def openai_schema(data: bytes) -> None:
    """A body is refused as an ApiError, or is JSON within the bounds, whichever route it is for."""
    if not data:
        return
    model = BODIES[data[0] % len(BODIES)]
    try:
        body = checked(model, parse(data[1:], LIMITS.max_json_depth))
        template_values(body)
        for name in ("prompt", "prompts"):
            if name in body:
                as_prompts(body[name], LIMITS, name)
    except ApiError as error:
        assert 400 <= error.status < 500
        return
    assert "chat_template" not in body, "no request brings a template"


def event_stream(data: bytes) -> None:
    """Events do not depend on how the bytes were cut."""
    cut = data[0] % 7 + 1 if data else 1
    stream = data[1:]
    try:
        whole = list(EventReader().push(stream))
    except RemoteError:
        return
    reader = EventReader()
    pieces = [event for at in range(0, len(stream), cut) for event in reader.push(stream[at : at + cut])]
    assert pieces == whole


def stop_matcher(data: bytes) -> None:
    """Two stop strings and a text between null bytes: the first match wins, however the text was cut."""
    size, *parts = (data[:1] or b"\1")[0] % 5 + 1, *data[1:].decode("utf-8", "replace").split("\0", 2)
    stop = [part for part in parts[:-1] if part]
    text = parts[-1]
    if not stop or len(stop) * len(text) > 20_000:
        return
    matcher = StopMatcher(stop, {}, include=False)
    shown = "".join(matcher.feed(text[at : at + size]) for at in range(0, len(text), size)) + matcher.flush()
    ends = [(text.find(one) + len(one), -len(one), one) for one in stop if one in text]
    end, _, found = min(ends, default=(len(text), 0, None))
    assert matcher.found == found
    assert shown == text[: end - len(found or "")]


def detokenizer(data: bytes) -> None:
    """Pieces join to the text of all tokens, and to what decoding at once gives."""
    if len(data) < 2 or len(data) > 2000:
        return
    tokenizer = sentencepiece() if data[0] % 2 else byte_level()
    skip = bool(data[1] % 2)
    size = len(tokenizer.hf)
    ids = [int.from_bytes(data[at : at + 2], "big") % size for at in range(2, len(data) - 1, 2)]
    params = SamplingParams(skip_special_tokens=skip, max_tokens=4)
    detokenizer = Detokenizer(tokenizer, [], params)
    text = "".join(detokenizer.push(token) for token in ids) + detokenizer.flush()
    assert text == detokenizer.text
    assert text == tokenizer.decode(ids, skip_special_tokens=skip)


@cache
def _parsers() -> tuple[OptionParser, ...]:
    from yaie_magic.subcommands import find

    return (
        *(cell_parser(name) for name in ("generate", "chat", "batch")),
        find("load").parser(),
        find("serve").parser(),
    )


def magic_line(data: bytes) -> None:
    """A line of a magic gives options or a UsageProblem."""
    if not data:
        return
    parser = _parsers()[data[0] % len(_parsers())]
    try:
        words = split_line(data[1:].decode("utf-8", "replace"))
        if not parser.wants_help(words):
            parser.parse(words)
    except UsageProblem:
        return


def dot_escape(data: bytes) -> None:
    """Text in a label is one run of text: no element, no reference that is not ours, nothing that steers."""
    shown = escape_label(data.decode("utf-8", "surrogatepass" if _decodes(data) else "replace"))
    parsed = ET.fromstring(f"<x>{shown}</x>")  # noqa: S314  this is the question
    assert len(parsed) == 0 and not parsed.attrib
    assert '"' not in shown
    assert shown.count("\\") % 2 == 0 and "\\" not in shown.replace("\\\\", "")
    assert not [char for char in parsed.text or "" if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")]


def _decodes(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def host(data: bytes) -> None:
    """A name in a Host header has no port, path or user left in it."""
    name = host_name(data.decode("latin-1"))
    assert name is None or (name == name.lower() and not set(name) & set("/@?#\\ \t\r\n%"))


def batch_lines(data: bytes) -> None:
    """Every line becomes a prompt, or a UsageProblem says which one does not."""
    try:
        items = split_json_lines(data.decode("utf-8", "replace"))
    except UsageProblem:
        return
    assert all(item.prompt for item in items)


def messages(data: bytes) -> None:
    """A conversation that is taken can be sent to the process that renders the template."""
    try:
        found = check_messages(parse(data, LIMITS.max_json_depth).get("messages", []))
    except (ApiError, RequestError):
        return
    try:
        assert isinstance(json.dumps(found, allow_nan=False), str)
    except (ValueError, RecursionError):
        return  # no JSON data, which TemplateProcess.render refuses

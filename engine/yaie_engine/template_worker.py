"""The helper process that renders chat templates: `python template_worker.py`, one JSON line in, one JSON line out.

A template comes with a model and is not trusted. Jinja's sandbox keeps it from Python's internals but bounds neither
time nor memory; this process does: it may use little memory, write no file, and is killed when it is too slow. It
imports nothing of the engine, so that it starts in a fraction of a second.

    {"template": str, "variables": {...}, "max_chars": int, "seconds": int}
    -> {"text": str} or {"error": "syntax" | "security" | "size" | "memory" | "template", "message": str}
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_MEMORY = 512 * 2**20


class TooLong(Exception):
    """The text is over the limit."""


class GenerationBlock(Extension):
    """`{% generation %}`: transformers marks the assistant's tokens with it for training; here it is only its body."""

    tags = {"generation"}  # noqa: RUF012 - the base class declares a plain set

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class PlainNamespace(jinja2.utils.Namespace):
    """`namespace()` that takes no underscored names, which could stand for Python's own attributes."""

    def __init__(self, *args: Any, **values: Any) -> None:
        for name in dict(*args, **values):
            check_name(name)
        super().__init__(*args, **values)

    def __setitem__(self, name: str, value: Any) -> None:
        check_name(name)
        super().__setitem__(name, value)


def check_name(name: object) -> None:
    """Refuse a namespace attribute that begins with an underscore."""
    if str(name).startswith("_"):
        raise SecurityError(f"the namespace attribute {name!r} is not allowed")


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja as transformers sets it up for chat templates, except that reaching for internals fails at once."""

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlock, "jinja2.ext.loopcontrols"])
        for name in ("lipsum", "cycler", "joiner"):
            self.globals.pop(name, None)
        self.globals["namespace"] = PlainNamespace
        self.globals["raise_exception"] = fail
        self.globals["strftime_now"] = strftime_now
        self.filters["tojson"] = to_json

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        raise SecurityError(f"access to {attribute!r} of {type(obj).__name__!r} is not allowed")


def fail(message: str) -> NoReturn:
    """`raise_exception(...)`: how templates refuse a conversation."""
    raise TemplateError(str(message))


def strftime_now(form: str) -> str:
    """Today's date, as templates of recent models want it in the system prompt."""
    return datetime.now().strftime(form)


def to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without the HTML escapes of Jinja's own filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@lru_cache(maxsize=1)
def sandbox() -> Sandbox:
    return Sandbox()


@lru_cache(maxsize=16)
def compiled(template: str) -> jinja2.Template:  # noqa: TID251 - the type alone: the sandbox makes it
    return sandbox().from_string(template)


def render(template: str, variables: Mapping[str, Any], max_chars: int) -> str:
    """Text of the template; stops as soon as it is too long."""
    parts: list[str] = []
    length = 0
    for part in compiled(template).generate(**variables):
        parts.append(part)
        length += len(part)
        if length > max_chars:
            raise TooLong
    return "".join(parts)


def answer(request: Mapping[str, Any]) -> dict[str, str]:
    """The reply to one request; a template can raise anything, so everything becomes an answer."""
    try:
        return {"text": render(request["template"], request["variables"], request["max_chars"])}
    except TemplateSyntaxError as error:
        return {"error": "syntax", "message": f"line {error.lineno}: {error.message}"}
    except SecurityError as error:
        return {"error": "security", "message": str(error)}
    except TooLong:
        return {"error": "size", "message": f"the text is longer than {request['max_chars']} characters"}
    except (MemoryError, RecursionError, OverflowError) as error:
        return {"error": "memory", "message": f"too much memory or depth ({type(error).__name__})"}
    except Exception as error:  # what a template raises is its own choice
        return {"error": "template", "message": str(error)[:2000] or type(error).__name__}


def limit_resources() -> None:
    """Bound memory and forbid writing files, where the system can do that."""
    try:
        import resource
    except ImportError:
        return
    for kind, value in ((resource.RLIMIT_AS, MAX_MEMORY), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        try:
            resource.setrlimit(kind, (value, value))
        except (ValueError, OSError):
            continue


def set_alarm(seconds: int) -> None:
    """End this process after so many seconds (0: never), even when nobody is left to kill it."""
    if hasattr(signal, "alarm"):
        signal.alarm(seconds)


def main() -> None:
    """Serve until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit_resources()
    for line in sys.stdin.buffer:
        request = json.loads(line)
        set_alarm(request["seconds"])
        reply = json.dumps(answer(request))
        set_alarm(0)
        sys.stdout.write(reply + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

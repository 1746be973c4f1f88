"""Writing a conversation to a file: Markdown to read, JSON to send to a model again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from yaie_magic.options import UsageProblem

SUFFIXES = (".md", ".json")


def save(path: Path, model: str, messages: Iterable[Mapping[str, str]]) -> None:
    """Write the messages in the form that the suffix names. A file that exists stays as it is.

    Raises:
        UsageProblem: the suffix is another one, the file exists, or it cannot be written.
    """
    if path.suffix not in SUFFIXES:
        raise UsageProblem(f"{path}: a name that ends in {' or '.join(SUFFIXES)} says in which form to save")
    kept = [dict(message) for message in messages]
    text = "\n".join(_markdown(model, kept)) if path.suffix == ".md" else _json(model, kept)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text + "\n")
    except FileExistsError:
        raise UsageProblem(f"{path} exists already and stays as it is; choose another name") from None
    except (OSError, ValueError) as error:
        raise UsageProblem(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def _json(model: str, messages: list[dict[str, str]]) -> str:
    return json.dumps({"model": model, "messages": messages}, indent=2, ensure_ascii=False)


def _markdown(model: str, messages: Iterable[Mapping[str, str]]) -> Iterator[str]:
    yield f"# A conversation with {model}"
    for message in messages:
        yield f"\n## {message['role'].capitalize()}\n\n{message['content'].rstrip()}"

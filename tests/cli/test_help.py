"""Help texts: complete, narrow enough, and right in their examples."""

from __future__ import annotations

import re
import shlex

import pytest

from yaie_magic import cli
from yaie_magic.options import engine_options, sampling_options, server_options
from yaie_magic.parser import OptionParser

NAMES = list(cli.COMMANDS)
LOADING = {"generate", "chat", "serve", "doctor"}


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(words) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_a_help_text_teaches(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "help", name)
    assert max(len(line) for line in text.splitlines()) <= 100
    assert text.startswith(f"usage: yaie {name}")
    assert len(examples_of(text)) >= 3
    assert "exit codes: 0 done; 1 failed; 2 usage" in text
    with pytest.raises(SystemExit):
        cli.main([name, "--help"])
    assert capsys.readouterr().out == text


@pytest.mark.parametrize("name", NAMES)
def test_its_examples_are_understood(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    ours = [words for line in examples_of(shown(capsys, "help", name)) if (words := command_in(line))]
    assert ours
    for words in ours:
        cli.command(words[0]).parser().parse([word for word in words[1:] if word != "--help"])


def test_the_overview_fits_and_its_examples_are_understood(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "help")
    assert text == shown(capsys, "--help")
    assert max(len(line) for line in text.splitlines()) <= 110
    for line, _ in cli.EXAMPLES:
        words = command_in(line)
        cli.command(words[0]).parser().parse(words[1:])


@pytest.mark.parametrize("name", sorted(LOADING))
def test_who_loads_a_model_logs(name: str) -> None:
    options = {entry.name for entry in parser(name).options}
    assert {"log_level", "log_file", "log_format", "verbose"} <= options


@pytest.mark.parametrize(
    ("name", "tables"),
    [
        ("generate", [engine_options(), sampling_options()]),
        ("chat", [engine_options(), [entry for entry in sampling_options() if entry.name != "n"]]),
        ("serve", [engine_options(), server_options()]),
    ],
)
def test_no_option_is_lost_between_the_groups(name: str, tables: list[list[object]]) -> None:
    names = [entry.name for entry in parser(name).options]
    assert len(names) == len(set(names))
    assert {entry.name for table in tables for entry in table} <= set(names)  # type: ignore[attr-defined]


def test_help_for_a_command_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["help", "serv"]) == 2
    assert "did you mean 'serve'?" in capsys.readouterr().err


def parser(name: str) -> OptionParser:
    return cli.command(name).parser()


def examples_of(text: str) -> list[str]:
    """The lines to type in a help text."""
    block = re.search(r"^examples:\n((?:  .*\n)+)", text, re.MULTILINE)
    return [line.strip() for line in block[1].splitlines() if not line.startswith("  # ")] if block else []


def command_in(line: str) -> list[str]:
    """The words after `yaie` in a shell line, up to a redirection; [] when there is no such command in it."""
    line = re.sub(r'^eval "\$\((.*)\)"$', r"\1", line)
    words = shlex.split(line)
    if "yaie" not in words:
        return []
    words = words[words.index("yaie") + 1 :]
    end = next((i for i, word in enumerate(words) if word in (">", "<", "|", "&&", "&")), len(words))
    return words[:end]


def test_command_in_finds_the_words() -> None:
    assert command_in("A=1 yaie serve tiny > x") == ["serve", "tiny"]
    assert command_in("curl x") == []

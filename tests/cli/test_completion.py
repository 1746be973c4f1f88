"""Completion scripts, asked in the shells that are installed here."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pexpect
import pytest

from yaie_magic import cli
from yaie_magic.shells.words import SHELLS, all_commands

Complete = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with some files, a cache with one model, and the scripts."""
    folder = tmp_path_factory.mktemp("completion")
    (folder / "my settings.yaml").touch()
    (folder / "hub" / "models--acme--small--one").mkdir(parents=True)
    return folder


@pytest.fixture(scope="module")
def scripts(place: Path) -> dict[str, Path]:
    """The three scripts, as the command prints them."""
    import contextlib
    import io

    found = {}
    for shell in SHELLS:
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            assert cli.main(["completion", shell]) == 0
        found[shell] = place / f"yaie.{shell}"
        found[shell].write_text(shown.getvalue())
    return found


def variables(place: Path) -> dict[str, str]:
    return {**os.environ, "HF_HUB_CACHE": str(place / "hub"), "HOME": str(place), "TERM": "dumb"}


@pytest.fixture
def bash(place: Path, scripts: dict[str, Path]) -> Complete:
    if shutil.which("bash") is None:
        pytest.skip("no bash here")

    def complete(line: str) -> list[str]:
        words = [*shlex.split(line), *([""] if line.endswith(" ") else [])]
        code = f"source {scripts['bash']}; COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; _yaie; "
        done = subprocess.run(
            ["bash", "-c", code + 'printf "%s\\n" "${COMPREPLY[@]}"'],
            cwd=place,
            env=variables(place),
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == ""
        return done.stdout.splitlines()

    return complete


@pytest.fixture
def fish(place: Path, scripts: dict[str, Path]) -> Complete:
    if shutil.which("fish") is None:
        pytest.skip("no fish here")

    def complete(line: str) -> list[str]:
        code = f"source {scripts['fish']}; complete -C{shlex.quote(line)}"
        done = subprocess.run(
            ["fish", "--no-config", "-c", code],
            cwd=place,
            env=variables(place),
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == ""
        return [entry.partition("\t")[0] for entry in done.stdout.splitlines()]

    return complete


CASES = [
    ("yaie gen", ["generate"], ["serve"]),
    ("yaie --v", ["--version"], ["generate"]),
    ("yaie serve --access", ["--access-log"], ["--port"]),
    ("yaie serve --no-str", ["--no-strict"], []),
    ("yaie serve --dtype fl", ["float16", "float32"], ["bfloat16"]),
    ("yaie generate --max-batch", [], ["--max-batch-size"]),
    ("yaie generate --model ac", ["acme/small/one"], ["tiny"]),
    ("yaie chat ti", ["tiny"], ["acme/small/one"]),
    ("yaie help mod", ["models"], ["serve"]),
    ("yaie completion z", ["zsh"], ["bash"]),
    ("yaie kernels rms", ["rms_norm"], []),
    ("yaie serve --port ", [], ["tiny", "my settings.yaml"]),
    ("yaie models --json x", [], ["--json"]),
]


@pytest.mark.parametrize("shell", ["bash", "fish"])
@pytest.mark.parametrize(("line", "wanted", "unwanted"), CASES)
def test_words(shell: str, line: str, wanted: list[str], unwanted: list[str], request: pytest.FixtureRequest) -> None:
    complete: Complete = request.getfixturevalue(shell)
    found = complete(line)
    assert set(wanted) <= set(found) and not set(unwanted) & set(found)


def test_bash_splits_an_option_from_its_value(bash: Complete) -> None:
    assert bash("yaie serve --dtype = bf") == ["bfloat16"]
    assert bash("yaie serve --access-log =") == ["plain", "json", "off"]


def test_file_names_with_spaces(bash: Complete) -> None:
    assert bash("yaie serve --config my") == ["my settings.yaml"]


def test_zsh(place: Path, scripts: dict[str, Path]) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("no zsh here")
    shell = pexpect.spawn(
        "zsh", ["-f", "-i"], encoding="utf-8", env=variables(place), cwd=str(place), timeout=30, dimensions=(50, 160)
    )
    start = f"PS1='%% '; unsetopt beep list_beep; autoload -Uz compinit; compinit -u -D; source {scripts['zsh']}"
    shell.sendline(f"{start}; print LOA''DED")
    shell.expect("LOADED\r\n")
    for typed, shown in (
        ("yaie gen\t", "generate "),
        ("yaie serve --access\t", "yaie serve --access-log="),
        ("yaie serve --dtype bf\t", "--dtype bfloat16 "),
        ("yaie chat ac\t", "acme/small/one "),
        ("yaie generate --config=my\t", "my\\\\ settings.yaml"),
        ("yaie help mod\t", "models "),
        ("yaie serve --num-bl\t", "--num-blocks="),
    ):
        shell.send(typed)
        shell.expect(shown)
        shell.sendcontrol("u")
    shell.close(force=True)


def test_each_option_that_help_shows_is_in_each_script(scripts: dict[str, Path]) -> None:
    texts = {shell: path.read_text() for shell, path in scripts.items()}
    for command in all_commands():
        for name in (name for flag in command.flags for name in flag.long):
            assert name in texts["bash"] and name in texts["zsh"]
            assert f"-l {name.removeprefix('--')}" in texts["fish"]


def test_an_unknown_shell_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", "zhs"]) == 2
    assert "did you mean 'zsh'?" in capsys.readouterr().err
    assert cli.main(["completion"]) == 2

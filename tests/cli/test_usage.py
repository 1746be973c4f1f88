"""The command line before an engine is loaded: help, exit codes, one-line errors."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from yaie_magic import cli
from yaie_magic.commands import generate


@pytest.fixture(autouse=True)
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here may get as far as loading a model; variables of the person who runs the tests do not count."""
    for name in [name for name in os.environ if name.startswith("YAIE_")]:
        monkeypatch.delenv(name)

    def load(config: object) -> None:
        raise AssertionError("a model would have been loaded")

    monkeypatch.setattr("yaie_magic.loading.load", load)


def run(*words: str) -> int:
    return cli.main(words)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == "yaie 0.1.0\n"


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in cli.COMMANDS)


def test_every_command_has_a_module_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    for name in cli.COMMANDS:
        with pytest.raises(SystemExit) as ended:
            run(name, "--help")
        assert ended.value.code == 0
        assert capsys.readouterr().out.startswith(f"usage: yaie {name}")


def test_no_command_shows_help_and_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 2
    assert "usage: yaie" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["genrate"], "unknown command 'genrate'; did you mean generate?"),
        (["--vresion"], "unknown option '--vresion'; did you mean --version?"),
        (["zzz"], "unknown command 'zzz'; there are generate"),
        (["generate", "--temprature", "0", "x"], "did you mean '--temperature'?"),
        (["generate", "--temperature", "-1", "x"], "temperature=-1.0"),
        (["generate", "--temperature", "warm", "x"], "temperature='warm'"),
        (["generate", "--max-tokens", "0", "x"], "max_tokens=0"),
        (["generate", "--n", "1000", "x"], "n=1000"),
        (["generate", "--top-p", "1.5", "x"], "top_p=1.5"),
        (["generate", "--logit-bias", "5", "x"], "write ID=VALUE"),
        (["generate", "--dtype", "float8", "x"], "float32"),
        (["generate", "--block-size", "0", "x"], "block_size=0"),
        (["generate", "--preemption", "swap", "x"], "give num_cpu_blocks"),
        (["generate", "--config", "/no/such/file.yaml", "x"], "No such file"),
        (["generate", "--max-tokens"], "expected one argument"),
        (["generate", ""], "the prompt is empty"),
        (["generate", "a", ""], "prompt 2 is empty"),
        (["generate", "--system", "short", "x"], "--system is for --chat"),
        (["models", "--jsn"], "did you mean '--json'?"),
        (["doctor", "now"], "unexpected word 'now'"),
    ],
)
def test_usage_error_is_one_line_and_exit_2(words: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("yaie: ") and shown.err.count("\n") == 1
    assert reason in shown.err


def test_tensor_parallel_names_the_way(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("generate", "--tensor-parallel-size", "2", "x") == 2
    assert "start one engine per device" in capsys.readouterr().err


def test_old_name_is_accepted_and_the_new_one_said(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yaie_magic.loading.load", lambda config: pytest.skip(str(config.max_num_seqs)))
    with pytest.raises(pytest.skip.Exception, match="3"):
        run("generate", "--max-batch-size", "3", "x")
    assert capsys.readouterr().err == "yaie: max_batch_size is now called max_num_seqs\n"


def test_prompt_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("two\nlines\n"))
    assert generate.read_prompts([]) == ["two\nlines"]


def test_prompt_may_hold_anything_a_shell_passes_on() -> None:
    assert generate.read_prompts(["{'a': 1}", "$HOME;"]) == ["{'a': 1}", "$HOME;"]


def test_interrupt_is_exit_130(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def load(config: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("yaie_magic.loading.load", load)
    assert run("generate", "x") == 130
    assert capsys.readouterr().err == "yaie: interrupted\n"


def test_unexpected_error_is_one_line_and_exit_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(config: object) -> None:
        raise RuntimeError("first line\nsecond \x1b[31mline")

    monkeypatch.setattr("yaie_magic.loading.load", load)
    assert run("generate", "x") == 1
    assert capsys.readouterr().err == "yaie: RuntimeError: first line second \\x1b[31mline\n"


def test_version_loads_nothing_heavy(tmp_path: Path) -> None:
    code = "import sys; from yaie_magic.cli import main; main(['--version']); print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "'torch'" not in done.stdout and "'pydantic'" not in done.stdout


def test_the_end_of_the_process_searches_no_objects(tmp_path: Path) -> None:
    code = "import atexit, gc; from yaie_magic.cli import main; main(['--version']); atexit._run_exitfuncs(); "
    code += "print(gc.get_freeze_count() > 0)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "True"

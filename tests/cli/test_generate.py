"""`yaie generate`, `yaie models` and `yaie doctor` on the bundled model."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from yaie_magic.cli import main

PROMPT = "Once upon a time there was a"
GREEDY = ("--temperature", "0", "--max-tokens", "12")

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


Yaie = Callable[..., Done]


def environment() -> dict[str, str]:
    """Ours without settings of the person who runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("YAIE_")}
    return {**kept, "HF_HUB_OFFLINE": "1"}


@pytest.fixture
def yaie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Yaie:
    """Runs the command in this process, in an empty folder."""
    for name in [name for name in os.environ if name.startswith("YAIE_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)

    def run(*words: str, stdin: str = "") -> Done:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        code = main(words)
        shown = capsys.readouterr()
        return Done(code, shown.out, shown.err)

    return run


@pytest.fixture
def greedy_text(yaie: Yaie) -> str:
    """What the model says to PROMPT, by the command line itself."""
    done = yaie("generate", PROMPT, *GREEDY)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.removesuffix("\n")


def test_text_of_one_prompt_is_what_the_engine_says(greedy_text: str) -> None:
    from yaie_engine import LLM, SamplingParams

    with LLM("tiny", num_blocks=64) as llm:
        params = SamplingParams(temperature=0, max_tokens=12)
        assert llm.generate(PROMPT, params, use_tqdm=False)[0].outputs[0].text == greedy_text


def test_prompt_from_standard_input(greedy_text: str, yaie: Yaie) -> None:
    done = yaie("generate", *GREEDY, stdin=f"{PROMPT}\n")
    assert (done.returncode, done.stdout) == (0, f"{greedy_text}\n")


def test_several_prompts_in_their_order(greedy_text: str, yaie: Yaie) -> None:
    done = yaie("generate", PROMPT, "Count from one to five.", PROMPT, *GREEDY)
    parts = done.stdout.removesuffix("\n").split("\n---\n")
    assert len(parts) == 3
    assert parts[0] == parts[2] == greedy_text


def test_json_lines_hold_the_fields_of_request_output(greedy_text: str, yaie: Yaie) -> None:
    done = yaie("generate", PROMPT, PROMPT, "--json", *GREEDY)
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    assert first["outputs"][0]["text"] == second["outputs"][0]["text"] == greedy_text
    assert first["prompt"] == PROMPT and first["finished"] is True and first["error"] is None
    assert {"request_id", "prompt_token_ids", "num_cached_tokens", "metrics"} <= set(first)


def test_several_choices(yaie: Yaie) -> None:
    done = yaie("generate", PROMPT, "--n", "3", "--seed", "1", "--max-tokens", "6")
    assert done.stdout.count("\n---\n") == 2


def test_chat_with_a_system_prompt(yaie: Yaie) -> None:
    done = yaie("generate", "--chat", "-s", "Be brief.", "What is the capital of France?", *GREEDY)
    assert done.returncode == 0 and done.stdout.strip()


def test_configuration_file_reaches_the_engine(yaie: Yaie, tmp_path: Path) -> None:
    (tmp_path / "engine.yaml").write_text("memory:\n  num_blocks: 4\n  block_size: 4\n")
    done = yaie("generate", PROMPT, "--config", "engine.yaml", "--max-tokens", "60")
    assert done.returncode == 2
    assert done.stderr.startswith("yaie: ") and "4" in done.stderr and done.stderr.count("\n") == 1


def test_prompt_over_the_context_is_one_line(yaie: Yaie) -> None:
    done = yaie("generate", "word " * 3000, "--max-model-len", "128")
    assert done.returncode == 2
    assert "128" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(("name", "part"), [("./nowhere", "nowhere"), ("tinny", "'tiny'"), ("./no.gguf", "no.gguf")])
def test_an_unknown_model_is_one_line_and_exit_2(
    yaie: Yaie, monkeypatch: pytest.MonkeyPatch, name: str, part: str
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    done = yaie("generate", "x", "--model", name)
    assert done.returncode == 2
    assert done.stderr.startswith("yaie: ") and part in done.stderr and done.stderr.count("\n") == 1


def test_a_model_that_cannot_be_served_is_exit_1(yaie: Yaie, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    done = yaie("generate", "x", "--model", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith("yaie: ") and done.stderr.count("\n") == 1


def test_verbose_shows_the_settings_in_one_line(yaie: Yaie) -> None:
    done = yaie("generate", "x", "--verbose", "--num-blocks", "32", "--max-tokens", "2")
    assert done.returncode == 0 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("yaie: configuration: ") and '"num_blocks": 32' in done.stderr


def test_sampling_parameters_from_a_file_are_defaults_of_the_run(yaie: Yaie, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("num_blocks: 32\nsampling:\n  max_tokens: 3\n  temperature: 0\n")
    done = yaie("generate", PROMPT, "--config", "run.yaml", "--json", "--ignore-eos")
    (choice,) = json.loads(done.stdout)["outputs"]
    assert len(choice["token_ids"]) == 3


def hear_interrupts() -> None:
    """A test run in the background of a shell ignores SIGINT, and so would every process it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_interrupt_keeps_the_text_and_exits_130(tmp_path: Path) -> None:
    words = [sys.executable, "-u", "-m", "yaie_magic.cli", "generate", PROMPT, "--max-tokens", "2000", "--ignore-eos"]
    with subprocess.Popen(
        words,
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=hear_interrupts,
    ) as running:
        assert running.stdout is not None
        first = running.stdout.read(1)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    assert running.returncode == 130
    assert first and out.endswith("\n")
    assert err == "yaie: interrupted\n"


def test_closed_pipe_is_quiet(tmp_path: Path) -> None:
    command = f'"{sys.executable}" -m yaie_magic.cli generate "{PROMPT}" --max-tokens 200 --ignore-eos | head -c 5'
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert len(done.stdout) == 5 and done.stderr == ""


def test_models_lists_the_bundled_one(yaie: Yaie) -> None:
    (tiny,) = (entry for entry in json.loads(yaie("models", "--json").stdout) if entry["name"] == "tiny")
    assert tiny["source"] == "bundled" and tiny["size_bytes"] > 1_000_000
    assert yaie("models").stdout.startswith("tiny ")


def test_doctor_finds_the_engine_usable(yaie: Yaie) -> None:
    report = json.loads(yaie("doctor", "--json").stdout)
    verdicts = {check["name"]: check["verdict"] for check in report["checks"]}
    assert report["usable"] is True and "fail" not in verdicts.values()
    assert report["bundled_model"]["intact"] is True
    assert report["generation"]["text"]

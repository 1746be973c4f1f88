"""A load that fails: the running engine and its chats stay, or come back with one command."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fakes
import pytest
from shell_run import Run

from yaie_engine import EngineConfig, ModelLoadError, SamplingParams, YaieError
from yaie_engine.stages import READING_WEIGHTS
from yaie_magic.session import Session, session


def early(config: EngineConfig, progress: Any) -> Any:
    progress("asking the Hub", None)
    raise ModelLoadError("no such folder; give a path or a Hub id")


def late(config: EngineConfig, progress: Any) -> Any:
    progress(READING_WEIGHTS, None)
    raise ModelLoadError("the file is damaged")


def pressed(config: EngineConfig, progress: Any) -> Any:
    progress(READING_WEIGHTS, None)
    os.kill(os.getpid(), signal.SIGINT)
    while True:  # until the interrupt has come through
        progress("probing", None)


def silent(config: EngineConfig, progress: Any) -> Any:
    """A builder that names no stages."""
    return fakes.FakeLLM(config.model, config)


@pytest.mark.parametrize("command", ["%yaie load nowhere", "%yaie restart", "%yaie load tiny --block-size 8"])
def test_an_early_failure_harms_nothing(run: Run, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    run("%%chat -m 1\nhello")
    before = session.get()
    monkeypatch.setattr(session, "build", early)
    run(command)
    assert isinstance(run.error, ModelLoadError)
    assert "no such folder" in run.out and "tiny goes on" in run.out and "Traceback" not in run.out
    assert session.get() is before and before.llm.state == "ready"
    assert len(run("%%chat -m 1\nagain").result.prompt) > 20  # the first turn is still there


@pytest.mark.parametrize(("build", "reason"), [(late, "the file is damaged"), (pressed, "interrupted")])
@pytest.mark.parametrize("command", ["%yaie load other", "%yaie restart"])
def test_after_a_late_failure_restart_brings_the_old_engine_back(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: str, build: Any, reason: str
) -> None:
    first = run("%%chat -m 1\nhello").result
    monkeypatch.setattr(session, "build", build)
    run(command)
    assert run.error is not None and "%yaie restart loads it again" in run.out
    for _ in range(2):  # a restart that fails can be repeated
        assert reason in run("%yaie status").out and "%yaie restart" in run.out
        assert run("%%generate\nhi").err.startswith("UsageError") and "%yaie restart" in run.err
        run("%yaie restart")
        assert run.error is not None
    monkeypatch.setattr(session, "build", fakes.build)
    run("%yaie restart")
    assert session.get().model == "tiny" and not session.lost
    assert run("%%chat -m 1\nagain").result.prompt[: len(first.prompt)] == list(first.prompt)


def test_a_lost_engine_gives_way_to_a_load_and_can_be_forgotten(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "build", late)
    run("%yaie load other")
    run("%yaie unload")
    assert "forgotten" in run.out and session.current is None and not session.lost
    monkeypatch.setattr(session, "build", silent)
    run("%yaie load")
    monkeypatch.setattr(session, "build", late)
    run("%yaie restart")
    monkeypatch.setattr(session, "build", silent)
    run("%yaie load tiny --block-size 8")
    assert not session.lost and run("%%generate -m 1\nhi").result.text == "w0 "


def test_the_new_engine_of_a_builder_without_stages_takes_the_place_of_the_old(run: Run) -> None:
    before = session.get().llm
    session.build = silent
    run("%yaie load tiny --block-size 8")
    assert before.state == "closed" and session.get().llm.state == "ready" and len(session.engines) == 1


@pytest.fixture(scope="module")
def real() -> Iterator[Session]:
    """A session with the real engine."""
    found = Session()
    found.load(EngineConfig(num_blocks=64))
    yield found
    found.close_all()


def pickled(folder: Path) -> str:
    (folder / "config.json").write_text('{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}')
    (folder / "pytorch_model.bin").write_bytes(b"x")
    return str(folder)


def headless(folder: Path) -> str:
    (folder / "config.json").write_text('{"model_type": "vit", "architectures": ["ViTModel"]}')
    return str(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"model": "tinny"},
        {"model": "./no/such/folder"},
        {"model": "./missing.gguf"},
        {"model": pickled},
        {"model": headless},
        {"device": "cuda:99"},
        {"max_model_len": 10**6},
        {"tokenizer": "./no/such/folder"},
    ],
)
def test_case_04_a_bad_load_leaves_the_real_engine_unharmed(
    real: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    given = {name: value(tmp_path) if callable(value) else value for name, value in settings.items()}
    before = real.get()
    with pytest.raises(YaieError) as caught:
        real.load(EngineConfig(**given))
    assert "\n" not in str(caught.value)
    assert real.get() is before and not real.lost
    assert before.llm.generate("hi", SamplingParams(max_tokens=3), use_tqdm=False)[0].error is None
    before.llm.check()

"""A detached engine in real kernels: one is killed, another attaches and finds weights and KV cache as they were."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.notebook.kernel import Kernel
from yaie_magic import cli
from yaie_magic.detached import launch, registry

pytestmark = pytest.mark.xdist_group("detached_notebook")  # one story, told by one process

PROMPT = "Once upon a time there was a cat who lived in a small house near the sea and"
GENERATE = f"%%generate -m 8 -t 0\n{PROMPT}"
LOAD = "%yaie load tiny --detached --as warm --num-blocks 128"


def started(runtime: Path) -> Kernel:
    kernel = Kernel(XDG_RUNTIME_DIR=str(runtime), YAIE_NOTEBOOK="")
    kernel.run("%load_ext yaie_magic")
    return kernel


@dataclass
class Survivor:
    """What the killed kernel saw, and the kernel that attached after it."""

    kernel: Kernel
    text: str
    said: str
    cached: int
    stages: list[str]
    pid: int


@pytest.fixture(scope="module")
def survivor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Survivor]:
    runtime = tmp_path_factory.mktemp("runtime")
    first = started(runtime)
    patch = pytest.MonkeyPatch()
    patch.setenv("XDG_RUNTIME_DIR", str(runtime))
    second = None
    try:
        loaded = first.run(LOAD, timeout=120)
        assert loaded.error is None, loaded.error
        answered = first.run(GENERATE)
        assert answered.error is None, answered.error
        assert first.value("'torch' in __import__('sys').modules") is False  # the model is not in this process
        text, cached = first.value("(str(_yaie), _yaie.usage.cached)")
        kernel_pid = first.value("__import__('os').getpid()")
        os.kill(kernel_pid, signal.SIGKILL)
        psutil.Process(kernel_pid).wait(30)
        second = started(runtime)
        found = registry.look().engines["warm"].record
        yield Survivor(second, text, loaded.text, cached, loaded.shown, found.pid)
    finally:
        first.close()
        if second is not None:
            second.close()
        for each in registry.look().engines.values():
            launch.end(each.record)
        patch.undo()


def test_killed_kernel_attached_anew_same_prompt_from_the_cache(survivor: Survivor) -> None:
    assert survivor.cached == 0 and f"detached in process {survivor.pid}" in survivor.said
    assert any(stage.startswith("loading: ") for stage in survivor.stages)
    kernel = survivor.kernel
    began = time.monotonic()
    attached = kernel.run("%yaie attach")
    assert attached.error is None, attached.error
    assert "tiny attached as warm" in attached.text and "of them cached" in attached.text
    assert time.monotonic() - began < 60
    assert kernel.run(GENERATE).error is None
    text, cached, prompt = kernel.value("(str(_yaie), _yaie.usage.cached, _yaie.usage.prompt)")
    assert text == survivor.text and cached == prompt - 1 > 0
    assert kernel.value("'torch' in __import__('sys').modules") is False


def test_the_views_show_the_engine(survivor: Survivor) -> None:
    kernel = survivor.kernel
    kernel.run("%yaie attach")
    kernel.run(GENERATE)
    status = kernel.run("%yaie status").text
    assert f"warm: tiny, detached in process {survivor.pid}, since 2" in status and "current" in status
    assert "Once upon a time" in kernel.run("%yaie tree --format text").text
    for look in ("%yaie blocks --format text", "%yaie timeline --format text", "%yaie history", "%yaie explain"):
        assert kernel.run(look).error is None, look


def test_loading_it_again_attaches_and_other_settings_are_refused(survivor: Survivor) -> None:
    kernel = survivor.kernel
    kernel.run("%yaie attach")
    assert "attached already" in kernel.run(LOAD).text
    other = kernel.run("%yaie load tiny --detached --as warm --num-blocks 64")
    assert "runs already with other settings" in other.stderr
    assert "another" in kernel.run(f"{LOAD} --idle-timeout 7").stderr  # that is a setting, too
    assert registry.look().engines["warm"].record.pid == survivor.pid


def test_a_second_kernel_and_the_shell_see_the_same_engine(
    survivor: Survivor, capsys: pytest.CaptureFixture[str]
) -> None:
    survivor.kernel.run("%yaie attach")
    third = started(Path(os.environ["XDG_RUNTIME_DIR"]))
    try:
        assert third.run(LOAD).error is None  # with the same settings: attached, not loaded
        assert third.run(GENERATE).error is None
        assert third.value("_yaie.usage.cached") > 0
        assert survivor.kernel.run(GENERATE).error is None
    finally:
        third.close()
    assert cli.main(["stop", "--list"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[:4] == ["name", "model", "state", "process"]
    assert row.split()[:4] == ["warm", "tiny", "ready", str(survivor.pid)]
    assert cli.main(["stop", "--list", "--json"]) == 0
    shown = capsys.readouterr().out
    (entry,) = json.loads(shown)
    assert entry["pid"] == survivor.pid and entry["idle_timeout_s"] == 3600 and entry["state"] == "ready"
    assert registry.look().engines["warm"].record.key not in shown


def test_the_key_is_in_no_output_and_no_variable(survivor: Survivor) -> None:
    kernel = survivor.kernel
    kernel.run("%yaie attach")
    key = registry.look().engines["warm"].record.key
    shown = "".join(cell.text + cell.stderr for cell in kernel.cells.values())
    assert key not in shown and key not in kernel.run("%history -n").text
    assert key not in kernel.value("repr(__import__('yaie_magic.session').session.session.engines)")


def test_the_key_is_in_no_traceback(survivor: Survivor) -> None:
    """Not even when a bug shows one with the values of all variables."""
    kernel = survivor.kernel
    key = registry.look().engines["warm"].record.key
    kernel.run("__import__('yaie_magic.session').session.session.close_all()")
    kernel.run("%xmode Verbose\nimport yaie_magic.remote.probe as probe\nchoose, probe.choose = probe.choose, None")
    failed = kernel.run("%yaie attach").error
    kernel.run("%xmode Context\nprobe.choose = choose")
    assert failed is not None and failed["ename"] == "TypeError"
    trace = "\n".join(failed["traceback"])
    assert "open_at" in trace and "Key(***)" in trace and key not in trace


def test_yaie_stop_ends_it_and_the_kernel_is_told(survivor: Survivor) -> None:
    record = registry.look().engines["warm"].record
    kernel = survivor.kernel
    kernel.run("%yaie attach")
    assert cli.main(["stop", "warm"]) == 0  # behind the back of the kernel
    assert not record.runs and not registry.look().engines
    refused = kernel.run(GENERATE).error
    assert refused is not None and refused["ename"] == "EngineDeadError"
    assert refused["evalue"] == "the detached engine warm has ended; %yaie restart warm starts it anew"
    gone = kernel.run("%yaie status").text
    assert f"tiny, detached in process {survivor.pid}, shows nothing: {refused['evalue']}" in gone
    unseen = kernel.run("%yaie tree --format text").error
    assert unseen is not None and unseen["evalue"] == refused["evalue"]
    assert "no detached engine runs" in kernel.run("%yaie attach").stderr


@pytest.mark.full
def test_restart_starts_it_anew(survivor: Survivor) -> None:
    """After the test before: the engine has gone."""
    kernel = survivor.kernel
    again = kernel.run("%yaie restart", timeout=120)
    assert again.error is None and "loaded as warm" in again.text, again
    assert kernel.run(GENERATE).error is None and kernel.value("str(_yaie)") == survivor.text
    assert kernel.run("%yaie unload").text.startswith("tiny ended with its process")
    assert not registry.look().engines

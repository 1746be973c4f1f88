"""Models from the Hub: the real client against a hub on loopback, and every failure as one line."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from huggingface_hub import errors

from tests.loading.fake_hub import COMMIT, serving
from tests.loading.folders import edit, plant_canaries, sound_folder
from yaie_engine.errors import ModelLoadError
from yaie_engine.models import hub, hub_calls

pytestmark = pytest.mark.filterwarnings("ignore")
ROOT = Path(__file__).resolve().parents[2]
LOAD = """
import sys
from yaie_engine.config import EngineConfig
from yaie_engine.errors import ModelLoadError
from yaie_engine.loader import load_model
shares = []
try:
    loaded = load_model(EngineConfig(model=sys.argv[1], dtype="float32"),
                        progress=lambda what, share: shares.append((what, share)))
    print("loaded", loaded.name, loaded.tier, len(loaded.hf_tokenizer))
    print("share", max((share for _, share in shares if share is not None), default=None))
    print("offline" if any("cannot be reached" in what for what, _ in shares) else "online")
except ModelLoadError as error:
    print("error", error)
"""


def load(name: str, url: str, home: Path) -> str:
    """Load in a process of its own, whose hub and cache are these."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGINGFACE"))}
    environment |= {
        "HF_ENDPOINT": url,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    command = [sys.executable, "-c", LOAD, name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_download_cache_and_offline(tmp_path: Path) -> None:
    folder = sound_folder(tmp_path / "served")
    plant_canaries(folder, tmp_path / "executed")
    (folder / "pytorch_model.bin").write_bytes(b"never asked for")
    with serving(folder, "someone/tiny-llama") as running:
        running.fail_next = 2
        text = load("someone/tiny-llama", running.url, tmp_path / "home")
        assert "loaded someone/tiny-llama flat 96" in text
        assert "share 1.0" in text and "online" in text
        asked = {path.rpartition("/")[2] for path in running.served}
        assert {"config.json", "model.safetensors", "tokenizer.json"} <= asked
        assert not any(name.endswith((".py", ".bin")) for name in asked)
        assert "did you mean 'someone/tiny-llama'" in load("someone/tiny-lama", running.url, tmp_path / "home")
        url = running.url
    text = load("someone/tiny-llama", url, tmp_path / "home")
    assert "loaded someone/tiny-llama flat 96" in text and "offline" in text
    assert "the Hub cannot be reached" in load("someone/other", url, tmp_path / "home")
    assert not (tmp_path / "executed").exists()


# ---- logic, without a process of its own


@pytest.fixture
def remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A hub in memory: `files` with their sizes, `fetched` in order, `error` raised by the next calls."""
    state = SimpleNamespace(folder=sound_folder(tmp_path / "remote"), fetched=[], failures=[], sizes={})

    def fail() -> None:
        if state.failures:
            raise state.failures.pop(0)

    def model_info(_self: Any, repo_id: str, **_: Any) -> Any:
        fail()
        names = {path.name: path.stat().st_size for path in state.folder.iterdir()} | state.sizes
        return SimpleNamespace(
            sha=COMMIT, siblings=[SimpleNamespace(rfilename=name, size=size) for name, size in names.items()]
        )

    def download(repo_id: str, name: str, **_: Any) -> str:
        fail()
        state.fetched.append(name)
        target = tmp_path / "snapshot" / name
        target.parent.mkdir(exist_ok=True)
        target.write_bytes((state.folder / name).read_bytes())
        return str(target)

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", model_info)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_, **__: None)
    monkeypatch.setattr(hub_calls, "FIRST_WAIT", 0.0)
    return state


def fetch(**settings: Any) -> Path:
    return hub.hub_folder("some/model", None, lambda what, share: None, **settings)


def http_error(kind: Callable[..., Exception], status: int = 404) -> Exception:
    response = httpx.Response(status, request=httpx.Request("GET", "http://hub"))
    return kind("failed", response=response)


def test_small_files_come_first_and_are_screened_before_any_weight(remote: SimpleNamespace) -> None:
    edit(remote.folder, auto_map={"AutoConfig": "evil.Evil"})
    with pytest.raises(ModelLoadError, match="code of its own"):
        fetch()
    assert "config.json" in remote.fetched and "model.safetensors" not in remote.fetched


def test_only_the_tokenizer(remote: SimpleNamespace) -> None:
    fetch(weights=False)
    assert set(remote.fetched) <= set(hub.TOKENIZER)


def test_passing_failures_are_tried_again(remote: SimpleNamespace) -> None:
    remote.failures = [http_error(errors.HfHubHTTPError, 503), httpx.ConnectError("no route")]
    assert (fetch() / "model.safetensors").is_file()


def test_no_network_and_no_cache(remote: SimpleNamespace) -> None:
    remote.failures = [httpx.ConnectError("no route to host")] * 3
    with pytest.raises(ModelLoadError, match=r"not in the cache and the Hub cannot be reached \(no route to host\)"):
        fetch()


FAILURES = {
    "gated": (lambda: http_error(errors.GatedRepoError, 403), "accept its terms on https://huggingface.co/some/model"),
    "revision": (lambda: http_error(errors.RevisionNotFoundError), "has no such revision"),
    "unknown": (lambda: http_error(errors.RepositoryNotFoundError), "no model 'some/model' on the Hub"),
    "disk full": (lambda: OSError(errno.ENOSPC, "No space left on device"), "the disk is full"),
    "read only": (lambda: OSError(errno.EROFS, "Read-only file system"), "the cache cannot be written"),
    "other": (lambda: ValueError("strange\nand long"), "cannot be downloaded: strange$"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_failures_say_what_to_do(name: str, remote: SimpleNamespace) -> None:
    make, expected = FAILURES[name]
    remote.failures = [make()]
    with pytest.raises(ModelLoadError, match=expected) as error:
        fetch()
    assert "\n" not in str(error.value)


def test_too_little_disk(remote: SimpleNamespace) -> None:
    remote.sizes = {"model.safetensors": 2**60}
    with pytest.raises(ModelLoadError, match=r"needs 1073741824\.0 GiB of disk"):
        fetch()
    assert "model.safetensors" not in remote.fetched


@pytest.mark.parametrize(
    ("file", "expected"),
    [("pytorch_model.bin", "only safetensors is read"), ("model-q4.gguf", "GGUF files only"), ("x.txt", "no weights")],
)
def test_repositories_without_safetensors(file: str, expected: str, remote: SimpleNamespace) -> None:
    (remote.folder / "model.safetensors").rename(remote.folder / file)
    with pytest.raises(ModelLoadError, match=expected):
        fetch()
    assert file not in remote.fetched


def test_an_interrupt_ends_a_download_at_once(remote: SimpleNamespace) -> None:
    remote.failures = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        fetch()

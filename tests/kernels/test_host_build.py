"""Builds by the machine's compiler: whose files are loaded, and what a compiler may do. The compilers are scripts."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from yaie_cuda import cache_folder, host_build
from yaie_cuda.errors import KernelCompileError, ToolMissingError
from yaie_cuda.host_build import compile_whole, is_whole, kept, run_tool, version_of

pytestmark = pytest.mark.skipif(os.name != "posix", reason="builds are made on Linux")
COPIES = 'cat > "$2"'
"""A compiler of `-o target` whose object is its source."""


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of kept builds; what goes to the temporary files goes to a folder beside it."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("YAIE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(cache_folder, "_private_folder", cache_folder._private_folder.__wrapped__)
    return tmp_path / "cache" / "cpu"


def script(folder: Path, text: str, name: str = "g++") -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def built(tmp_path: Path, text: str = "code") -> Path:
    """A build by a compiler that copies."""
    command = [script(tmp_path, COPIES)]
    return kept("cpu", "kernels.so", lambda target: compile_whole(command, text, target, "the kernels"))


def plant(target: Path, text: str = "planted") -> None:
    """A whole file, as who knows the format would make it."""
    data = text.encode()
    target.write_bytes(data + host_build.hashlib.sha256(data).digest())


def test_what_is_kept_is_this_users_alone(cache: Path, tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        path = built(tmp_path)
    finally:
        os.umask(before)
    assert path == cache / "kernels.so" and path.read_bytes().startswith(b"code")
    assert stat.S_IMODE(path.stat().st_mode) == 0o700 and not cache.stat().st_mode & 0o022
    assert built(tmp_path, "changed").read_bytes().startswith(b"code"), "it was built again"


@pytest.mark.parametrize("trap", ["a file that others may write", "another's file", "a file cut short"])
def test_a_planted_file_is_replaced_and_never_loaded(cache: Path, tmp_path: Path, trap: str) -> None:
    path = built(tmp_path)
    plant(path)
    assert is_whole(path)
    if trap == "a file that others may write":
        path.chmod(0o722)
    elif trap == "a file cut short":
        os.truncate(path, 10)
    else:
        _give_away(path)
    assert not is_whole(path)
    assert built(tmp_path, "ours").read_bytes().startswith(b"ours") and is_whole(path)


@pytest.mark.parametrize("trap", ["another's folder", "a folder in one that all may change"])
def test_nothing_is_taken_from_a_folder_that_is_not_ours(cache: Path, tmp_path: Path, trap: str) -> None:
    cache.mkdir(parents=True)
    plant(cache / "kernels.so")
    if trap == "another's folder":
        _give_away(cache)
    else:
        cache.parent.chmod(0o777)
    path = built(tmp_path, "ours")
    assert path.parent == tmp_path / "tmp" / f"yaie-{os.getuid()}" / "cpu"
    assert path.read_bytes().startswith(b"ours") and built(tmp_path, "again") == path


def test_a_folder_of_ours_that_others_may_write_to_is_closed(cache: Path, tmp_path: Path) -> None:
    cache.mkdir(parents=True)
    cache.chmod(0o777)
    assert built(tmp_path).parent == cache and stat.S_IMODE(cache.stat().st_mode) == 0o700


@pytest.mark.parametrize("problem", ["read-only", "full", "a file"])
def test_where_nothing_can_be_kept_the_temporary_files_serve(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: str
) -> None:
    write, access = host_build.write_whole, os.access
    if problem == "read-only":  # root may write to any mode
        monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != cache and access(path, mode))
    elif problem == "a file":
        cache.parent.mkdir()
        cache.write_text("")

    def full(path: Path, *more: object, **named: object) -> None:
        if problem == "full" and path.parent == cache:
            raise OSError(28, "No space left on device")
        write(path, *more, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(host_build, "write_whole", full)
    path = built(tmp_path)
    assert path.parent.parent.parent == tmp_path / "tmp" and is_whole(path)
    assert problem == "a file" or not list(cache.iterdir())
    if problem != "a file":
        monkeypatch.setattr(host_build, "code_folders", lambda name: [cache])
        with pytest.raises(OSError, match=r"cannot be written to|No space left"):
            built(tmp_path)


def test_what_a_read_only_folder_has_is_used(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = built(tmp_path)
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert built(tmp_path, "never compiled") == path


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("exit 3", "does not work: --version ended with 3"),
        ("sleep 60", "did not end within 0.2 seconds"),
        (None, "cannot be run"),
    ],
)
def test_a_compiler_that_does_not_work_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, why: str
) -> None:
    monkeypatch.setattr(host_build, "VERSION_S", 0.2)
    path = script(tmp_path, text) if text else str(tmp_path / "none")
    with pytest.raises(ToolMissingError, match=why):
        version_of(path)


def test_a_compiler_that_hangs_is_ended_with_all_its_processes(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for a process of its own that keeps its output open, as g++ waits for cc1plus."""
    monkeypatch.setattr(host_build, "COMPILE_S", 0.3)
    command = [script(tmp_path, f"sh -c 'echo $$ > {tmp_path}/pid; sleep 60; true' & wait")]
    started = time.monotonic()
    with pytest.raises(KernelCompileError, match=r"did not end within 0\.3 seconds"):
        kept("cpu", "kernels.so", lambda target: compile_whole(command, "", target, "the kernels"))
    assert time.monotonic() - started < 30
    child = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 10
    while _lives(child):
        assert time.monotonic() < deadline, "the compiler's own process lives on"
        time.sleep(0.01)
    assert not list(cache.iterdir()) and not list((tmp_path / "tmp").glob("yaie-building-*"))


def test_a_log_of_other_bytes_is_read(tmp_path: Path) -> None:
    code, log = run_tool([script(tmp_path, r"printf 'caf\351 \342\200\230x' >&2; exit 1")], "", 10)
    assert code == 1 and log.startswith("caf") and "x" in log


def test_a_compiler_that_makes_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KernelCompileError, match="made nothing"):
        compile_whole([script(tmp_path, "cat > /dev/null")], "", tmp_path / "target", "the kernels")


def test_processes_that_build_at_once_all_have_a_whole_file(cache: Path, tmp_path: Path) -> None:
    slow = script(tmp_path, 'cat > "$2"; sleep 0.2; echo end >> "$2"')
    code = (
        "from yaie_cuda.host_build import compile_whole, is_whole, kept\n"
        f"path = kept('cpu', 'kernels.so', lambda target: compile_whole([{slow!r}], 'code', target, 'kernels'))\n"
        "assert is_whole(path) and path.read_bytes().startswith(b'codeend')"
    )
    both = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    assert [one.wait(60) for one in both] == [0, 0]
    assert [path.name for path in cache.iterdir()] == ["kernels.so"]


def _lives(process: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


def _give_away(path: Path) -> None:
    """Make `path` another user's."""
    if os.getuid() != 0:
        pytest.skip("only root can make a file another's")
    os.chown(path, 12345, 12345)

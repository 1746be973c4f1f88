"""The folder of the store: private, whole files or none, within its limit, whatever the disk does."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from yaie_engine.errors import StoreError
from yaie_engine.store.folder import FileInfo, RecordFolder
from yaie_engine.store.record import DamagedRecordError, Head, head_of

IDENTITY = "cd" * 32


def record(first: int, size: int = 2000) -> tuple[Head, bytes]:
    body = bytes([first]) * size
    return head_of(IDENTITY, 1.0, range(first, first + 32), body), body


def open_at(path: Path, limit: int = 10**6) -> RecordFolder:
    return RecordFolder(str(path), limit)


def test_files_are_private_and_come_back(tmp_path: Path) -> None:
    folder = open_at(tmp_path / "deep" / "store")
    name = folder.write(*record(1))
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder.path / name).stat().st_mode) == 0o600
    assert folder.read(name) == record(1) and folder.head(name) == record(1)[0]
    assert os.listdir(folder.path) == [name]


def test_a_folder_that_is_not_ours_alone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    open_at(tmp_path / "open").close()  # empty: made private
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == 0o700
    (tmp_path / "open" / "note").write_text("mine")
    (tmp_path / "open").chmod(0o750)
    with pytest.raises(StoreError, match="chmod 700"):
        open_at(tmp_path / "open")
    (tmp_path / "link").symlink_to(tmp_path / "open")
    with pytest.raises(StoreError, match="give a folder of your own"):
        open_at(tmp_path / "link")
    with pytest.raises(StoreError):
        open_at(tmp_path / "open" / "note")


def test_links_and_pipes_are_not_followed(tmp_path: Path) -> None:
    folder = open_at(tmp_path / "store")
    name = folder.write(*record(1))
    path = folder.path / name
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert folder.files() == []
    with pytest.raises(OSError):
        folder.read(name)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(DamagedRecordError):
        folder.read(name)
    for wrong in ("../elsewhere", "note", ""):
        with pytest.raises(DamagedRecordError):
            folder.read(wrong)


def test_a_record_under_the_name_of_another_is_refused(tmp_path: Path) -> None:
    folder = open_at(tmp_path / "store")
    one, two = folder.write(*record(1)), folder.write(*record(2))
    os.replace(folder.path / one, folder.path / two)
    with pytest.raises(DamagedRecordError, match="name of another"):
        folder.read(two)


def test_the_least_recently_used_makes_room_and_pinned_ones_stay(tmp_path: Path) -> None:
    size = sum(map(len, (record(1)[1],))) + record(1)[0].num_bytes
    folder = open_at(tmp_path / "store", 3 * size)
    names = [folder.write(*record(i), pinned=i == 1) for i in (1, 2, 3)]
    for age, name in enumerate(names):
        os.utime(folder.path / name, (1000 + age, 1000 + age))
    folder.read(names[1])
    fourth = folder.write(*record(4))
    assert set(os.listdir(folder.path)) == {names[0], names[1], fourth}
    folder.pin(FileInfo(names[1], size, 0.0), True)
    with pytest.raises(StoreError, match="are pinned"):
        folder.write(*record(5, 2 * size))
    assert len(os.listdir(folder.path)) == 3


@pytest.mark.parametrize("call", ["open", "write", "fsync", "rename"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES])
def test_a_failing_disk_leaves_no_part(tmp_path: Path, monkeypatch: Any, call: str, code: int) -> None:
    folder = open_at(tmp_path / "store")
    kept = folder.write(*record(1))
    real = getattr(os, call)

    def fails(*args: Any, **more: Any) -> Any:
        if call == "write" and len(args[1]) > 1500:  # half of it still goes through
            return real(args[0], args[1][:700])
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fails)
        with pytest.raises(OSError):
            folder.write(*record(2))
    assert os.listdir(folder.path) == [kept]
    assert folder.read(folder.write(*record(2))) == record(2)


WRITER = """
import sys
from tests.store.test_folder import open_at, record
from pathlib import Path
folder = open_at(Path(sys.argv[1]), 10**9)
print("go", flush=True)
while True:
    for i in range(1, 200):
        folder.write(*record(i, 300_000))
"""


def test_killed_while_it_writes(tmp_path: Path) -> None:
    """Ten times: whatever is there afterwards is whole, and what was under way is swept by the next who opens."""
    root = Path(__file__).parents[2]
    for turn in range(10):
        child = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path / "store")], stdout=subprocess.PIPE, cwd=root
        )
        assert child.stdout is not None and child.stdout.readline() == b"go\n"
        time.sleep(0.01 * turn)
        child.send_signal(signal.SIGKILL)
        child.wait(30)
        child.stdout.close()
        folder = open_at(tmp_path / "store", 10**9)
        names = os.listdir(folder.path)
        assert not [name for name in names if name.startswith("tmp-")]
        for name in names:
            head, body = folder.read(name)
            assert (head.token_ids, body) == (record(body[0], 300_000)[0].token_ids, record(body[0], 300_000)[1])
        folder.close()


def test_what_another_process_writes_is_not_swept(tmp_path: Path) -> None:
    import fcntl

    one = open_at(tmp_path / "store")
    with (one.path / "tmp-1234").open("w") as busy:
        fcntl.flock(busy, fcntl.LOCK_EX)
        open_at(tmp_path / "store").close()
        assert os.listdir(one.path) == ["tmp-1234"]
    open_at(tmp_path / "store").close()
    assert os.listdir(one.path) == []


def test_files_of_the_user_are_not_counted_and_not_removed(tmp_path: Path) -> None:
    folder = open_at(tmp_path / "store", 5000)
    (folder.path / "thesis.txt").write_bytes(b"x" * 10_000)
    for first in range(5):
        folder.write(*record(first))
    assert (folder.path / "thesis.txt").exists() and 1 <= len(folder.files()) < 5


def test_what_another_process_pinned_stays_pinned(tmp_path: Path) -> None:
    folder, other = open_at(tmp_path / "store"), open_at(tmp_path / "store")
    pinned = other.write(*record(1), pinned=True)
    assert folder.write(*record(1)) == pinned and [file.name for file in folder.files()] == [pinned]

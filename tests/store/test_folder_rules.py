"""The folder of the store, call by call: what each leaves on the disk, opens, tells and never touches."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from tests.store.test_folder import IDENTITY, open_at, record
from yaie_engine.errors import StoreError
from yaie_engine.store import folder as module
from yaie_engine.store.folder import FileInfo, RecordFolder
from yaie_engine.store.record import DamagedRecordError, content_name

SIZE = len(record(1)[1]) + record(1)[0].num_bytes


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def file_of(folder: RecordFolder, name: str) -> FileInfo:
    return next(file for file in folder.files() if file.name == name)


# ---- opening


def test_it_is_made_with_its_parents_for_its_owner_alone(tmp_path: Path, monkeypatch: Any) -> None:
    """From its first moment: nothing has to be taken back."""
    monkeypatch.delattr(os, "fchmod")
    old = os.umask(0)
    try:
        folder = open_at(tmp_path / "a" / "b" / "store")
    finally:
        os.umask(old)
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    name = folder.write(*record(1))
    assert name == content_name(IDENTITY, record(1)[0].token_ids) + ".kv" and len(name) == 16 + 1 + 32 + 3
    assert stat.S_IMODE((folder.path / name).stat().st_mode) == 0o600


def test_a_link_is_named_as_such_and_other_reasons_by_theirs(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").write_text("")
    before = descriptors()
    with pytest.raises(StoreError, match=r"a link is not followed; give|Not a directory; give"):
        open_at(tmp_path / "link")
    with pytest.raises(StoreError, match="Not a directory; give a folder of your own"):
        open_at(tmp_path / "file")
    assert descriptors() == before


def test_where_the_system_says_loop_it_says_link(tmp_path: Path, monkeypatch: Any) -> None:
    def refuses(*args: Any, **more: Any) -> Any:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))

    monkeypatch.setattr(os, "open", refuses)
    with pytest.raises(StoreError, match="store': a link is not followed; give"):
        open_at(tmp_path / "store")


def test_a_refused_folder_leaves_nothing_open(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "open" / "note").write_text("mine")
    before = descriptors()
    with pytest.raises(StoreError, match="others may read or write"):
        open_at(tmp_path / "open")
    monkeypatch.setattr(os, "getuid", lambda: os.stat(tmp_path).st_uid + 1)
    with pytest.raises(StoreError, match="belongs to another user"):
        open_at(tmp_path / "foreign")
    monkeypatch.delattr(os, "getuid")
    open_at(tmp_path / "open").close()  # where there are no users there is nothing to check
    assert descriptors() == before


def test_a_folder_that_cannot_be_made_private_is_refused_and_closed(tmp_path: Path, monkeypatch: Any) -> None:
    def refuses(*args: Any) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    (tmp_path / "open").mkdir(mode=0o755)
    monkeypatch.setattr(os, "fchmod", refuses)
    before = descriptors()
    with pytest.raises(StoreError, match="Operation not permitted; give"):
        open_at(tmp_path / "open")
    assert descriptors() == before


def test_closed_it_holds_nothing_and_closing_again_does_nothing(tmp_path: Path) -> None:
    before = descriptors()
    folder = open_at(tmp_path / "store")
    assert len(descriptors()) == len(before) + 1 and folder.changed > 0
    folder.close()
    folder.close()
    assert descriptors() == before and folder.changed == -1
    assert folder.files() == [] and folder.remove(["0" * 16 + "-" + "0" * 32 + ".kv"]) == 0


def test_a_lone_descriptor_of_number_0_is_closed_too(tmp_path: Path, monkeypatch: Any) -> None:
    closed: list[int] = []
    folder = open_at(tmp_path / "store")
    folder.close()
    monkeypatch.setattr(module.os, "close", closed.append)
    folder._fd = 0
    folder.close()
    assert closed == [0]


def test_no_call_leaves_a_descriptor_open(tmp_path: Path) -> None:
    folder = open_at(tmp_path / "store")
    before = descriptors()
    name = folder.write(*record(1))
    folder.read(name), folder.head(name), folder.files()
    (folder.path / name).unlink()
    os.mkfifo(folder.path / name)
    with pytest.raises(DamagedRecordError, match="no file"):
        folder.read(name)
    (folder.path / "tmp-orphan").write_text("x")
    open_at(folder.path).close()
    assert descriptors() == before and os.listdir(folder.path) == [name]


# ---- reading


def test_it_knows_when_something_came_or_went(tmp_path: Path) -> None:
    folder = open_at(tmp_path / "store")
    os.utime(folder.path, (1000, 1000))
    assert folder.changed == 1000 * 10**9
    folder.write(*record(1))
    assert folder.changed != 1000 * 10**9


def test_to_read_is_to_use_and_a_head_is_no_use(tmp_path: Path) -> None:
    folder = open_at(tmp_path / "store")
    names = [folder.write(*record(i)) for i in (1, 2)]
    for age, name in enumerate(names):
        os.utime(folder.path / name, (1000 + age, 1000 + age))
    folder.head(names[0])
    assert [file.name for file in folder.files()] == names
    folder.read(names[0])
    assert [file.name for file in folder.files()] == names[::-1]
    assert [file.num_bytes for file in folder.files()] == [SIZE, SIZE]


def test_a_changed_body_and_a_cut_or_longer_file_are_damage(tmp_path: Path) -> None:
    folder = open_at(tmp_path / "store")
    name = folder.write(*record(1))
    path, whole = folder.path / name, (folder.path / name).read_bytes()
    for wrong, why in (
        (whole[:-1] + b"\0", "checksum"),
        (whole[:-1], "bytes instead"),
        (whole + b"\0", "bytes instead"),
    ):
        path.write_bytes(wrong)
        with pytest.raises(DamagedRecordError, match=why):
            folder.read(name)
    with pytest.raises(DamagedRecordError, match="bytes instead"):
        folder.head(name)


class ShortFile(io.FileIO):
    """Gives five bytes at most."""

    def readinto(self, buffer: Any) -> int:
        part = self.read(min(5, len(buffer)))
        buffer[: len(part)] = part
        return len(part)


def test_short_reads_and_writes_are_gone_on_with(tmp_path: Path, monkeypatch: Any) -> None:
    folder = open_at(tmp_path / "store")
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data[:7])))
    assert folder.read(folder.write(*record(1))) == record(1)
    (folder.path / "bytes").write_bytes(b"abcdefghijklmnop")
    with ShortFile(folder.path / "bytes") as file:
        assert module._read_all(file, 1) == b"a" and module._read_all(file, 0) == b""
        assert module._read_all(file, 12) == b"bcdefghijklm" and module._read_all(file, 9) == b"nop"


class Slices(io.FileIO):
    """Notes how much is asked for each time, and gives five bytes at most."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.asked: list[int] = []

    def readinto(self, buffer: Any) -> int:
        self.asked.append(len(buffer))
        part = self.read(min(5, len(buffer)))
        buffer[: len(part)] = part
        return len(part)


class SlowSum:
    """A sum of which the first piece takes longest."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.begun = 0

    def update(self, piece: Any) -> None:
        self.begun += 1
        time.sleep(0.05 * (self.begun == 1))
        self.pieces.append(bytes(piece))

    def digest(self) -> bytes:
        return b"|".join(self.pieces)


def test_a_body_is_read_and_summed_slice_by_slice_in_order(tmp_path: Path, monkeypatch: Any) -> None:
    assert 2**20 <= module.SLICE <= 2**24
    monkeypatch.setattr(module, "SLICE", 8)
    (tmp_path / "bytes").write_bytes(b"abcdefghijklmnop")
    for count, asked in ((12, [8, 7, 2]), (16, [8, 8, 6, 1]), (20, [8, 8, 8, 5, 4])):
        with Slices(tmp_path / "bytes") as file:
            view, found = module._read_and_sum(file, count)
        right = b"abcdefghijklmnop"[:count]
        assert bytes(view) == right and found == hashlib.sha256(right).digest()
        assert file.asked == asked
    monkeypatch.setattr(module.hashlib, "sha256", SlowSum)
    with Slices(tmp_path / "bytes") as file:
        assert module._read_and_sum(file, 12)[1] == b"abcde|fghij|kl"


# ---- writing


def test_a_record_is_locked_while_it_is_written_and_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: Any
) -> None:
    import fcntl

    folder, done = open_at(tmp_path / "store"), list[str]()
    for call in ("write", "fsync", "rename"):
        real = getattr(os, call)
        monkeypatch.setattr(
            os, call, lambda *args, _call=call, _real=real, **m: (done.append(_call), _real(*args, **m))[1]
        )
    flock = fcntl.flock
    monkeypatch.setattr(fcntl, "flock", lambda *args: (done.append("lock"), flock(*args))[1])
    name = folder.write(*record(1))
    assert done == ["lock", "write", "write", "fsync", "rename", "fsync"], "the folder at the end"
    done.clear()
    folder.pin(file_of(folder, name), True)
    assert done == ["rename", "fsync"]


def test_what_was_swept_before_it_was_locked_is_written_again(tmp_path: Path, monkeypatch: Any) -> None:
    folder, rename, turns = open_at(tmp_path / "store"), os.rename, list[int]()

    def swept_once(*args: Any, **more: Any) -> None:
        turns.append(1)
        if len(turns) == 1:
            raise FileNotFoundError(errno.ENOENT, "swept")
        rename(*args, **more)

    monkeypatch.setattr(os, "rename", swept_once)
    name = folder.write(*record(1))
    assert os.listdir(folder.path) == [name] and len(turns) == 2


def test_a_record_that_is_written_again_needs_no_room_beside_itself(tmp_path: Path) -> None:
    folder = open_at(tmp_path / "store", 2 * SIZE)
    names = [folder.write(*record(i)) for i in (1, 2)]
    assert folder.write(*record(1)) == names[0] and sorted(os.listdir(folder.path)) == sorted(names)
    assert folder.write(*record(1), pinned=True) == names[0].replace(".kv", ".pinned.kv")
    assert len(folder.files()) == 2, "the one without the pin is gone"


def test_other_pins_pin_nothing_else(tmp_path: Path) -> None:
    folder = open_at(tmp_path / "store")
    folder.write(*record(1), pinned=True)
    plain = folder.write(*record(2))
    assert folder.write(*record(2)) == plain and not file_of(folder, plain).pinned


def test_it_may_be_filled_to_the_last_byte(tmp_path: Path) -> None:
    folder = open_at(tmp_path / "store", SIZE)
    one = folder.write(*record(1), pinned=True)
    with pytest.raises(StoreError, match=r"a record of 0\.0 MiB does not fit: 0\.0 MiB of 0\.0 MiB are pinned"):
        folder.make_room(1)
    folder.pin(file_of(folder, one), False)
    two = folder.write(*record(2))
    assert os.listdir(folder.path) == [two]
    assert module._mib(5 * 2**19) == "2.5 MiB" and module._mib(2**31) == "2,048.0 MiB"


def test_no_more_goes_than_has_to(tmp_path: Path) -> None:
    folder = open_at(tmp_path / "store", 4 * SIZE)
    names = [folder.write(*record(i)) for i in range(4)]
    for age, name in enumerate(names):
        os.utime(folder.path / name, (1000 + age, 1000 + age))
    folder.make_room(2 * SIZE)
    assert [file.name for file in folder.files()] == names[2:]
    folder.make_room(2 * SIZE)
    assert [file.name for file in folder.files()] == names[2:]


# ---- names


def test_a_pin_is_a_name_and_comes_off_again(tmp_path: Path) -> None:
    folder = open_at(tmp_path / "store")
    plain = folder.write(*record(1))
    content = plain.removesuffix(".kv")
    pinned = folder.pin(file_of(folder, plain), True)
    assert pinned == f"{content}.pinned.kv" and os.listdir(folder.path) == [pinned]
    assert folder.names(pinned) == folder.names(plain) == [plain, pinned]
    assert folder.pin(file_of(folder, pinned), True) == pinned and os.listdir(folder.path) == [pinned]
    assert folder.pin(file_of(folder, pinned), False) == plain and os.listdir(folder.path) == [plain]
    assert file_of(folder, plain).content == content and FileInfo("note", 0, 0.0).content == ""


def test_removing_counts_what_was_there(tmp_path: Path) -> None:
    folder = open_at(tmp_path / "store")
    names = [folder.write(*record(i)) for i in (1, 2)]
    assert folder.remove([*names, "0" * 16 + "-" + "0" * 32 + ".kv"]) == 2 and folder.files() == []


def test_a_damaged_record_is_set_aside_counted_and_makes_room(tmp_path: Path) -> None:
    folder = open_at(tmp_path / "store", 2 * SIZE)
    name = folder.write(*record(1))
    folder.set_aside(name)
    assert os.listdir(folder.path) == [f"{name}.damaged"] and [file.content for file in folder.files()] == [""]
    folder.set_aside(name)
    os.utime(folder.path / f"{name}.damaged", (1000, 1000))
    for i in (2, 3):
        folder.write(*record(i))
    assert len(folder.files()) == 2 and not (folder.path / f"{name}.damaged").exists()


def test_a_damaged_record_counts_where_nothing_is_replaced(tmp_path: Path) -> None:
    folder = open_at(tmp_path / "store", 2 * SIZE)
    folder.set_aside(folder.write(*record(1)))
    folder.make_room(2 * SIZE)
    assert folder.files() == []


def test_a_private_file_is_no_folder(tmp_path: Path) -> None:
    path = tmp_path / "mine"
    path.touch(mode=0o600)
    with pytest.raises(StoreError, match="Not a directory; give a folder of your own"):
        RecordFolder(str(path), 10**6)


def test_a_temporary_name_that_somebody_has_taken_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, precious = RecordFolder(str(tmp_path / "store"), 10**6), tmp_path / "precious"
    precious.write_text("mine")
    monkeypatch.setattr("secrets.token_hex", lambda _: "guessed")
    (folder.path / "tmp-guessed").symlink_to(precious)
    with pytest.raises(FileExistsError):
        folder.write(*record(1))
    assert precious.read_text() == "mine" and (folder.path / "tmp-guessed").is_symlink()
    folder.close()

"""Names that are not ours never reach the disk, and what lies under them is neither read nor removed."""

from __future__ import annotations

import os
import random
import stat
from pathlib import Path

import pytest

from tests.store.test_folder import open_at, record
from yaie_engine.store.folder import DAMAGED, NAME
from yaie_engine.store.record import DamagedRecordError

GOOD = "0" * 16 + "-" + "a" * 32 + ".kv"
PARTS = ["..", "/", "\\", "\0", "~", "%2e%2e", "\n", ".kv", ".pinned", "tmp-", "-", "a" * 16, "0" * 32, "\u202e", " ",
         "$HOME", "|id", "é", "\ud800", "ﬁ", "\uff10", "*", "CON", "x" * 300]  # fmt: skip


def hostile_names(seed: int = 5) -> list[str]:
    """Two hundred: known tricks, one change in a good name, and parts put together at random."""
    chance = random.Random(seed)
    names = ["", ".", "..", "/", "/etc/passwd", "../" + GOOD, "./" + GOOD, GOOD + "/", GOOD + "\0", GOOD + "\n"]
    names += [f"/proc/self/fd/{i}" for i in range(4)] + [GOOD.upper(), GOOD.replace("-", "/"), GOOD + ".kv", " " + GOOD]
    names += [
        GOOD.replace(".kv", DAMAGED + ".kv"),
        GOOD + DAMAGED,
        GOOD.replace("0", "\uff10", 1),
        GOOD.replace("a", "\u0430", 1),
    ]
    for _ in range(60):
        at = chance.randrange(len(GOOD))
        names.append(GOOD[:at] + chance.choice(PARTS) + GOOD[at + chance.randint(0, 1) :])
    while len(names) < 240:
        names.append("".join(chance.choice(PARTS) for _ in range(chance.randint(1, 6))))
    return sorted({name for name in names if not NAME.fullmatch(name)})


def test_no_hostile_name_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = hostile_names()
    print("seed 5,", len(names), "names")
    assert len(names) >= 200
    folder = open_at(tmp_path / "store")
    monkeypatch.setattr("yaie_engine.store.folder.os.open", lambda *given, **_: pytest.fail(f"opened {given[0]!r}"))
    for name in names:
        for read in (folder.read, folder.head):
            with pytest.raises(DamagedRecordError, match="not one of ours"):
                read(name)


def plain_names() -> list[str]:
    """Those that name one file inside of a folder: the others would lead a test out of its folder as well."""
    plain = [name for name in hostile_names() if name not in ("", ".", "..") and not set(name) & {"/", "\0"}]
    return [name for name in plain if not name.startswith("tmp-") and not name.endswith(DAMAGED)]


def make_inside(folder: Path, names: list[str]) -> list[str]:
    """Files of these names, as far as the file system takes them; made from the folder's descriptor, over nothing."""
    place, made = os.open(folder, os.O_RDONLY), []
    try:
        for name in names:
            assert "/" not in name
            try:
                fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=place)
            except (OSError, ValueError):  # too long, or no text that the file system takes
                continue
            os.write(fd, b"x" * 3000)
            os.close(fd)
            made.append(name)
    finally:
        os.close(place)
    return made


def test_files_of_hostile_names_are_left_alone(tmp_path: Path) -> None:
    """Not listed, not counted, not removed when room is needed or on opening."""
    folder = open_at(tmp_path / "store", 5000)
    made = make_inside(folder.path, plain_names())
    assert len(made) > 40
    for first in range(4):
        folder.write(*record(first))
    listed = [file.name for file in folder.files()]
    assert not set(listed) & set(made) and 1 <= len(listed) <= 2
    open_at(tmp_path / "store", 5000).close()
    assert set(made) <= set(os.listdir(folder.path))


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_what_is_made_is_private_whatever_the_mask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        folder = open_at(tmp_path / f"store{mask}")
        name = folder.write(*record(1), pinned=True)
        kept = folder.write(*record(2))
        folder.set_aside(kept)
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.path.iterdir()}
    assert modes == {name: 0o600, kept + DAMAGED: 0o600}


def test_a_link_in_the_place_of_a_record_is_not_written_through(tmp_path: Path) -> None:
    """A link to a file of the user under the name of a record: it is replaced, and the file stays as it was."""
    folder = open_at(tmp_path / "store")
    name = folder.write(*record(1))
    (tmp_path / "thesis").write_text("mine")
    (folder.path / name).unlink()
    (folder.path / name).symlink_to(tmp_path / "thesis")
    assert folder.write(*record(1)) == name
    assert (tmp_path / "thesis").read_text() == "mine" and not (folder.path / name).is_symlink()
    assert folder.read(name) == record(1)

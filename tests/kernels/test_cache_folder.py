"""Where compiled kernels are kept: by environment, by home, and where a user has none."""

from __future__ import annotations

import os
import pwd
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from yaie_cuda import cache_folder as module
from yaie_cuda.cache_folder import cache_folder, write_whole


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No variable says where, and temporary files have a folder of their own."""
    for name in ("YAIE_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    module._private_folder.cache_clear()
    yield
    module._private_folder.cache_clear()


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user number that nothing knows, as in a container run with `--user 12345`."""

    def unknown(number: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)


def test_the_variables_come_before_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    assert cache_folder("x") == Path("/somewhere/.cache/yaie/x")
    monkeypatch.setenv("XDG_CACHE_HOME", "/shared")
    assert cache_folder("x") == Path("/shared/yaie/x")
    monkeypatch.setenv("YAIE_CACHE_DIR", "~/mine")
    assert cache_folder("x") == Path("/somewhere/mine/x")


@pytest.mark.parametrize("own", ["", "~/mine"])
def test_without_a_home_the_folder_is_private_and_found_again(
    homeless: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own: str
) -> None:
    monkeypatch.setenv("YAIE_CACHE_DIR", own)
    found = cache_folder("cubins")
    assert found == tmp_path / f"yaie-{os.getuid()}" / "cubins"
    assert stat.S_IMODE(found.parent.stat().st_mode) == 0o700
    write_whole(found / "file", b"kernel")
    module._private_folder.cache_clear()
    assert (cache_folder("cubins") / "file").read_bytes() == b"kernel"


@pytest.mark.parametrize("trap", ["a link", "a file", "open to all", "another's"])
def test_without_a_home_nothing_that_others_may_write_to_is_taken(
    homeless: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, trap: str
) -> None:
    taken = tmp_path / f"yaie-{os.getuid()}"
    if trap == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        taken.symlink_to(tmp_path / "elsewhere")
    elif trap == "a file":
        taken.write_bytes(b"")
    elif trap == "open to all":
        taken.mkdir()
        taken.chmod(0o777)
    else:
        taken.mkdir(mode=0o700)
        number = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: number + 1)
        taken.rename(tmp_path / f"yaie-{number + 1}")
    found = cache_folder("cubins").parent
    assert found.parent == tmp_path and found.name != f"yaie-{os.getuid()}"
    assert found == cache_folder("emulator").parent, "one folder for the whole process"
    assert stat.S_IMODE(found.stat().st_mode) == 0o700

"""What holds in every test: who may change the books, where reports go. A test that hangs is shown by pytest itself."""

from __future__ import annotations

import gc
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from tests.log_settings import kept_log_settings
from tests.owner_thread import OWNERS


def pytest_collection_finish() -> None:
    """What was imported stays: the collector, which tests of memory and of dropped handles call often, passes it by.

    A search through all of torch and transformers takes a third of a second.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _watched_books() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        OWNERS.watch(patch)
        yield


@pytest.fixture(autouse=True)
def _one_thread_changes_the_books() -> Iterator[None]:
    """Some of those that meddle do not hear of it themselves, so that each test does."""
    yield
    found, OWNERS.problems[:] = list(OWNERS.problems), []
    assert not found, "\n".join(found)


@pytest.fixture(autouse=True)
def _log_settings_end_with_their_test() -> Iterator[None]:
    with kept_log_settings():
        yield


@pytest.fixture(scope="session", autouse=True)
def _temporary_files_go_with_the_run() -> Iterator[None]:
    """Reports of broken books, which tests cause on purpose, and whatever kernels and commands leave are not for the
    temporary folder of the machine. Its path is short: there is a limit for those of sockets."""
    usual, make = tempfile.gettempdir(), tempfile.mkstemp
    folder = tempfile.mkdtemp(prefix="yaie-t-")

    def mkstemp(*args: Any, **named: Any) -> tuple[int, str]:
        if named.get("prefix") == "yaie-breach-" and tempfile.gettempdir() == usual:
            named["dir"] = folder
        return make(*args, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "mkstemp", mkstemp)
        patch.setenv("TMPDIR", folder)  # of the processes that tests start
        yield
    shutil.rmtree(folder, ignore_errors=True)

"""What the commands log, where to and in which form."""

from __future__ import annotations

import json
import logging
import os
import stat
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.log_settings import kept_log_settings
from yaie_cuda.library import MissingKernelWarning
from yaie_magic import cli, logs
from yaie_magic.options import UsageProblem

SECRET = "the-prompt-that-nobody-may-log"


@pytest.fixture(autouse=True)
def quiet_end(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("YAIE_")]:
        monkeypatch.delenv(name)
    shown = warnings.showwarning
    yield
    warnings.showwarning = shown


def test_what_one_test_sets_is_not_left_to_the_next(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A warning of the engine was once heard twice in a test that came after one of a command."""
    with kept_log_settings():
        logs.set_up({"log_file": str(tmp_path / "log")})
        logs.set_up_access({}, "plain")
        assert not logging.getLogger("yaie").propagate and logging.getLogger("yaie.access").handlers
    for name in ("yaie", "yaie.access", "yaie.server"):
        logger = logging.getLogger(name)
        assert logger.propagate and not logger.handlers and logger.level == logging.NOTSET, name
    assert not any(isinstance(each, logs.LogFile | logs.Stderr) for each in logging.getLogger().handlers)
    logging.getLogger("yaie").warning("planted")
    assert [record.getMessage() for record in caplog.records] == ["planted"]


def test_plain_lines_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up({})
    logging.getLogger("yaie.server").warning("two\nlines \x1b[31m")
    logging.getLogger("yaie").info("not asked for")
    logging.getLogger("library.generation").warning("odd setting")
    assert capsys.readouterr().err == "yaie: two lines \\x1b[31m\nyaie: library: odd setting\n"


@pytest.mark.parametrize(
    ("given", "levels"),
    [
        ({}, ["warning", "error"]),
        ({"verbose": True}, ["info", "warning", "error"]),
        ({"log_level": "debug"}, ["debug", "info", "warning", "error"]),
        ({"log_level": "error"}, ["error"]),
    ],
)
def test_levels(given: dict[str, object], levels: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up(given)
    for level in logs.LEVELS:
        logging.getLogger("yaie").log(getattr(logging, level.upper()), "%s", level)
    assert capsys.readouterr().err == "".join(f"yaie: {level}\n" for level in levels)


def test_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up({"log_format": "json"})
    logging.getLogger("yaie.server").warning("a\nb")
    found = json.loads(capsys.readouterr().err)
    assert (found["level"], found["logger"], found["message"]) == ("warning", "yaie.server", "a\nb")
    assert found["time"].endswith("Z") and "T" in found["time"]


def test_a_file_is_its_owners_alone_and_follows_rotation(tmp_path: Path) -> None:
    path = tmp_path / "yaie.log"
    path.write_text("before\n")
    path.chmod(0o644)
    logs.set_up({"log_file": str(path)})
    logging.getLogger("yaie").warning("one")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before, line = path.read_text().splitlines()
    assert before == "before" and line.endswith(" warning yaie: one")
    path.rename(tmp_path / "yaie.log.1")
    logging.getLogger("yaie").warning("two")
    assert path.read_text().endswith("two\n") and stat.S_IMODE(path.stat().st_mode) == 0o600


def test_no_file_and_two_ways_to_say_a_level_are_usage_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="No such file"):
        logs.set_up({"log_file": str(tmp_path / "absent" / "x.log")})
    with pytest.raises(UsageProblem, match="give one of them"):
        logs.set_up({"verbose": True, "log_level": "debug"})


@pytest.mark.parametrize("form", logs.FORMATS)
def test_of_an_error_the_places_are_kept_and_not_the_text(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up({"log_level": "debug", "log_format": form})
    try:
        try:
            raise KeyError(SECRET)
        except KeyError as cause:
            raise ValueError(SECRET) from cause
    except ValueError as error:
        logging.getLogger("yaie").debug("details", exc_info=error)
    shown = capsys.readouterr().err
    assert SECRET not in shown
    assert "ValueError" in shown and "KeyError" in shown and "test_logs.py line" in shown


def test_warnings_of_ours_are_lines_and_those_of_libraries_wait_to_be_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logs.set_up({})
        warnings.warn("an old way", FutureWarning, stacklevel=1)
        warnings.warn("the reference runs", MissingKernelWarning, stacklevel=1)
        assert capsys.readouterr().err == "yaie: the reference runs\n"
        logs.set_up({"verbose": True})
        warnings.warn("an old way", FutureWarning, stacklevel=1)
        assert capsys.readouterr().err == "yaie: an old way\n"


def test_access_lines_go_where_the_log_goes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    access = logging.getLogger(logs.ACCESS)
    logs.set_up({})
    logs.set_up_access({}, "plain")
    access.info("GET /health 200 1 ms r1")
    assert capsys.readouterr() == ("GET /health 200 1 ms r1\n", "")
    path = tmp_path / "all.log"
    given = {"log_file": str(path), "log_format": "json"}
    logs.set_up(given)
    logs.set_up_access(given, "json")
    access.info(json.dumps({"method": "GET", "path": "/health", "status": 200}))
    found = json.loads(path.read_text())
    assert found["path"] == "/health" and found["logger"] == "yaie.access" and "message" not in found
    assert capsys.readouterr() == ("", "")


def test_the_last_words_are_in_the_file_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "yaie.log"
    assert cli.main(["generate", SECRET, "--log-file", str(path), "--block-size", "0"]) == 2
    assert "block_size=0" in path.read_text() and "block_size=0" in capsys.readouterr().err


@pytest.mark.slow
def test_words_that_may_repeat_what_was_typed_are_not_in_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "yaie.log"
    logs.set_up({"log_file": str(file), "log_level": "debug"})
    assert cli.explain(KeyError(SECRET)) == 1
    assert cli.complain(f"unknown command /{SECRET}", 2, "") == 2
    assert capsys.readouterr().err == f"yaie: KeyError: '{SECRET}'\nyaie: unknown command /{SECRET}\n"
    assert SECRET not in file.read_text() and file.read_text().count(" error yaie: KeyError\n") == 1
    assert file.read_text().count(" error ") == 1


def test_neither_prompt_nor_key_at_any_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("YAIE_API_KEY", "key-in-the-environment")
    path = tmp_path / "yaie.log"
    words = ["--log-level", "debug", "--log-format", "json", "--log-file", str(path), "--num-blocks", "16"]
    assert cli.main(["generate", SECRET, *words, "--max-tokens", "2", "--temperature", "0"]) == 0
    assert cli.main(["generate", f"{SECRET} " * 400, *words]) == 2
    shown = capsys.readouterr()
    text = path.read_text()
    assert len([json.loads(line) for line in text.splitlines()]) >= 3
    assert '\\"num_blocks\\": 16' in text
    assert SECRET not in text + shown.err and "key-in-the-environment" not in text + shown.err + shown.out


def test_libraries_lose_their_own_handlers(capsys: pytest.CaptureFixture[str]) -> None:
    from transformers.utils import logging as theirs

    logs.set_up({})
    try:
        logs.adopt_libraries()
        theirs.get_logger("transformers.models").warning("a word of theirs")
        assert capsys.readouterr().err == "yaie: transformers: a word of theirs\n"
    finally:
        theirs.enable_default_handler()
        theirs.disable_propagation()

"""What the commands of `yaie` log, where to and in which form: one table of options, one place that sets it up.

Neither prompts nor keys are logged at any level: of an exception a log keeps the kind and the places it passed, not its
text. Lines of libraries come in our form or not at all.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
import stat
import sys
import warnings
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from .options import Group, UsageProblem, option
from .terminal import printable

logger = logging.getLogger("yaie")

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("plain", "json")
ACCESS = "yaie.access"
"""The logger of a server's requests; its lines have a form of their own."""
LOGGING = Group(
    "logging",
    (
        option("verbose", "short for --log-level info", "-v", kind="flag"),
        option("log_level", "the least that is logged", kind="choice", choices=LEVELS),
        option(
            "log_file",
            "add log lines to this file (made with mode 0600) instead of writing them on standard error",
            metavar="FILE",
        ),
        option("log_format", "lines for people or JSON objects [default: plain]", kind="choice", choices=FORMATS),
    ),
)
_FILE_MODE = 0o600


class Plain(logging.Formatter):
    """`yaie: message`; in a file with time, level and logger. One line, but for the places of an error."""

    def __init__(self, in_file: bool) -> None:
        super().__init__()
        self._in_file = in_file

    def format(self, record: logging.LogRecord) -> str:
        lines = [printable(" ".join(record.getMessage().split())), *_places(record)]
        head = f"{_time(record)} {record.levelname.lower()} {record.name}: " if self._in_file else "yaie: "
        foreign = "" if self._in_file or _ours(record.name) else f"{record.name.partition('.')[0]}: "
        return f"{head}{foreign}" + "\n    ".join(lines)


class AsJson(logging.Formatter):
    """One object a line. The fields of an access line that is JSON already stand beside the others."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        found: dict[str, Any] = {"time": _time(record), "level": record.levelname.lower(), "logger": record.name}
        if record.name == ACCESS and message.startswith("{"):
            return json.dumps({**found, **json.loads(message)})
        found["message"] = message
        places = list(_places(record))
        return json.dumps({**found, "trace": places} if places else found)


class Stderr(logging.Handler):
    """Writes to what standard error is at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(f"{self.format(record)}\n")
            sys.stderr.flush()
        except (OSError, ValueError):  # nobody reads it any more
            self.handleError(record)


class LogFile(logging.handlers.WatchedFileHandler):
    """Appends to a file that only its owner reads; follows a file that was rotated away."""

    def _open(self) -> Any:
        def private(path: str, flags: int) -> int:
            found = os.open(path, flags | os.O_CLOEXEC, _FILE_MODE)
            if stat.S_ISREG(os.fstat(found).st_mode):
                os.fchmod(found, _FILE_MODE)
            return found

        name, errors = self.baseFilename, "backslashreplace"
        return open(name, "a", encoding="utf-8", errors=errors, opener=private)


def set_up(given: Mapping[str, Any], usual: str = "warning") -> None:
    """Log as the options say, everything else at the level `usual`.

    Raises:
        UsageProblem: the file cannot be opened, or two options contradict each other.
    """
    if given.get("verbose") and "log_level" in given:
        raise UsageProblem("--verbose is short for --log-level info: give one of them")
    level = given.get("log_level", "info" if given.get("verbose") else usual).upper()
    handler = _handler(given.get("log_file"), given.get("log_format", "plain"))
    for each in (logger, logging.getLogger()):
        for old in [old for old in each.handlers if isinstance(old, Stderr | LogFile)]:
            each.removeHandler(old)
            old.close()
        each.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
    warnings.showwarning = _show_warning


def set_up_access(given: Mapping[str, Any], form: str) -> None:
    """A line for each request of a server: into the log file where there is one, else on standard output."""
    access = logging.getLogger(ACCESS)
    access.setLevel(logging.INFO)
    access.propagate = "log_file" in given
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(AsJson() if form == "json" else logging.Formatter("%(message)s"))
    access.handlers[:] = [] if access.propagate else [handler]


def adopt_libraries() -> None:
    """Transformers prints its own log lines; from now on they are ours. Imports it: call where that happens anyway."""
    from transformers.utils import logging as theirs

    theirs.disable_default_handler()
    theirs.enable_propagation()


def to_file(message: str) -> None:
    """A program's last words, which standard error has, for the log file, if there is one and they are not empty."""
    if message and any(isinstance(handler, LogFile) for handler in logger.handlers):
        logger.error("%s", message)


def _handler(path: str | None, form: str) -> logging.Handler:
    handler: logging.Handler
    if path is None:
        handler = Stderr()
    else:
        try:
            handler = LogFile(path)
        except OSError as error:
            raise UsageProblem(f"--log-file {path}: {error.strerror or error}") from None
    handler.setFormatter(AsJson() if form == "json" else Plain(path is not None))
    return handler


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    """Warnings of our packages are warnings; those of libraries are for who asks for more."""
    own = category.__module__.startswith("yaie_")
    name = "yaie" if own else "yaie.libraries"
    logging.getLogger(name).log(logging.WARNING if own else logging.INFO, "%s", message)


def _ours(name: str) -> bool:
    return name == "yaie" or name.startswith("yaie.")


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _places(record: logging.LogRecord) -> Iterator[str]:
    """The kind of an exception and the places it passed, innermost last, then the same of what caused it."""
    error = record.exc_info[1] if record.exc_info else None
    while error is not None:
        yield type(error).__name__
        trace = error.__traceback__
        while trace is not None:
            code = trace.tb_frame.f_code
            yield f"in {code.co_name}, {os.path.basename(code.co_filename)} line {trace.tb_lineno}"
            trace = trace.tb_next
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)

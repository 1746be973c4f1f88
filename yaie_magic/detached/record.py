"""What is known of one detached engine: where it answers, with which key, and which process it is."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field, ValidationError, field_validator

from yaie_engine.errors import YaieError
from yaie_engine.params import Float, Int
from yaie_engine.validation import Checked
from yaie_magic.options import UsageProblem

if TYPE_CHECKING:
    from yaie_magic.remote.key import Key

SUFFIX, LOG_SUFFIX = ".json", ".log"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")
DEFAULT_IDLE_S = 3600.0
LONGEST_IDLE_S = 10.0**8
CLOCK_S = 2.0
"""How far two readings of a process's start may lie apart: the clock of the machine drifts, and is corrected."""
TICK_S = 0.05
"""The same for its distance from the start of the machine, which no setting of the clock changes."""


def check_name(name: str) -> str:
    """The name itself, since a file is called so.

    Raises:
        UsageProblem: it does not fit.
    """
    if not NAME.match(name):
        raise UsageProblem(
            f"{name!r} cannot name a detached engine: letters, digits, _ . and - are allowed, at most 64, "
            "a letter or digit first"
        )
    return name


def uptime_at_start(pid: int) -> float:
    """How long the machine ran already when a process began, in seconds."""
    import psutil

    boot = psutil.boot_time()  # first: older versions of psutil keep it for the start of a process
    start: float = psutil.Process(pid).create_time()
    return start - boot


class EngineRecord(Checked):
    """The file of one engine. `started` is when its process began, in seconds since 1970, and `uptime` since the start
    of the machine; `idle_timeout` is in seconds, 0 for never.

    Raises:
        YaieError: a value is wrong.
    """

    error: ClassVar[type[YaieError]] = YaieError

    name: str = Field(pattern=NAME.pattern.removesuffix(r"\Z") + "$")
    model: str = Field(min_length=1, max_length=4096)
    pid: Int = Field(ge=2, le=2**31 - 1)
    started: Float = Field(ge=0)
    uptime: Float | None = None
    url: str = Field(pattern=r"^http://127\.0\.0\.1:[0-9]{1,5}$")
    key: str = Field(min_length=16, max_length=512, pattern=r"^[A-Za-z0-9_-]+$", repr=False)
    idle_timeout: Float = Field(ge=0, le=LONGEST_IDLE_S)
    config: dict[str, Any]

    @field_validator("url")
    @classmethod
    def _real_port(cls, value: str) -> str:
        if not 1 <= int(value.rpartition(":")[2]) <= 65535:
            raise ValueError("there is no such port")
        return value

    @property
    def runs(self) -> bool:
        """Whether its process lives. A number alone is no proof: another process may have it by now."""
        import psutil

        try:
            process = psutil.Process(self.pid)
            if process.uids().real != os.getuid() or process.status() == psutil.STATUS_ZOMBIE:
                return False
            if abs(process.create_time() - self.started) < CLOCK_S:
                return True
            return self.uptime is not None and abs(uptime_at_start(self.pid) - self.uptime) < TICK_S
        except psutil.Error:
            return False

    @property
    def hidden_key(self) -> Key:
        """The key for a connection; no traceback shows it, whatever it prints."""
        from yaie_magic.remote.key import Key

        return Key(self.key)

    def to_bytes(self) -> bytes:
        """The content of its file."""
        return self.model_dump_json().encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> EngineRecord:
        """The record in a file.

        Raises:
            YaieError: it is none; the text tells nothing of the content, which holds a key.
        """
        try:
            return cls.model_validate_json(data)
        except ValidationError:
            raise YaieError("it does not describe an engine") from None

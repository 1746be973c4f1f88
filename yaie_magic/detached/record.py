"""What is known of one detached engine: where it answers, with which key, and which process it is."""

from __future__ import annotations

import os
import re
from typing import Any, ClassVar

from pydantic import Field, ValidationError

from yaie_engine.errors import YaieError
from yaie_engine.params import Float, Int
from yaie_engine.validation import Checked
from yaie_magic.options import UsageProblem

SUFFIX, LOG_SUFFIX = ".json", ".log"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z")
DEFAULT_IDLE_S = 3600.0
LONGEST_IDLE_S = 10.0**8
CLOCK_S = 2.0
"""How far two readings of a process's start may lie apart: the clock of the machine may have been set between them."""


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


class EngineRecord(Checked):
    """The file of one engine. `started` is when its process began, in seconds since 1970; `idle_timeout` is in seconds,
    0 for never.

    Raises:
        YaieError: a value is wrong.
    """

    error: ClassVar[type[YaieError]] = YaieError

    name: str = Field(pattern=NAME.pattern.removesuffix(r"\Z") + "$")
    model: str = Field(min_length=1, max_length=4096)
    pid: Int = Field(ge=2, le=2**31 - 1)
    started: Float = Field(ge=0)
    url: str = Field(pattern=r"^http://127\.0\.0\.1:[0-9]{1,5}$")
    key: str = Field(min_length=16, max_length=512, pattern=r"^[A-Za-z0-9_-]+$", repr=False)
    idle_timeout: Float = Field(ge=0, le=LONGEST_IDLE_S)
    config: dict[str, Any]

    @property
    def runs(self) -> bool:
        """Whether its process lives. A number alone is no proof: another process may have it by now."""
        import psutil

        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started) < CLOCK_S and process.uids().real == os.getuid()
            return same and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False

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

"""Calls to the Hub: repeated where the network is at fault, one clear line where it is not."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from yaie_engine.errors import ModelLoadError, UnknownModelError
from yaie_engine.validation import did_you_mean

from .bundled import bundled_names

Result = TypeVar("Result")
ATTEMPTS, FIRST_WAIT = 3, 0.5


class NoNetworkError(Exception):
    """The Hub cannot be reached; the cache may still have the model."""


def cached_names() -> list[str]:
    """Ids of the models in the cache, by their folder names."""
    from huggingface_hub import constants

    root = Path(constants.HF_HUB_CACHE)
    names = [path.name.removeprefix("models--") for path in root.glob("models--*")] if root.is_dir() else []
    return sorted(name.replace("--", "/", 1) for name in names)


def attempt(repo_id: str, call: Callable[[], Result]) -> Result:
    """Call the Hub, again where it was the network's fault; every other failure becomes one clear line."""
    for attempt in range(ATTEMPTS):
        try:
            return call()
        except Exception as error:  # the Hub client raises kinds of three libraries
            if not _passing(error):
                raise _clear(repo_id, error) from error
            if attempt == ATTEMPTS - 1 or _offline(error):
                raise NoNetworkError(str(error).strip().splitlines()[0][:120] if str(error) else "no answer") from error
            time.sleep(FIRST_WAIT * 2**attempt)
    raise NoNetworkError("no attempt was made")


def _passing(error: Exception) -> bool:
    """Whether the same call may succeed later: no connection, a timeout, or a server that is overloaded."""
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    if isinstance(error, LocalEntryNotFoundError):
        return True
    if isinstance(error, HfHubHTTPError):
        status = getattr(error.response, "status_code", 0)
        return status == 429 or status >= 500
    kinds = {kind.__name__ for kind in type(error).__mro__}
    return isinstance(error, ConnectionError | TimeoutError) or "TransportError" in kinds


def _offline(error: Exception) -> bool:
    from huggingface_hub.errors import OfflineModeIsEnabled

    return isinstance(error, OfflineModeIsEnabled)


def _clear(repo_id: str, error: Exception) -> Exception:
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return ModelLoadError(
            f"{repo_id} asks for consent: accept its terms on https://huggingface.co/{repo_id} and set HF_TOKEN"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return ModelLoadError(f"{repo_id} has no such revision; leave revision out for the newest")
    if isinstance(error, errors.RepositoryNotFoundError):
        known = [*bundled_names(), *cached_names()]
        return UnknownModelError(
            f"no model {repo_id!r} on the Hub (a private one needs HF_TOKEN){did_you_mean(repo_id, known)}"
        )
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ModelLoadError(f"the disk is full while downloading {repo_id}: make room or set HF_HOME to another disk")
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EROFS):
        return ModelLoadError(f"the cache cannot be written ({error.strerror}): set HF_HOME to a folder of yours")
    return ModelLoadError(f"{repo_id} cannot be downloaded: {str(error).strip().splitlines()[0][:160]}")

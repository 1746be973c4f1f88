"""Every failure a person can cause becomes one line: usage on stderr, the rest as a short error without a traceback."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from IPython.core.error import UsageError

from yaie_engine.errors import ConfigError, RequestError, YaieError

from .interrupt import Interrupted
from .options import UsageProblem
from .terminal import printable

T = TypeVar("T")
_PREFIXES = ("SamplingParams: ", "EngineConfig: ")


def guarded(prog: str, action: Callable[[], T]) -> T:
    """Run the action of a magic.

    The error is raised anew without its traceback: frames kept by `sys.last_traceback` would keep the engine.

    Raises:
        UsageError: the line, a value or a prompt is wrong; IPython prints it on one line.
        Interrupted, YaieError: with one line in place of a traceback.
    """
    problem: BaseException
    try:
        return action()
    except (UsageProblem, ConfigError, RequestError) as error:
        problem = UsageError(printable(f"{prog}: {_plain(error)}"))
    except (Interrupted, YaieError) as error:
        problem = error
    except KeyboardInterrupt:
        problem = Interrupted(f"{prog} interrupted")
    problem.__context__ = problem.__cause__ = None
    raise problem.with_traceback(None)


def _plain(error: Exception) -> str:
    """The text on one line, without the name of the class that checked it."""
    text = " ".join(str(error).split())
    for prefix in _PREFIXES:
        text = text.removeprefix(prefix)
    return text

"""The one error tree.

YaieError
|-- ConfigError (ValueError)      a configuration value or name is wrong
|-- RequestError (ValueError)     a prompt or a sampling parameter is wrong
|   `-- CapacityError             the request can never fit, whatever else runs
|-- QueueFullError                max_waiting requests wait already
|-- RequestTimeout                the request ran longer than its timeout
|-- ModelLoadError                the model cannot be loaded; the text says what to do
|   `-- UnknownModelError (ValueError)  no model has that name
|-- EngineDeadError               the engine was closed or failed; load it again
|-- AsleepError                   the engine sleeps; wake it first
|-- BusyError                     requests are running where none may (.count)
|-- DeviceMemoryError             a step did not fit into memory, and no smaller one can be made
|-- AnomalyError                  anomaly mode met a NaN or infinity (.module, .request_id, .position)
|-- StoreError                    the persistent prefix store refused a record
|-- KernelError                   a kernel did not compile or launch (.source, .arch, .log)
`-- InvariantError                check() found broken bookkeeping (.violations)
"""

from __future__ import annotations

from collections.abc import Sequence

from .printable import printable


class YaieError(Exception):
    """Base of every error this project raises on purpose; the text is one line that names the fix."""

    def _render_traceback_(self) -> list[str]:
        """IPython shows these lines instead of a traceback. A template or a server may have written in them."""
        return [printable(f"{type(self).__name__}: {self}")]


class ConfigError(YaieError, ValueError):
    """A configuration value is out of range, or its name is unknown."""


class RequestError(YaieError, ValueError):
    """A prompt or sampling parameter is wrong; nothing was queued."""


class CapacityError(RequestError):
    """The request needs more KV blocks or context than the engine has in all."""


class QueueFullError(YaieError):
    """The waiting queue is at `max_waiting`; try again later."""


class RequestTimeout(YaieError):
    """The request did not end within its timeout."""


class ModelLoadError(YaieError):
    """A model folder, file or Hub id cannot be served."""


class UnknownModelError(ModelLoadError, ValueError):
    """A name leads to no model: most likely it is mistyped."""


class EngineDeadError(YaieError):
    """The engine is closed or failed and serves nothing any more."""


class AsleepError(YaieError):
    """The engine has given its memory back; it serves again once it was woken."""

    def __init__(self) -> None:
        super().__init__("the engine is asleep: wake it first, by %yaie wake or llm.wake_up()")


class BusyError(YaieError):
    """What was asked for would take requests away that are running; `count` says how many."""

    def __init__(self, message: str, count: int) -> None:
        super().__init__(message)
        self.count = count


class DeviceMemoryError(YaieError):
    """A forward ran out of memory; the text says how large the step was, and what was free."""


class AnomalyError(YaieError):
    """Where anomaly mode saw the first NaN or infinity of a request; `in_cache`: it was read from the KV cache."""

    def __init__(self, message: str, module: str, request_id: str, position: int, in_cache: bool = False) -> None:
        super().__init__(message)
        self.module, self.request_id, self.position, self.in_cache = module, request_id, position, in_cache


class StoreError(YaieError):
    """The persistent prefix store failed."""


class KernelError(YaieError):
    """A CUDA kernel did not compile, load or launch."""

    def __init__(self, message: str, source: str = "", arch: str = "", log: str = "") -> None:
        super().__init__(message)
        self.source, self.arch, self.log = source, arch, log


class InvariantError(YaieError):
    """The bookkeeping of blocks, tree and requests contradicts itself; `outcome` says what became of the engine."""

    def __init__(self, violations: Sequence[str], outcome: str = "") -> None:
        super().__init__("; ".join([*violations, *([outcome] if outcome else [])]))
        self.violations = list(violations)


SURVIVED = (Exception, KeyboardInterrupt)
"""What fails requests and not the engine. Python interrupts the main thread only, so that on the engine's an interrupt
comes from code that a step ran: a hook, say."""


def step_error(error: BaseException, step: int) -> YaieError:
    """What requests of a failed step get: the error itself where it is one of these."""
    return error if isinstance(error, YaieError) else YaieError(f"step {step} failed: {error!r}")

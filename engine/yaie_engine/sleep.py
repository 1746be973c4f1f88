"""Sleep: an engine gives its memory back and keeps everything else; woken, it serves as before.

Both happen on the engine's thread between two steps. What was planned or made for a step before is gone after it: the
guess of the next step goes with any action of the inbox (`LLMEngine._catch_up`), block pool and tree are new, and the
runner drops KV tensors, prepared inputs, captured graphs and buffers of kernels. History and the recorder stay.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from .errors import BusyError, ConfigError, EngineDeadError, ModelLoadError

if TYPE_CHECKING:
    from .engine import LLMEngine

Weights = Literal["kept", "host", "dropped"]
LEVELS = (1, 2)


@dataclass(frozen=True, slots=True)
class Freed:
    """What a runner gave back, in bytes of its device. `weights`: where they are now, and `why` they were kept."""

    kv_bytes: int = 0
    weight_bytes: int = 0
    weights: Weights = "kept"
    why: str = ""


@dataclass(frozen=True, slots=True)
class SleepReport:
    """How an engine sleeps. `already`: it did so before, and nothing was given back now."""

    level: int
    freed: Freed
    num_cancelled: int = 0
    already: bool = False


@dataclass(frozen=True, slots=True)
class WakeReport:
    """How long it took to wake. `already`: the engine was not asleep."""

    seconds: float = 0.0
    already: bool = False


def check_level(level: object) -> int:
    """A level of sleep.

    Raises:
        ConfigError: there is no such level.
    """
    if isinstance(level, bool) or level not in LEVELS:
        raise ConfigError(
            f"sleep: level={level!r}: allowed are 1 (the KV cache is released, weights move to host memory) "
            "and 2 (weights are dropped, too, and read again at wake)"
        )
    return 1 if level == 1 else 2


def fall_asleep(engine: LLMEngine, level: int, force: bool) -> SleepReport:
    """Give memory back. Engine thread. From level 1 an asleep engine can go on to level 2.

    Raises:
        BusyError: requests are there and `force` is not given.
        ConfigError, ModelLoadError: the weights cannot go where `level` wants them. Nothing was given back.
        EngineDeadError: the engine was closed, or ends when its last request has.
    """
    if not engine.alive or engine.state == "draining":
        raise engine._dead()
    before = engine.slept
    if before is not None and level <= before:
        return SleepReport(before, Freed(), already=True)
    cancelled = _shut_the_door(engine, force)
    try:
        freed = engine.runner.sleep(level)
    except (ConfigError, ModelLoadError):
        _open_the_door(engine, before)
        raise
    except Exception as error:  # nobody knows what is left of the runner
        raise _failed(engine, error) from error
    for request in list(engine.requests.values()):  # only now: a sleep that is refused cancels nothing
        engine._end(request, None)
    engine.scheduler.tree.clear()  # the record of it names every node and block
    engine.scheduler.rebuild()  # nothing that was planned over the old pool holds any more
    engine.slept = level
    return SleepReport(level, freed, cancelled)


def wake_up(engine: LLMEngine) -> WakeReport:
    """Take the memory again and serve. Engine thread.

    Raises:
        ModelLoadError: memory, or the files of the model, are not there as they were; the engine stays asleep.
        EngineDeadError: the engine was closed, its GPU was lost, or it ends when its last request has.
    """
    if not engine.alive or engine.state == "draining":
        raise engine._dead()
    if engine.slept is None:
        return WakeReport(already=True)
    start = time.monotonic()
    try:
        loaded = engine.runner.wake()
    except ModelLoadError as error:
        raise ModelLoadError(f"the engine stays asleep: {error}") from None
    except Exception as error:
        from .device_errors import lost  # torch is there by now; who only tells of sleep does without

        if lost(error):
            raise _failed(engine, error) from error
        raise
    if loaded is not None:
        engine.sampler.use(loaded.draw_kernel, loaded.best_of)
        engine.info = loaded.info
    engine.slept = None
    _open_the_door(engine, None)
    return WakeReport(time.monotonic() - start)


def _shut_the_door(engine: LLMEngine, force: bool) -> int:
    """From here on nothing is taken in, and nothing runs; how many requests are to be cancelled.

    Those in the inbox count: they were accepted, so that their callers wait for them.
    """
    with engine._gate:
        count = len(engine.requests) + engine._door.entered - engine._door.seen
        if count and not force:
            noun = "request is" if count == 1 else "requests are"
            raise BusyError(f"{count} {noun} running: wait for the end, or force (--force) cancels them", count)
        engine.state = "asleep"
    return count


def _open_the_door(engine: LLMEngine, slept: int | None) -> None:
    with engine._gate:
        if engine.state == "asleep" and slept is None:
            engine.state = "ready"


def _failed(engine: LLMEngine, error: Exception) -> EngineDeadError:
    """The engine ends, and says why."""
    from .device_errors import lost

    engine.failure, engine.state = lost(error) or error, "failed"
    return engine._dead()

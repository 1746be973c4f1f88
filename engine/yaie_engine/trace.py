"""A trace: one line for each layer of a forward with shape, dtype, norm, largest value and time.

`Tracer` makes the lines while a model runs; `Trace` keeps, prints, saves and reads them. Two traces of the same prompt
are compared by `trace_compare`. Norms are those of the rows of the whole step, summed in float64.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import ConfigError, RequestError, YaieError
from .trace_file import NO_LINK, TraceFile, opened

if TYPE_CHECKING:
    from torch import Tensor

    from .observation import ForwardRows, ModulePlace

logger = logging.getLogger(__name__)
VARIABLE = "YAIE_TRACE"
VERSION = 1
MAX_LINES = 200_000
MAX_BYTES = 256 * 2**20
STEPS = 8
LONGEST_LIST = 1000


@dataclass(frozen=True, slots=True)
class TraceLine:
    """What one module gave in one forward.

    `norm` is the Euclidean norm over all its values, `largest` the largest of their sizes, `mark` their sum weighted
    with cosines (a permutation or a changed sign shows there, and not in the norm). `num_bad` values are NaN or
    infinite; the figures are those of the others. `ms` leaves out what tracing itself took.
    """

    step: int
    forward: int
    module: str
    depth: int
    shape: tuple[int, ...]
    dtype: str
    norm: float
    largest: float
    mark: float
    num_bad: int
    ms: float
    requests: str


@dataclass(slots=True)
class Trace:
    """Lines in the order in which their modules ended. `about`: model, dtype, device, attention in one line."""

    about: str = ""
    lines: list[TraceLine] = field(default_factory=list)

    @property
    def steps(self) -> list[int]:
        """The numbers of the steps in it."""
        return list(dict.fromkeys(line.step for line in self.lines))

    def table(self, most: int | None = None) -> str:
        """The lines under a heading for each forward; of more than `most` lines the first ones."""
        shown = self.lines if most is None else self.lines[:most]
        width = max((2 * line.depth + len(line.module) for line in shown), default=6)
        rows, heading = [], None
        for line in shown:
            if (line.step, line.forward) != heading:
                heading = (line.step, line.forward)
                rows += [f"step {line.step}: {line.requests}", _columns(width)]
            rows.append(_row(line, width))
        if len(shown) < len(self.lines):
            rows.append(f"... {len(self.lines) - len(shown):,} more lines; save it to a file to read them all")
        return "\n".join([*([self.about] if self.about else []), *(rows or ["nothing was traced yet"])])

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        return self.table(most=200)

    def save(self, path: str | Path) -> Path:
        """Write it as JSON lines, for its owner alone.

        Raises:
            RequestError: the file cannot be written.
        """
        target = Path(path)
        lines = [_head(self.about), *(json.dumps(asdict(x)) for x in self.lines)]
        try:
            with open(opened(target, os.O_TRUNC), "w", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")
        except OSError as error:
            raise RequestError(f"cannot save {target}: {error.strerror or error}") from None
        return target


def read_trace(path: str | Path) -> Trace:
    """A saved trace. The file is not trusted: size, number of lines and every value are checked.

    Raises:
        RequestError: it cannot be read, or it is no trace.
    """
    target = Path(path)
    try:
        if not target.is_file():
            raise RequestError(f"{target} is no file")
        if target.stat().st_size > MAX_BYTES:
            raise RequestError(f"{target} is larger than {MAX_BYTES >> 20} MiB: no trace is")
        with target.open(encoding="utf-8") as file:
            head = json.loads(file.readline())
            if not isinstance(head, dict) or head.get("yaie_trace") != VERSION:
                raise RequestError(f"{target} is no trace of version {VERSION}")
            return Trace(_word(head.get("about", ""), 1000), [_line(json.loads(text)) for text in _bounded(file)])
    except OSError as error:
        raise RequestError(f"cannot read {target}: {error.strerror or error}") from None
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        if isinstance(error, YaieError):
            raise
        raise RequestError(f"{target} is no trace: {type(error).__name__} in one of its lines") from None


class Tracer:
    """Traces `num_steps` steps and is `done` then.

    `layers` (None: all) are numbers; `modules` adds what lies inside of layers. `told` hears the lines of each forward.
    The engine thread writes, anybody may take the `trace`.
    """

    def __init__(
        self,
        about: str = "",
        num_steps: int = STEPS,
        layers: frozenset[int] | None = None,
        modules: bool = False,
        told: Callable[[list[TraceLine]], object] | None = None,
    ) -> None:
        self._about, self._num_steps, self._layers, self._modules = _word(about, 1000), num_steps, layers, modules
        self._told = told
        self._lock = threading.Lock()
        self._lines: list[TraceLine] = []
        self._steps: set[int] = set()
        self._forward = 0
        self._fresh: list[TraceLine] = []
        self._rows: ForwardRows | None = None
        self._open: list[list[float]] = []

    @property
    def trace(self) -> Trace:
        """What is there so far."""
        with self._lock:
            return Trace(self._about, list(self._lines))

    @property
    def done(self) -> bool:
        """Whether there is nothing to be added any more."""
        return len(self._steps) >= self._num_steps or len(self._lines) >= MAX_LINES

    def begin(self, rows: ForwardRows, places: dict[str, ModulePlace]) -> None:
        """A forward begins; those of steps beyond the last are passed over."""
        more = rows.step in self._steps or not self.done
        self._rows = rows if more and len(self._lines) < MAX_LINES else None
        self._forward = self._forward + 1 if rows.step in self._steps else 0
        self._fresh, self._open = [], []

    def enter(self, place: ModulePlace, given: Tensor | None) -> None:
        """Its time begins."""
        if self._rows is not None:
            _wait(given)
            self._open.append([time.perf_counter(), 0.0])

    def leave(self, place: ModulePlace, output: Tensor | None) -> None:
        """Its time ends; its line is made unless it is one of those that are not wanted."""
        rows = self._rows
        if rows is None or not self._open:
            return
        _wait(output)
        now = time.perf_counter()
        begun, ours = self._open.pop()
        if output is not None and self._wanted(place):
            requests = _requests(rows)
            self._fresh.append(_measure(rows.step, self._forward, place, output, (now - begun - ours) * 1e3, requests))
        if self._open:
            self._open[-1][1] += ours + time.perf_counter() - now

    def end(self, logits: Tensor) -> dict[int, YaieError]:
        """The forward is done: nobody fails by being traced."""
        if self._rows is not None:
            with self._lock:
                self._steps.add(self._rows.step)
                self._lines += self._fresh[: MAX_LINES - len(self._lines)]
            self._tell()
        self._rows = None
        return {}

    def _tell(self) -> None:
        """A disk that is full or a screen that is gone must not fail the step: it is told once, and no more lines."""
        if self._told is None:
            return
        try:
            self._told(self._fresh)
        except (OSError, ValueError) as error:  # ValueError: a closed stream
            self._told = None
            logger.warning("The trace is not written any more: %s", error)

    def _wanted(self, place: ModulePlace) -> bool:
        if self._layers is not None and (place.layer is None or place.layer not in self._layers):
            return False
        return place.is_layer or self._modules or (place.outside and "." not in place.name.removeprefix("model."))


def check_environment() -> None:
    """Whether what YAIE_TRACE names can be written: asked before a model is loaded, not after. Leaves a file as it is.

    Raises:
        ConfigError: it cannot.
    """
    wish = os.environ.get(VARIABLE, "")
    if not wish or wish.isdecimal():
        return
    missing = not os.path.lexists(wish)
    try:
        os.close(opened(wish, NO_LINK))
        if missing:
            os.unlink(wish)
    except (OSError, ValueError) as error:  # ValueError: a null byte
        raise ConfigError(_unwritten(wish, error)) from None


def tracer_from_environment(about: str) -> Tracer | None:
    """What YAIE_TRACE asks for at load: 1 prints the first steps on stderr, a number more of them, else it is a file.

    A file gets the lines as `Trace.save` writes them, after each forward; once lost it gets no more, and one warning
    says so. 0 or nothing: no trace.

    Raises:
        ConfigError: the file cannot be written.
    """
    wish = os.environ.get(VARIABLE, "")
    if wish in ("", "0"):
        return None
    if wish.isdecimal():
        return Tracer(about, STEPS if wish == "1" else min(int(wish[:9]), MAX_LINES), told=_print)
    try:
        file = TraceFile(wish)
        file.write([_head(_word(about, 1000))])
    except (OSError, ValueError) as error:
        raise ConfigError(_unwritten(wish, error)) from None
    return Tracer(about, told=partial(_append, file))


def _unwritten(wish: str, error: Exception) -> str:
    why = getattr(error, "strerror", None) or error
    if isinstance(error, OSError) and error.errno == errno.ELOOP:
        why = "it is a link, which is not followed"
    return f"{VARIABLE}={wish}: cannot be written: {why}; give 0, 1, a number of steps, or a file"


def _head(about: str) -> str:
    return json.dumps({"yaie_trace": VERSION, "about": about})


def _print(lines: list[TraceLine]) -> None:
    print("\n" + Trace("", lines).table(), file=sys.stderr, flush=True)  # a text may be under way on the same screen


def _append(file: TraceFile, lines: list[TraceLine]) -> None:
    file.write([json.dumps(asdict(line)) for line in lines])


def layer_numbers(text: str) -> frozenset[int]:
    """ "0,2-4" as numbers.

    Raises:
        RequestError: it is no such list.
    """
    found: set[int] = set()
    if len(text) > LONGEST_LIST:
        raise RequestError(f"layers: a list of {len(text):,} characters; at most {LONGEST_LIST} are allowed")
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()) or "-" in (part.strip()[-1:], part.strip()[:1]):
            raise RequestError(f"layers: {text!r} is no list of numbers such as 0,2-4")
        if int(last or first) > 9999 or int(last or first) < int(first):
            raise RequestError(f"layers: {part.strip()!r}: numbers up to 9999 from low to high are allowed")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def _measure(step: int, forward: int, place: ModulePlace, output: Tensor, ms: float, requests: str) -> TraceLine:
    import torch

    with torch.inference_mode():
        values = output.detach().reshape(-1).double()
        finite = torch.isfinite(values)
        clean = torch.where(finite, values, 0.0)
        weights = torch.cos(torch.arange(clean.numel(), device=clean.device, dtype=torch.float64) * 2.399963)
        largest = clean.abs().max() if clean.numel() else clean.sum()
        figures = torch.stack((clean.norm(), largest, clean @ weights, (~finite).sum().double())).tolist()
    dtype = str(output.dtype).removeprefix("torch.")
    norm, size, mark, bad = figures
    return TraceLine(
        step, forward, place.name, place.depth, tuple(output.shape), dtype, norm, size, mark, int(bad), ms, requests
    )


def _wait(tensor: Tensor | None) -> None:
    """Times of a device that works by itself are those of its work."""
    if tensor is not None and tensor.is_cuda:
        import torch

        torch.cuda.synchronize(tensor.device)


def _requests(rows: ForwardRows) -> str:
    """Who is in a forward: r1 decode at 17, r2 prefill 0-63; of many the first."""
    named = [
        f"{entry.seq.request_id} {entry.kind} "
        + (f"at {entry.start}" if entry.num_tokens == 1 else f"{entry.start}-{entry.stop - 1}")
        for entry in rows.entries[:4]
    ]
    more = len(rows.entries) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")


def _columns(width: int) -> str:
    return f"  {'module':<{width}}  {'shape':<16} {'dtype':<9} {'norm':>11} {'largest':>11} {'ms':>8}"


def _row(line: TraceLine, width: int) -> str:
    name = "  " * line.depth + line.module
    shape = "x".join(map(str, line.shape))
    bad = f"  {line.num_bad:,} NaN or infinite" if line.num_bad else ""
    figures = f"{line.norm:>11.5g} {line.largest:>11.5g} {line.ms:>8.3f}"
    return f"  {name:<{width}}  {shape:<16} {line.dtype:<9} {figures}{bad}"


def _bounded(lines: Iterable[str]) -> Iterable[str]:
    for number, text in enumerate(lines):
        if number >= MAX_LINES:
            raise RequestError(f"a trace has at most {MAX_LINES:,} lines")
        if text.strip():
            yield text


def _line(value: object) -> TraceLine:
    """One line of a file."""
    if not isinstance(value, dict) or set(value) != set(TraceLine.__slots__):
        raise ValueError("other fields")
    whole = {name: _count(value[name]) for name in ("step", "forward", "depth", "num_bad")}
    parts = {name: float(value[name]) for name in ("norm", "largest", "mark", "ms")}
    words = {name: _word(value[name], 400) for name in ("module", "dtype", "requests")}
    if not all(map(math.isfinite, parts.values())) or whole["depth"] > 64:
        raise ValueError("a figure out of range")
    if not isinstance(value["shape"], list):
        raise TypeError("no shape")
    shape = tuple(_count(size) for size in value["shape"][:16])
    return TraceLine(**whole, **parts, **words, shape=shape)  # type: ignore[arg-type]


def _count(value: object) -> int:
    """A number of things, which every machine can hold."""
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError("no count")
    return value


def _word(value: object, most: int) -> str:
    """A text of a file, safe to print: a terminal obeys none of it."""
    if not isinstance(value, str):
        raise TypeError("no text")
    return "".join(char if char.isprintable() else "\ufffd" for char in value[:most])

"""Anomaly mode: names the module, request and position where the first NaN or infinity of a forward appeared.

After PyTorch's anomaly detection, for a forward. What decides are the outputs of a model's layers and its logits before
masks and bias; modules inside of layers only tell where it began, since a NaN that reaches no layer's output (a mask of
-inf, say) harms nobody. Only the requests whose own rows are bad fail. All is compared on the device; the host waits
for it once a forward.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .batch import unusable
from .errors import AnomalyError, YaieError
from .observation import ForwardRows, ModulePlace
from .plan import ScheduledSequence

LOGITS = "the logits"


@dataclass(slots=True)
class Seen:
    """What went into a module and came out: bad rows, bool [tokens or kept rows] each, None where rows do not map."""

    place: ModulePlace
    given: Tensor | None
    output: Tensor | None = None


class AnomalyWatch:
    """The observer behind `LLM.detect_anomaly`."""

    done = False

    def __init__(self) -> None:
        self._rows: ForwardRows | None = None
        self._places: dict[str, ModulePlace] = {}
        self._seen: list[Seen] = []
        self._open: list[Seen] = []

    def begin(self, rows: ForwardRows, places: dict[str, ModulePlace]) -> None:
        """Forget the forward before, which may have ended in an error."""
        self._rows, self._places = rows, places
        self._seen, self._open = [], []

    def enter(self, place: ModulePlace, given: Tensor | None) -> None:
        """Note the bad rows of what goes in; it may be changed in place later."""
        self._open.append(Seen(place, self._bad_rows(given, place)))

    def leave(self, place: ModulePlace, output: Tensor | None) -> None:
        """Note the bad rows of what comes out."""
        while self._open:
            seen = self._open.pop()
            if seen.place is place:
                seen.output = self._bad_rows(output, place)
                self._seen.append(seen)
                return

    def end(self, logits: Tensor) -> dict[int, YaieError]:
        """One error for each sequence that has a bad row in a layer's output or in its logits."""
        rows, self._rows = self._rows, None
        if rows is None:
            return {}
        deciding = [seen.output for seen in self._seen if seen.place.is_layer and seen.output is not None]
        bad_logits = unusable(logits)
        if not bool(torch.stack([mask.any() for mask in (*deciding, bad_logits)]).any()):
            return {}
        found: dict[int, YaieError] = {}
        for entry, start in zip(rows.entries, rows.starts, strict=False):
            mine = slice(start, start + entry.num_tokens)
            kept = [i for i, row in enumerate(rows.kept) if mine.start <= row < mine.stop]
            if any(bool(mask[mine].any()) for mask in deciding) or bool(bad_logits[kept].any()):
                found[entry.seq.seq_id] = self._tell(rows, entry, start, bad_logits)
        self._seen = []
        return found

    def _tell(self, rows: ForwardRows, entry: ScheduledSequence, start: int, bad_logits: Tensor) -> AnomalyError:
        """The earliest module that had a bad row of `entry`, and what is known about how it came there."""
        for seen in self._seen:
            for mask, before in ((seen.given, True), (seen.output, False)):
                row = _first_row(mask, rows, start, entry.num_tokens)
                if row is not None:
                    position = entry.start + row - start
                    return self._error(rows, entry, seen.place, position, before)
        row = _first_row(bad_logits, rows, start, entry.num_tokens)
        position = entry.stop - 1 if row is None else entry.start + row - start
        return _anomaly(rows, entry, LOGITS, position, "its layers gave numbers")

    def _error(
        self, rows: ForwardRows, entry: ScheduledSequence, place: ModulePlace, position: int, before: bool
    ) -> AnomalyError:
        if not before:
            return _anomaly(rows, entry, place.name, position, "what went into it was finite: look at its weights")
        around = self._places.get(place.parent, place)
        if around is place or place.is_layer:  # nothing around it was seen
            return _anomaly(rows, entry, place.name, position, "it went in like this")
        in_cache = ""
        why = f"it arose between modules, before {place.name.rpartition('.')[2]}"
        if around.attention is not None:
            in_cache = _damaged(rows, entry, around.attention)
            why = in_cache or f"{why}: in its attention"
        return _anomaly(rows, entry, around.name, position, why, in_cache=bool(in_cache))

    def _bad_rows(self, tensor: Tensor | None, place: ModulePlace) -> Tensor | None:
        """Which tokens (of a head: kept rows) have something that is not finite, bool [rows]; None: nobody can say."""
        rows = self._rows
        if tensor is None or rows is None:
            return None
        counts = (rows.num_tokens, len(rows.kept)) if place.is_head else (rows.num_tokens,)
        axes = [axis for axis in range(max(1, tensor.dim() - 1)) if tensor.shape[axis] in counts]
        if not axes or not tensor.numel():
            return None
        axis = 1 if 1 in axes and tensor.dim() > 2 and tensor.shape[0] == 1 else axes[0]
        return ~torch.isfinite(tensor).movedim(axis, 0).reshape(tensor.shape[axis], -1).all(1)


def _first_row(mask: Tensor | None, rows: ForwardRows, start: int, count: int) -> int | None:
    """The first bad row among `count` from `start` on, as a row of the forward."""
    if mask is None:
        return None
    bad = [i for i, is_bad in enumerate(mask.tolist()) if is_bad]
    if len(mask) != rows.num_tokens:
        bad = sorted(rows.kept[i] for i in bad)
    return next((row for row in bad if start <= row < start + count), None)


def _damaged(rows: ForwardRows, entry: ScheduledSequence, layer: int) -> str:
    """Where the KV that `entry` reads, but did not compute in this forward, holds no numbers; empty: nowhere."""
    pair, size = rows.cache.layers.get(layer), rows.cache.block_size
    for index, block in enumerate(entry.table[: -(-entry.start // size)] if pair else ()):
        held = min(size, entry.start - index * size)
        for which, tensor in zip(("K", "V"), pair or (), strict=False):
            bad = ~torch.isfinite(tensor[block, :, :held]).all(2).all(0)
            if bool(bad.any()):
                position = index * size + int(bad.int().argmax())
                return f"{which} of position {position} (block {block}) is damaged in the KV cache"
    return ""


def _anomaly(
    rows: ForwardRows, entry: ScheduledSequence, module: str, position: int, why: str, in_cache: bool = False
) -> AnomalyError:
    seq = entry.seq
    return AnomalyError(
        f"NaN or infinity in {module}, first at position {position} of request {seq.request_id} "
        f"({entry.kind}, step {rows.step}); {why}",
        module=module,
        request_id=seq.request_id,
        position=position,
        in_cache=in_cache,
    )

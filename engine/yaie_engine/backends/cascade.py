"""When decodes below a shared prefix are served by the cascade, and their groups on the device."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from yaie_engine.plan import StepPlan
from yaie_engine.sharing import Sharing, share
from yaie_engine.upload import upload

if TYPE_CHECKING:
    from yaie_cuda.cascade import AttentionSize

Shape = tuple[int, int, int, int]
"""Heads, key heads, numbers a head, bytes a number."""
L2_BYTES = 50_000_000
NEVER = 1 << 40
"""Longer than any context, and than any window."""
# What must be saved in each layer, in bytes that are moved at 4 TB/s while Python does the cascade's part of the work.
REPLAY_BYTES = 25e6  # the groups of a step: 100 microseconds over 16 layers
EAGER_BYTES = 60e6  # and the further launches of a layer: 15 microseconds


@dataclass(slots=True)
class CascadeGate:
    """Decides by bytes saved against what the cascade costs. `shapes` are those of the layers it can serve.

    Layers tell their shape when they attend, first in the check at load. A prefix that is read once for all is seen
    whole by all: layers whose sliding window is shorter than the `longest` context decode plainly. A step that is
    replayed as a CUDA graph pays for its launches on the device only; one that is launched from Python pays there too.
    """

    l2_bytes: int = L2_BYTES
    shapes: set[Shape] = field(default_factory=set)
    longest: int = NEVER
    windowed: bool = False

    def serves(self, sliding_window: int, shape: Shape) -> bool:
        """Whether a cascade is right for a layer; takes down what was asked."""
        if 0 < sliding_window < self.longest:
            self.windowed = True
            return False
        self.shapes.add(shape)
        return True

    @property
    def reason(self) -> str:
        """Why prefixes are not read together, or not in all layers; "" when they can be."""
        from yaie_cuda.planning import DECODE_ROWS

        rows = max((heads // kv_heads for heads, kv_heads, _, _ in self.shapes), default=0)
        if rows > DECODE_ROWS:
            return f"prefixes are not read together: {rows} heads share a key head, the cascade takes {DECODE_ROWS}"
        if self.windowed:
            where = "in layers with a sliding window" if self.shapes else "since every layer has a sliding window"
            return f"prefixes are not read together {where}"
        return ""

    def ever(self, rows: int, block_size: int) -> bool:
        """Whether `rows` decodes below the longest prefix would gain, replayed."""
        prefix = (self.longest - 1) // block_size * block_size
        sharing = Sharing(tuple(range(rows)), (0, rows), (prefix,))
        return bool(self.shapes) and all(self._worth(sharing, shape, True) for shape in self.shapes)

    def choose(self, plan: StepPlan, block_size: int, replayed: bool) -> Sharing | None:
        """The groups among the one-token entries of `plan`, if the cascade is worth it for every shape of layer."""
        decodes = [entry for entry in plan.batch if entry.num_tokens == 1]
        if len(decodes) < 2 or not self.shapes:
            return None
        contexts = [entry.stop for entry in decodes]
        if self._hopeless(sum(contexts)):
            return None
        sharing = share([entry.table for entry in decodes], contexts, block_size)
        if sharing is None or not all(self._worth(sharing, shape, replayed) for shape in self.shapes):
            return None
        return sharing

    def _hopeless(self, num_tokens: int) -> bool:
        """Whether all that the decodes read takes no longer than the cascade's launches: groups are not looked for."""
        from yaie_cuda.cascade import EXTRA_LAUNCHES

        return any(num_tokens * _size(shape).token_bytes < EXTRA_LAUNCHES for shape in self.shapes)

    def _worth(self, sharing: Sharing, shape: Shape, replayed: bool) -> bool:
        from yaie_cuda import cascade
        from yaie_cuda.planning import DECODE_ROWS

        size = _size(shape)
        if size.num_heads // size.num_kv_heads > DECODE_ROWS:
            return False  # the op would take the plain way
        groups, count = [group for group in sharing.groups if group[1]], len(sharing.order)
        if not cascade.worth_cascading(groups, size, count, self.l2_bytes):
            return False
        flat = cascade.flat_cost(groups, size, self.l2_bytes)
        saved = flat - cascade.cascade_cost(groups, size, self.l2_bytes, count)
        return saved > (REPLAY_BYTES if replayed else EAGER_BYTES)


def _size(shape: Shape) -> AttentionSize:
    from yaie_cuda.cascade import AttentionSize

    heads, kv_heads, head_dim, itemsize = shape
    return AttentionSize(heads, kv_heads, head_dim, itemsize=itemsize)


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of decodes on the device, as `cascade_attention_decode` takes them.

    `flat` int32 [num_groups + 1 + rows]: where each group starts, then the shared tokens of each row. No group has more
    than `largest` rows.
    """

    flat: Tensor
    num_groups: int
    largest: int

    @classmethod
    def of(cls, sharing: Sharing, device: torch.device) -> Groups:
        """The groups of one step."""
        flat = upload([*sharing.starts, *sharing.shared_lens], torch.int32, device)
        return cls(flat, len(sharing.prefixes), sharing.largest)

    @classmethod
    def room(cls, num_groups: int, rows: int, device: torch.device) -> Groups:
        """Any groups of a captured step, at a fixed address; first all rows are one group that shares nothing."""
        flat = torch.zeros(num_groups + 1 + rows, dtype=torch.int32, device=device)
        flat[1 : num_groups + 1] = rows
        return cls(flat, num_groups, rows)

    @property
    def starts(self) -> Tensor:
        """int32 [num_groups + 1]"""
        return self.flat[: self.num_groups + 1]

    @property
    def shared_lens(self) -> Tensor:
        """int32 [rows]"""
        return self.flat[self.num_groups + 1 :]


def groups_needed(sharing: Sharing, rows: int) -> int:
    """The groups of a step that is padded to `rows` rows."""
    return len(sharing.prefixes) + (rows > len(sharing.order) and sharing.prefixes[-1] > 0)


def padded(sharing: Sharing, num_groups: int, rows: int) -> list[int]:
    """The content of `Groups.flat` for a step padded to `rows` rows and at least the groups that it needs.

    Rows that stand for no sequence share nothing: they join those that share nothing, or make a group of their own.
    """
    starts, lens = list(sharing.starts), sharing.shared_lens
    left = num_groups - len(sharing.prefixes)
    if left:
        starts += [rows] * left
    else:
        starts[-1] = rows
    return [*starts, *lens, *[0] * (rows - len(lens))]

"""What a check found: plain data that a process can send as JSON. Knows no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Difference:
    """One tensor of a case, held beside the reference.

    `max_error` is the largest absolute difference; `relative_error` the largest difference of an element over the sum
    of its own size and the tensor's root mean square. Both are infinite where one side is NaN and the other is not.
    `wrong` elements are beyond the tolerance; `index`, `got` and `expected` belong to the first of them, if any.
    """

    tensor: str
    max_error: float
    relative_error: float
    tolerance: float
    wrong: int
    elements: int
    index: tuple[int, ...] | None = None
    got: float | None = None
    expected: float | None = None

    @property
    def ok(self) -> bool:
        """Whether every element is within the tolerance."""
        return self.wrong == 0

    @property
    def words(self) -> str:
        """The first wrong element in words; "" when there is none."""
        if self.index is None:
            return ""
        place = f"{self.tensor}[{', '.join(map(str, self.index))}]"
        wrong = f"{self.wrong:,} of {self.elements:,} elements are wrong"
        return f"{place} is {number(self.got)} and should be {number(self.expected)}; {wrong}"


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One case. `failure` says in one line why the kernel did not come to an end, or what it touched beside its
    tensors; `log` is more of it. `how` names the way of running that brought the fault to light, "" for the plain one.
    Times in milliseconds, None where they were not taken."""

    title: str
    labels: tuple[str, ...]
    differences: tuple[Difference, ...] = ()
    failure: str = ""
    log: str = ""
    how: str = ""
    milliseconds: float | None = None
    built_in_milliseconds: float | None = None

    @property
    def ok(self) -> bool:
        """Whether the kernel gave what the reference gives, and touched nothing else."""
        return not self.failure and all(each.ok for each in self.differences)

    @property
    def worst(self) -> Difference | None:
        """The tensor that is furthest off; None when nothing was compared."""
        return max(self.differences, key=lambda each: (not each.ok, each.relative_error), default=None)

    @property
    def words(self) -> str:
        """What is wrong, in one line; "" when nothing is."""
        wrong = self.failure or next((each.words for each in self.differences if not each.ok), "")
        return f"{wrong} ({self.how})" if wrong and self.how else wrong

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CaseResult:
        """From `to_dict`, through JSON or not."""
        differences = tuple(
            Difference(**{**each, "index": None if each["index"] is None else tuple(each["index"])})
            for each in data["differences"]
        )
        return cls(**{**data, "labels": tuple(data["labels"]), "differences": differences})


def number(value: float | None) -> str:
    """A figure as short as it can be told apart."""
    return "—" if value is None else f"{value:.6g}"

"""The parts of the check: what each is for, the most seconds it may take, and the module that does it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Part:
    """`module` of this package has `run(context)`. `seconds` are its limit on a GPU, the start of Python included."""

    name: str
    words: str
    seconds: int
    module: str


# Together under eight minutes. What is most worth knowing comes first: a later part may be cut short.
PARTS = (
    Part("machine", "the machine, its versions and its yardsticks", 25, "machine"),
    Part("compile", "every specialisation compiled and loaded", 50, "compiling"),
    Part("ops", "every op against its reference in float64, plainly and from a graph", 70, "op_checks"),
    Part("times", "kernels under graph replay, launches", 60, "times"),
    Part("engine", "the engine's tokens against transformers", 50, "engine_checks"),
    Part("speed", "decode and prefill of models in their true shapes", 75, "engine_times"),
    Part("workload", "the nano-vllm workload against transformers continuous batching", 95, "workload"),
    Part("sanitizer", "compute-sanitizer over the small cases", 45, "sanitizer"),
)
BY_NAME = {part.name: part for part in PARTS}


def chosen(names: str | None) -> list[Part]:
    """The parts named, with commas between them, in the usual order; all without names.

    Raises:
        ValueError: a name is none.
    """
    if names is None:
        return list(PARTS)
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in BY_NAME:
            raise ValueError(f"no part {name!r}; there are {', '.join(BY_NAME)}")
    return [part for part in PARTS if part.name in wanted]

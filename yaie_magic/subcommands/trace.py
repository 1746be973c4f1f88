"""`%yaie trace on | off | show | compare`: a line for each layer of a step, and the first layer where two differ."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from yaie_magic.options import Option, UsageProblem, option

from .entry import ENGINE, Call, Subcommand
from .local import local_llm

if TYPE_CHECKING:
    from yaie_engine.trace import Trace

WORDS = ("on", "off", "show", "compare")
STEPS = option("steps", "trace so many steps [default: 8]", kind="int", metavar="N")
LAYERS = option("layers", "these layers alone, such as 0,2-4", metavar="N,N-N")
MODULES = option("modules", "the modules inside of each layer, too", kind="flag")
SAVE = option("save", "write the trace to this file, too (with off or show)", metavar="FILE")
TOLERANCE = option("tolerance", "largest relative difference with compare [default: 0.001]", kind="float", metavar="X")
MOST_STEPS = 10_000
USED = {"on": {"steps", "layers", "modules"}, "off": {"save"}, "show": {"save"}, "compare": {"tolerance"}}


def _trace(call: Call) -> Any:
    words: list[str] = call.given.get("words", [])
    word = words[0] if words else "show"
    if word not in WORDS:
        local_llm(call, "trace", word, WORDS)
    _check_options(call, word)
    if word == "compare":
        return _compare(call, words[1:])
    if word == "show" and len(words) == 2:
        return _kept(_find(call, words[1]), call)
    if len(words) > 1:
        raise UsageProblem(f"trace: unexpected word {words[1]!r} after {word}")
    llm = local_llm(call, "trace", word, WORDS)
    if word == "on":
        return _on(call)
    tracer = llm.tracer
    if tracer is None:
        print("Nothing is traced; %yaie trace on begins.")
        return None
    if word == "off":
        llm.trace(None)
    return _kept(tracer.trace, call)


def _on(call: Call) -> None:
    from yaie_engine.trace import STEPS as USUAL
    from yaie_engine.trace import Tracer, layer_numbers

    steps = call.given.get("steps", USUAL)
    if not isinstance(steps, int) or not 1 <= steps <= MOST_STEPS:
        raise UsageProblem(f"trace: --steps {steps!r}: 1 to {MOST_STEPS:,} are allowed")
    layers = layer_numbers(call.given["layers"]) if "layers" in call.given else None
    llm = local_llm(call, "trace", "on", WORDS)
    llm.trace(Tracer(llm.about, steps, layers, bool(call.given.get("modules"))))
    print(f"The next {steps:,} {'step is' if steps == 1 else 'steps are'} traced; %yaie trace off gives the table.")


def _kept(trace: Trace, call: Call) -> Trace:
    if "save" in call.given:
        print(f"Saved to {trace.save(call.given['save'])}.")
    return trace


def _compare(call: Call, names: list[str]) -> Any:
    from yaie_engine.trace_compare import TOLERANCE as USUAL
    from yaie_engine.trace_compare import compare_traces

    if len(names) != 2:
        raise UsageProblem("trace compare: two traces are needed, each a name of this notebook or a file")
    tolerance = call.given.get("tolerance", USUAL)
    if not isinstance(tolerance, int | float) or not 0 <= tolerance < float("inf"):
        raise UsageProblem(f"trace compare: --tolerance {tolerance!r} is not a number of 0 or more")
    return compare_traces(_find(call, names[0]), _find(call, names[1]), float(tolerance))


def _find(call: Call, name: str) -> Trace:
    """The trace of a name in the notebook, or of a file."""
    from yaie_engine.trace import Trace, read_trace

    value = call.shell.user_ns.get(name)
    if isinstance(value, Trace):
        return value
    if value is not None and not Path(name).exists():
        raise UsageProblem(f"trace: {name} is a {type(value).__name__}, not a trace")
    return read_trace(name)


def _check_options(call: Call, word: str) -> None:
    own = {name for names in USED.values() for name in names}
    for name in sorted(call.given.keys() & own - USED[word]):
        owner = " or ".join(each for each in WORDS if name in USED[each])
        raise UsageProblem(f"trace: --{name} is for {owner}")


def _options() -> tuple[Option, ...]:
    return (STEPS, LAYERS, MODULES, SAVE, TOLERANCE, ENGINE)


SUBCOMMANDS = (
    Subcommand(
        "trace",
        "one line for each layer of a step: shape, norm, largest value, time; compare two",
        _trace,
        _options,
        (("words", "*", "on, off, show [FILE], compare TRACE TRACE (names or files) [default: show]"),),
        lambda: WORDS,
    ),
)

"""`yaie bench`: this engine on the workloads of the comparison; `yaie bench serve URL`: load on a server."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from yaie_magic.bench.trial import FIGURES, figures
from yaie_magic.bench.workloads import FULL, SMALL, WORKLOADS, Sizes, make, random_ids, scaled
from yaie_magic.cli import DONE, set_up_logging
from yaie_magic.commands.generate import chosen
from yaie_magic.options import UsageProblem, engine_options, option
from yaie_magic.parser import OptionParser

if TYPE_CHECKING:
    from yaie_engine import LLM

SERVE = "serve"
ABOUT = (
    "Measure this engine on workloads that notebooks and small servers have: "
    + "; ".join(f"{name}: {words}" for name, (words, _) in WORKLOADS.items())
    + ". Prompts are random token ids, generation is greedy and ignores the end of a text. `yaie bench serve URL` puts "
    "load on a server instead."
)
PLACES = (("workloads", "*", f"some of {', '.join(WORKLOADS)} [default: all]"),)
MOST_REPETITIONS = 1000
OWN = (
    option("model", "bundled model, local folder, Hub id or .gguf file [default: tiny]", metavar="MODEL"),
    option("repetitions", "how often each workload runs, after once for nothing [default: 3]", kind="int", metavar="N"),
    option("small", "short prompts and few requests: a trial, no measurement", kind="flag"),
    option("json", "one JSON object instead of a table", kind="flag"),
    option("verbose", "say on standard error with which settings the engine starts", "-v", kind="flag"),
    option("config", "YAML file with settings, below the environment and options", metavar="FILE"),
)


def run(arguments: Sequence[str]) -> int:
    """Parse, load, measure, print; or hand over to `yaie bench serve`."""
    if arguments and arguments[0] == SERVE:
        from yaie_magic.commands import bench_serve

        return bench_serve.run(arguments[1:])
    given = OptionParser("yaie bench", (*OWN, *engine_options()), ABOUT, PLACES).parse(arguments)
    set_up_logging(given.get("verbose", False))

    from yaie_magic.loading import load
    from yaie_magic.settings import engine_settings

    names = workloads(given.get("workloads", []))
    repetitions = given.get("repetitions", 3)
    if not isinstance(repetitions, int) or not 1 <= repetitions <= MOST_REPETITIONS:
        raise UsageProblem(f"--repetitions {repetitions}: a number from 1 to {MOST_REPETITIONS}")
    config = engine_settings(given.get("config"), chosen(given, engine_options(), also=("model",)))
    with load(config) as llm:
        found = measure(llm, names, repetitions, small=given.get("small", False))
    print(json.dumps(found) if given.get("json") else table(found), flush=True)
    return DONE


def workloads(words: Sequence[str]) -> list[str]:
    """Names in the order of the table, however they are written.

    Raises:
        UsageProblem: there is none of that name.
    """
    from yaie_engine.validation import did_you_mean

    known = {name.lower(): name for name in WORKLOADS}
    for word in words:
        if word.lower() not in known:
            hint = did_you_mean(word, (*WORKLOADS, SERVE)) or f"; there are {', '.join(WORKLOADS)}"
            raise UsageProblem(f"unknown workload {word!r}{hint}")
    wanted = {known[word.lower()] for word in words}
    return [name for name in WORKLOADS if not wanted or name in wanted]


def measure(llm: LLM, names: Sequence[str], repetitions: int, small: bool) -> dict[str, Any]:
    """Every figure of every repetition.

    Raises:
        UsageProblem: a workload is too long for the model.
    """
    from yaie_magic import __version__
    from yaie_magic.bench import ours
    from yaie_magic.bench.cores import usable_cores

    sizes: Sizes = SMALL if small else scaled(FULL, usable_cores())
    ids = random_ids(llm.vocab_size)
    made = {name: [make(name, ids, sizes, i) for i in range(repetitions + 1)] for name in names}
    for name, each in made.items():
        if each[0].longest > llm.max_model_len:
            raise UsageProblem(
                f"{name} needs {each[0].longest} tokens in one request, this engine takes {llm.max_model_len}; name "
                f"other workloads, or try --small"
            )
    rows = []
    for name, runs in made.items():
        ours.run(llm, runs[0])  # compiles and allocates
        found = [figures(name, ours.run(llm, each)) for each in runs[1:]]
        asked = {"requests": len(runs[0].asks), "output_tokens": sum(ask.tokens for ask in runs[0].asks)}
        rows.append({"name": name, "words": runs[0].words, **asked, "repetitions": found})
    about = llm.snapshot().model
    model = {"name": about.name, "dtype": about.dtype, "device": about.device, "attention": about.attention_backend}
    return {"version": __version__, "model": model, "small": small, "workloads": rows}


def table(found: dict[str, Any]) -> str:
    """A line for each figure: median and range."""
    model = found["model"]
    lines = [f"{model['name']}, {model['dtype']} on {model['device']} ({model['attention']})"]
    for row in found["workloads"]:
        lines.append(f"{row['name']}: {row['words']} ({row['requests']} requests, {row['output_tokens']} tokens)")
        for figure in FIGURES[row["name"]]:
            values = [each[figure.name] for each in row["repetitions"]]
            spread = f"   {min(values):.4g} to {max(values):.4g}" if len(values) > 1 else ""
            lines.append(f"  {figure.words:<22}{statistics.median(values):>10.4g} {figure.unit:<9}{spread}")
    if found["small"]:
        lines.append("short prompts (--small): no measurement")
    return "\n".join(lines)

"""`yaie bench`: this engine on the workloads of the comparison; `yaie bench serve URL`: load on any server."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from yaie_magic import logs
from yaie_magic.bench.options import LOAD, Wanted, joined_goals, wanted
from yaie_magic.bench.trial import FIGURES, figures
from yaie_magic.bench.workloads import FULL, SMALL, WORKLOADS, make, random_ids, scaled
from yaie_magic.cli import DONE, FAILED, complain
from yaie_magic.commands import form
from yaie_magic.options import Group, UsageProblem, engine_options, option
from yaie_magic.parser import OptionParser

if TYPE_CHECKING:
    from yaie_engine import LLM

SERVE = "serve"
ABOUT = (
    "Measure this engine on workloads that notebooks and small servers have: prompts of random token ids, greedy, the "
    "end of a text ignored. Or put load on a server with the OpenAI API: `yaie bench serve URL` sends requests when "
    "they are due, whether or not the earlier ones are answered, and counts times from then. Workloads: "
    + "; ".join(f"{name}: {words}" for name, (words, _) in WORKLOADS.items())
    + "."
)
PLACES = (("workloads", "*", f"some of {', '.join(WORKLOADS)} [default: all]; or `serve URL`"),)
MOST_REPETITIONS = 1000
OWN = (
    option("model", f"{form.MODEL}; with serve, one of the server's models [default: its first]", metavar="MODEL"),
    option("json", "one JSON object instead of a table", kind="flag"),
)
HERE = Group(
    "workloads",
    (
        option("repetitions", "how often each runs, after once for nothing [default: 3]", kind="int", metavar="N"),
        option("small", "short prompts and few requests: a trial, no measurement", kind="flag"),
        form.CONFIG,
    ),
)
EXAMPLES = (
    ("every workload on the bundled model", "yaie bench"),
    ("two of them on another model, in bfloat16", "yaie bench W1 W5 --model ./llama --dtype bfloat16"),
    ("20 requests a second on a server, for a program", "yaie bench serve localhost:8000 --request-rate 20 --json"),
    (
        "how many requests a second are answered well",
        "yaie bench serve localhost:8000 --request-rate 4 --goodput ttft:500,tpot:50",
    ),
)


def parser() -> OptionParser:
    """The options of both uses, then those of the engine."""
    groups = form.with_logging(HERE, LOAD, *form.engine_groups(without=(*OWN, *LOAD.options)))
    return form.form("bench", ABOUT, OWN, PLACES, groups, EXAMPLES, (form.SETTINGS, form.KEY, form.CACHES))


def run(arguments: Sequence[str]) -> int:
    """Parse, then one or the other."""
    given = parser().parse(joined_goals(arguments))
    logs.set_up(given)
    words = given.get("workloads", [])
    serving = words[:1] == [SERVE]
    refuse_mixed(given, serving)
    return run_serve(wanted(words[1:], given), given) if serving else run_here(words, given)


def refuse_mixed(given: Mapping[str, Any], serving: bool) -> None:
    """Options of the use that was not asked for are no decoration.

    Raises:
        UsageProblem: one was given.
    """
    engine = tuple(entry for entry in engine_options() if entry.name not in {each.name for each in LOAD.options})
    others = (*HERE.options, *engine) if serving else LOAD.options
    for entry in others:
        if entry.name in given:
            use = "measuring the engine here" if serving else "yaie bench serve URL"
            raise UsageProblem(f"{entry.long} is for {use}")


def run_here(words: Sequence[str], given: Mapping[str, Any]) -> int:
    """Load and measure."""
    from yaie_magic.loading import load
    from yaie_magic.settings import chosen, engine_settings

    names = workloads(words)
    repetitions = given.get("repetitions", 3)
    if not isinstance(repetitions, int) or not 1 <= repetitions <= MOST_REPETITIONS:
        raise UsageProblem(f"--repetitions {repetitions}: a number from 1 to {MOST_REPETITIONS}")
    config = engine_settings(given.get("config"), chosen(given, engine_options(), without=("seed",), also=("model",)))
    logs.adopt_libraries()
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
    named = {known[word.lower()] for word in words}
    return [name for name in WORKLOADS if not named or name in named]


def measure(llm: LLM, names: Sequence[str], repetitions: int, small: bool) -> dict[str, Any]:
    """Every figure of every repetition.

    Raises:
        UsageProblem: a workload is too long for the model.
    """
    from yaie_magic import __version__
    from yaie_magic.bench import ours
    from yaie_magic.bench.cores import usable_cores

    sizes = SMALL if small else scaled(FULL, usable_cores())
    ids = random_ids(llm.vocab_size)
    made = {name: [make(name, ids, sizes, i) for i in range(repetitions + 1)] for name in names}
    for name, each in made.items():
        if each[0].longest > llm.max_model_len:
            raise UsageProblem(
                f"{name} needs {each[0].longest} tokens in one request, this engine takes {llm.max_model_len}; name "
                "other workloads, or try --small"
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


def table(found: Mapping[str, Any]) -> str:
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


def run_serve(asked: Wanted, given: Mapping[str, Any]) -> int:
    """Send the load; 1 when nothing was answered."""
    from yaie_magic.bench.serving import loaded

    found = loaded(asked)
    if given.get("json"):
        print(json.dumps(found), flush=True)
    else:
        from yaie_magic.bench import latency

        print(latency.table(found), flush=True)
    if found["completed"]:
        return DONE
    return complain(f"no request was answered: {', '.join(found['errors'])}", FAILED)

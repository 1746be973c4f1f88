"""The comparison's part of docs/performance.md, from the JSON of a run; without one: that nothing was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from yaie_magic.bench.trial import FIGURES, Figure
from yaie_magic.bench.workloads import WORKLOADS

from . import edits, losses, summary
from .agreement import told
from .peer import OURS, PEERS
from .worker import ROOT

RESULTS = ROOT / "docs" / "comparison.json"
PICTURE = ROOT / "docs" / "images" / "comparison.svg"
BEGIN, END = "<!-- comparison: begin (written by scripts/performance) -->", "<!-- comparison: end -->"
COMMAND = "benchmarks/compare --llama-server build/llama.cpp/bin/llama-server"


def render(run: Mapping[str, Any] | None) -> str:
    """The part between the markers."""
    if run is None:
        return "\n".join(unmeasured())
    of_all = [workload for workload in run["workloads"] if "run" not in workload]
    picture = f"![How many times faster this engine is, by workload](images/{PICTURE.name})"
    lines = [heading(run, of_all), "", picture, ""]
    for workload in run["workloads"]:
        of = summary.run_of(workload, run)
        lines += [*table(workload, of), "", *([heading(of, [workload]), ""] if "run" in workload else [])]
    return "\n".join([*lines, *losses.told(run), "", *peers(run), *later_peers(run), "", *agreements(run)])


def unmeasured() -> list[str]:
    """What stands there before anybody has measured."""
    rows = [
        f"| {name} | {words} | {FIGURES[name][0].words}, {FIGURES[name][0].unit} | not measured |"
        for name, (words, _) in WORKLOADS.items()
    ]
    return [
        "**Not measured yet: no figure against a peer stands here.** On a quiet machine this command measures them:",
        "",
        f"    {COMMAND}",
        "",
        "| workload | | figure | |",
        "|---|---|---|---|",
        *rows,
    ]


def heading(run: Mapping[str, Any], workloads: Sequence[Mapping[str, Any]]) -> str:
    """When, where, what, how, for these workloads of it."""
    machine, model = run["machine"], run["model"]
    changed = " with changes" * machine["commit"].endswith("+")
    commit = f" at commit {machine['commit'][:12]}{changed}" if machine["commit"] else ""
    features = f" ({', '.join(machine['features'])})" if machine["features"] else ""
    text = (
        f"Measured on {run['started'][:10]}{commit}: {machine['cpu']}{features}, {run['threads']} threads on "
        f"{machine['cores']} cores, {model['words']}, {run['dtype']}, "
        f"{rounds_told(run, workloads)} in {run['seconds'] / 60:.0f} min, by `{run['command']}`."
    )
    if run["allow_load"]:
        text += " **Other load was allowed: these figures prove nothing.**"
    return text


def rounds_told(run: Mapping[str, Any], workloads: Sequence[Mapping[str, Any]]) -> str:
    """In how many rounds these workloads were measured, and which of them the end of the time cut short."""
    asked = run["rounds"]
    made = {workload["name"]: summary.rounds(workload) for workload in workloads if not workload.get("skipped")}
    fewest = min((count for count in made.values() if count), default=asked)
    text = f"{fewest} round{'s' * (fewest > 1)}"
    cut = [f"{name} after {count}" for name, count in made.items() if 0 < count < asked]
    return f"{text} (of {asked} asked for; the time was up in {', '.join(cut)})" if cut else text


def table(workload: Mapping[str, Any], run: Mapping[str, Any]) -> list[str]:
    """One workload: a row for each peer, ours first; then what was not run."""
    if workload.get("skipped"):
        return [f"**{workload['name']}**: {workload['words']}: not measured, {workload['skipped']}."]
    columns = FIGURES[workload["name"]]
    mine = summary.ours(workload)
    names = " | ".join(f"{figure.words}, {figure.unit}" for figure in columns)
    lines = [
        f"**{workload['name']}**: {workload['words']} ({workload['size']}).",
        "",
        f"| | {names} | ours over it: {columns[0].words} | |",
        "|---|" + "---|" * (len(columns) + 2),
    ]
    missing = []
    for row in workload["rows"]:
        words = words_of(row["peer"])
        if not summary.usable(row):
            missing.append(f"{words}: {row['problem'] or 'not run'}")
            continue
        cells = [cell(row, figure) for figure in columns]
        claimed = mine is not None and row["peer"] != OURS and summary.is_native(run, row)
        over = ratio_cell(mine, row, columns[0]) if mine is not None and claimed else ""
        lines.append(f"| {words} | {' | '.join(cells)} | {over} | {note(row, run)} |")
    lines += ["", *(f"- not measured: {each}" for each in missing)] if missing else []
    return [*lines, *edits.table(workload)]


def cell(row: Mapping[str, Any], figure: Figure) -> str:
    """Median and range."""
    found = summary.Spread.of(summary.values(row, figure))
    return number(found.median) + spread(found, number)


def ratio_cell(mine: Mapping[str, Any], row: Mapping[str, Any], figure: Figure) -> str:
    """Ours over theirs, and whether that is a loss."""
    found = summary.ratio(mine, row, figure)
    lost = found.median > 1 if figure.less else found.median < 1
    text = f"{found.median:.2f}" + spread(found, "{:.2f}".format)
    return f"{text}, **slower**" if lost and not summary.is_yardstick(row) else text


def spread(found: summary.Spread, write: Callable[[float], str]) -> str:
    """The range, where there is one."""
    return f" ({write(found.low)} to {write(found.high)})" if found.low < found.high else ""


def note(row: Mapping[str, Any], run: Mapping[str, Any]) -> str:
    """What a reader must know before believing a row."""
    share = summary.foreign(row)
    notes = [] if summary.is_native(run, row) else ["no native build, so no ratio"]
    return "; ".join([*notes, *([f"disturbed: others took {share:.0%}"] if share > run["limit"] else [])])


def peers(run: Mapping[str, Any]) -> list[str]:
    """Versions and memory; builds that are none for this CPU are said to be none."""
    lines = []
    for name, about in run["peers"].items():
        if about.get("missing"):
            lines.append(f"- {words_of(name)}: not measured, {about['missing']}")
            continue
        native = about.get("native", "yes")
        more = "" if native == "yes" else f"; **not a native build** ({native}): no claim is made against it"
        held = int(about.get("memory_mib", 0))
        memory = f"; held at most {held:,} MiB" if held else ""
        source = f"; built from {about['source']}" if about.get("source") else ""
        lines.append(f"- {words_of(name)}: {about.get('version', 'unknown')}{source}{memory}{more}")
    return lines


def later_peers(run: Mapping[str, Any]) -> list[str]:
    """The peers of each run that joined this one, by what it measured."""
    found: dict[str, tuple[Mapping[str, Any], list[str]]] = {}
    for workload in run["workloads"]:
        if "peers" in workload.get("run", {}):
            of = workload["run"]
            found.setdefault(of["started"], (of, []))[1].append(workload["name"])
    return [line for of, names in found.values() for line in ("", f"For {', '.join(names)} they were:", "", *peers(of))]


def agreements(run: Mapping[str, Any]) -> list[str]:
    """Whether everybody gave the same tokens, and of which workloads that is not known."""
    found = run["agreement"]
    if not found:
        return ["Outputs were not compared."]
    names = [workload["name"] for workload in run["workloads"] if not workload.get("skipped")]
    absent = [name for name in names if name not in {each["workload"] for each in found}]
    head = "Tokens in float32, against ours (a near tie: the best logits are closer than rounding):"
    rows = [f"- {words_of(each['peer'])}, {each['workload']}: {told(each)}{tokens_told(each)}" for each in found]
    return [head, "", *rows, *(f"- {name}: not compared" for name in absent)]


def tokens_told(each: Mapping[str, Any]) -> str:
    """How much an agreement is worth."""
    if each["problem"]:
        return ""
    among = f" among the {each['tokens']} of ours" if each.get("tokens") else " in ours"
    return f"; {each['distinct']} different tokens{among}"


def words_of(peer: str) -> str:
    """The peer by its words."""
    return PEERS[peer].words if peer in PEERS else peer


def number(value: float) -> str:
    """Three digits that count, none lost before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def misses(run: Mapping[str, Any]) -> Iterator[str]:
    """What a peer does better, and outputs that differ."""
    yield from (line.removeprefix("- ") for line in losses.losses(run))
    for each in run["agreement"]:
        if each["different"]:
            yield f"{each['workload']}: {each['different']} outputs differ from those of {words_of(each['peer'])}"


def refusal(run: Mapping[str, Any]) -> str:
    """Why a run must not stand on the page; "" when it may."""
    if run["small"]:
        return "it was a trial with a tiny model"
    return "other load was allowed" if run["allow_load"] else ""


def joined(kept: Mapping[str, Any] | None, run: Mapping[str, Any]) -> dict[str, Any]:
    """`run`, or where it has only some of the workloads, the run that stands on the page with these in it; each then
    says when, how and against which peers it was measured.

    Raises:
        ValueError: they do not belong on one page.
    """
    measured = [workload for workload in run["workloads"] if not workload.get("skipped")]
    names = {workload["name"] for workload in measured}
    if kept is None or names >= {workload["name"] for workload in kept["workloads"]}:
        return dict(run)
    alike = [
        (one["machine"]["cpu"], one["machine"]["cores"], one["threads"], one["model"], one["dtype"])
        for one in (kept, run)
    ]
    builds = [{name: about.get("native") for name, about in one["peers"].items()} for one in (kept, run)]
    if alike[0] != alike[1] or any(builds[0].get(name, here) != here for name, here in builds[1].items()):
        raise ValueError("it has only some workloads, and another machine, threads, model or build than the page")
    about = {name: value for name, value in run.items() if name not in ("workloads", "agreement", "kind")}
    new = [{**workload, "run": about} for workload in measured]
    rest = [workload for workload in kept["workloads"] if workload["name"] not in names]
    order = list(WORKLOADS)
    agreement = [each for each in kept["agreement"] if each["workload"] not in names]
    return {
        **kept,
        "workloads": sorted([*rest, *new], key=lambda workload: order.index(workload["name"])),
        "agreement": [*agreement, *(each for each in run["agreement"] if each["workload"] in names)],
    }


def take_over(run: Mapping[str, Any]) -> None:
    """The plot stands beside the page."""
    write_picture(run, PICTURE)


def write_picture(run: Mapping[str, Any], path: Path) -> None:
    """The plot of a run."""
    from .plot import draw

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(draw(run), encoding="utf-8")

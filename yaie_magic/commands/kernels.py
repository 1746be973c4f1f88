"""`yaie kernels`: the CUDA kernels, compiled for this machine's GPU or for another."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from yaie_magic.cli import DONE, FAILED, complain
from yaie_magic.commands import form
from yaie_magic.lab.options import ARCHITECTURES, USUAL_ARCH
from yaie_magic.options import option
from yaie_magic.parser import OptionParser

ABOUT = (
    "List the CUDA kernels of the engine and compile them ahead, so that the first request need not wait. Compiled "
    "kernels are kept on disk; no GPU is needed to compile."
)
PLACES = (("names", "*", "kernels to compile [default: all]"),)
OPTIONS = (
    option("json", "a JSON list instead of a table", kind="flag"),
    option(
        "arch",
        f"a GPU architecture, can be repeated: {', '.join(ARCHITECTURES)}, or all of them "
        f"[default: the one of this machine's GPU, without a GPU {USUAL_ARCH}]",
        kind="texts",
        metavar="sm_NN|all",
    ),
    option("all", "every specialisation that an engine can ask for, not only the usual ones", kind="flag"),
)
EXAMPLES = (
    ("the kernels this machine needs, compiled and kept", "yaie kernels"),
    ("one kernel for two architectures", "yaie kernels rms_norm --arch sm_80 --arch sm_90"),
    ("registers, shared memory and sizes for a program", "yaie kernels --all --json > kernels.json"),
)


def parser() -> OptionParser:
    """Its options."""
    text = f"{form.EXIT_CODES}. A kernel did not compile: 1"
    return form.form("kernels", ABOUT, OPTIONS, PLACES, (), EXAMPLES, (form.STORE,), text)


def run(arguments: Sequence[str]) -> int:
    """Compile and print; 1 when one did not compile."""
    given = parser().parse(arguments)

    from tqdm import tqdm

    from yaie_magic.lab.listing import archs_for, catalogue_table, chosen, compile_catalogue

    wanted, archs = chosen(given.get("names", []), given.get("all", False)), archs_for(given.get("arch", []))
    with tqdm(total=len(wanted) * len(archs), unit="kernel", disable=None, leave=False, file=sys.stderr) as bar:

        def say(done: int, count: int, label: str) -> None:
            bar.update(done - bar.n)

        entries = compile_catalogue(wanted, archs, say)
    if given.get("json"):
        print(json.dumps(entries, indent=2))
    else:
        print("\n".join(catalogue_table(entries).lines))
    failed = [entry for entry in entries if not entry["ok"]]
    for entry in failed if not given.get("json") else ():
        print(f"\n{entry['name']} for {entry['arch']}:\n{entry['log'].strip()}", file=sys.stderr)
    if failed:
        return complain(f"{len(failed)} of {len(entries)} kernels did not compile", FAILED)
    return DONE

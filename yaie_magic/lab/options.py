"""The options of `%%kernel`, and how a kernel is named."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from yaie_magic.options import UsageProblem, option
from yaie_magic.parser import OptionParser

TIMEOUT = 30.0
ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
USUAL_ARCH = "sm_90"
ABOUT = (
    "Look at a CUDA kernel of the engine, change it, check it, run it. Without a body the cell shows the kernel's "
    "source. With one, the body is compiled in its place, run on small cases and held beside the reference, on the GPU "
    "or emulated on the CPU, in a process of its own."
)
ARCH = option(
    "arch",
    f"compile for this GPU architecture: {', '.join(ARCHITECTURES)} [default: the GPU's, else {USUAL_ARCH}]",
    kind="choice",
    choices=ARCHITECTURES,
)
OPTIONS = (
    option("use", "when the check has passed, the running engine uses the body from its next step on", kind="flag"),
    option("edit", "put the source into the next cell, ready to change and run", kind="flag"),
    option("spec", "check only this specialisation: its label or some of its macros, such as WIDTH=8", metavar="LABEL"),
    ARCH,
    option("sanitize", "run the cases under the address and the thread sanitizer too (emulated, slower)", kind="flag"),
    option("timeout", f"seconds that the kernel may take for one case [default: {TIMEOUT:.0f}]", metavar="SECONDS"),
    option("output", "bind the result to this name", "-o", metavar="NAME"),
    option("quiet", "show nothing; the result is in Out and the -o name", "-q", kind="flag"),
    option("engine", "the loaded engine that --use is for [default: the current one]", metavar="NAME"),
)


@functools.cache
def kernel_parser() -> OptionParser:
    """The parser of `%%kernel`."""
    return OptionParser("%%kernel", OPTIONS, ABOUT, (("name", "?", "the kernel; %%yaie kernels lists them"),))


def kernel_names() -> list[str]:
    """Every kernel there is, by name."""
    from yaie_cuda.catalog import all_kernels

    return list(all_kernels())


def check_kernel(name: str | None) -> str:
    """The name of a kernel.

    Raises:
        UsageProblem: there is none of that name, or none was given; the text names the nearest.
    """
    names = kernel_names()
    if name is None:
        raise UsageProblem(f"say which kernel: {', '.join(names)}")
    if name not in names:
        raise UsageProblem(f"unknown kernel {name!r}{near(name, names)}")
    return name


def labels_of(name: str) -> list[str]:
    """The macros that tell the usual specialisations of a kernel apart; nothing for a kernel that there is not."""
    from yaie_cuda.catalog import all_specialisations

    return sorted({f"{k}={v}" for each in all_specialisations() if each.kernel.name == name for k, v in each.defines})


def near(name: str, names: Sequence[str]) -> str:
    """The names that are close to `name`, or all of them."""
    import difflib

    found = [each for each in names if name in each] or difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(found)}?" if found else f"; there are {', '.join(names)}"


def check_seconds(raw: str | None) -> float:
    """The value of `--timeout`.

    Raises:
        UsageProblem: it is no number of seconds.
    """
    try:
        seconds = TIMEOUT if raw is None else float(raw)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UsageProblem(f"--timeout {raw!r}: give a number of seconds above 0")
    return seconds

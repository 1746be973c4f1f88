"""`%%kernel`: a CUDA kernel of the engine, shown or changed, checked and put to use."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from .aside import aside
from .cell_options import check_name
from .cell_setup import fill_names
from .cells import finished_quietly
from .interrupt import Shield
from .lab.engines import kernel_engine, put_to_use
from .lab.options import check_kernel, check_seconds, kernel_parser
from .options import UsageProblem
from .parser import split_line

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def kernel(shell: InteractiveShell, line: str, body: str) -> Any:
    """Show the kernel's source, or check the body in its place.

    Raises:
        UsageProblem: the line cannot be understood, or the engine could not use the kernel.
        Interrupted: on Ctrl-C; whatever ran is ended.
    """
    with Shield() as shield:
        parser = kernel_parser()
        shield.check()
    words = split_line(line)
    if parser.wants_help(words):
        print(parser.format_help())
        return None
    given = parser.parse(fill_names(words, shell.user_ns))
    check_name(given.get("output"))
    name = check_kernel(given.get("name"))
    result = check(shell, name, body, given) if body.strip() else show(shell, name, given)
    if "output" in given:
        shell.user_ns[given["output"]] = result
    return result


def show(shell: InteractiveShell, name: str, given: Mapping[str, Any]) -> Any:
    """The source as it is compiled now, with what the compiler makes of it; `--edit` offers it as the next cell.

    Raises:
        UsageProblem: `--use` has nothing to use.
    """
    if given.get("use"):
        raise UsageProblem(f"--use needs a source below the line; %%kernel {name} --edit puts the built-in one there")
    from .lab.show import source_of

    source = aside("kernel", partial(source_of, name, given.get("arch")))
    if given.get("edit"):
        shell.set_next_input(f"%%kernel {name}\n{source.text}")
        return finished_quietly(shell, source)
    return finished_quietly(shell, source) if given.get("quiet") else source


def check(shell: InteractiveShell, name: str, body: str, given: Mapping[str, Any]) -> Any:
    """Check the body in place of the kernel's source, and let the engine use it where that was asked for."""
    if given.get("edit"):
        raise UsageProblem("--edit shows the built-in source; this cell has one already")
    if given.get("use") and "spec" in given:
        raise UsageProblem("--use is for a kernel that passed every case; leave out --spec")
    timeout = check_seconds(given.get("timeout"))
    engine = kernel_engine(given.get("engine")) if given.get("use") else None
    from .lab.ask import request_for
    from .lab.run import Progress, run_check

    progress = Progress(shell, given.get("quiet", False))
    progress.say(f"{name}: starting")
    request = aside("kernel", partial(request_for, name, body, given, engine))
    result = run_check(request, timeout, progress.say)
    if engine is not None:
        put_to_use(result, request, engine)
    progress.show(result.bundle())
    return finished_quietly(shell, result) if progress.shown or given.get("quiet") else result

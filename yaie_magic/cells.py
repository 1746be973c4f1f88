"""The course of a generating cell: bind the result, stream it, end cleanly whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from .aside import start
from .completion import HOOK, Completion, Result, completions_of
from .display import View, choose_view
from .interrupt import Interrupted, Shield
from .run import Run

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

R = TypeVar("R")
GRACE = 0.5  # seconds an interrupted cell waits for its last figures before it returns without them


@dataclass(frozen=True, slots=True)
class CellOptions:
    """How a cell shows and keeps its result."""

    output: str | None = None
    background: bool = False
    quiet: bool = False
    format: str = "text"


def bind(shell: InteractiveShell, options: CellOptions, result: Result) -> None:
    """Give the result its names: `_yaie`, and the one after `-o`."""
    shell.user_ns["_yaie"] = result
    if options.output:
        shell.user_ns[options.output] = result


def serve(shell: InteractiveShell, submit: Callable[[], Run], options: CellOptions) -> Result:
    """Submit one request and see it to its end, or to the background.

    Raises:
        Interrupted: the cell was interrupted; the partial result is bound.
        YaieError: the request failed while running; the partial result is bound.
    """
    with Shield() as shield:
        view = choose_view(shell, options.quiet, options.background)  # first: it may have to import
        run = submit()
        result = completions_of(run, options.format)
        shown = [result] if isinstance(result, Completion) else result
        bind(shell, options, result)
        if options.background and not shield.fired:
            pump(run, view, shown)
            return finished_quietly(shell, result) if options.quiet else result
        try:
            interrupted = not stream(run, view, shield)
        except BaseException:
            run.cancel()  # the view failed: nobody would see the rest
            raise
        if interrupted:
            run.cancel()
            run.settle_soon(GRACE)
        view.finish(shown)
    if interrupted or shield.fired:
        keep(shell, result)
        raise Interrupted(f"interrupted: {_kept(shown)}")
    if shown[0].error is not None:
        keep(shell, result)
        raise shown[0].error
    return finished_quietly(shell, result) if options.quiet else result


def stream(run: Run, view: View, shield: Shield) -> bool:
    """See the request to its end; False when an interrupt ended the wait."""
    try:
        view.open(run)
        view.follow(run, shield.waiting)
        return True
    except KeyboardInterrupt:
        return False


def pump(run: Run, view: View, shown: Sequence[Completion]) -> None:
    """Follow the request on a thread that publishes into the display of the cell that started it, and never prints."""

    def work() -> None:
        view.follow(run, nullcontext)
        view.finish(shown)

    view.open(run)  # here and not on the thread: some kernels put a thread's first display into the newest cell
    start(f"yaie-follow-{run.request_id}", work)


def keep(shell: InteractiveShell, result: Result) -> None:
    """Put a result into `Out[n]` although the cell ends with an error."""
    shell.user_ns["_oh"][shell.displayhook.prompt_count] = result


def finished_quietly(shell: InteractiveShell, result: R, alone: bool = True) -> R:
    """Make the cell's `Out[n]` hold the result but show nothing. Only for this cell: later it shows as usual.

    `alone`: the magic is the whole cell, so that nothing else can be shown by it.
    """
    hook: Any = shell.displayhook
    count = hook.prompt_count

    def quiet_once() -> bool:
        vars(hook).pop("quiet", None)
        if hook.prompt_count != count:
            return bool(hook.quiet())
        hook.update_user_ns(result)
        hook.fill_exec_result(result)
        return True

    def show_nothing_once() -> None:
        vars(result).pop(HOOK, None)
        if hook.prompt_count != count:
            from IPython.display import display

            display(result)  # type: ignore[no-untyped-call]

    if alone and getattr(shell, "kernel", None) is None:  # a terminal writes `Out[n]: ` before it asks the object
        hook.quiet = quiet_once
    else:
        vars(result)[HOOK] = show_nothing_once
    return result


def _kept(shown: Sequence[Completion]) -> str:
    tokens = sum(one.usage.completion for one in shown)
    known = all(one.done for one in shown) and (tokens or not any(one.text for one in shown))  # servers may not count
    return f"{tokens} tokens kept" if known else "the text so far is kept"

"""The magics: `%yaie` and the generating cells. Thin: each parses, calls and reports."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import traitlets
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, cell_magic, line_cell_magic, line_magic, magics_class, no_var_expand

from .cell_options import FORMATS, Cell, cell_parser
from .cell_setup import CellCall, read_call
from .guard import guarded


def default(trait: Any, help: str, *values: Any) -> Any:
    """A default that `%config YaieMagics.NAME = value` sets; None leaves it to the engine."""
    return trait(*values, default_value=None, allow_none=True, help=help).tag(config=True)


@magics_class
class YaieMagics(Magics):
    """A real LLM engine inside this session. The defaults of the generating cells are set with %config."""

    max_tokens = default(traitlets.Int, "most tokens to generate")
    min_tokens = default(traitlets.Int, "fewest tokens to generate")
    temperature = default(traitlets.Float, "0 is greedy")
    top_p = default(traitlets.Float, "nucleus sampling")
    top_k = default(traitlets.Int, "keep the k most likely tokens")
    min_p = default(traitlets.Float, "drop tokens below this share of the best one's probability")
    repetition_penalty = default(traitlets.Float, "over 1 makes earlier tokens less likely")
    presence_penalty = default(traitlets.Float, "subtracted from tokens that were generated")
    frequency_penalty = default(traitlets.Float, "subtracted for each time a token was generated")
    stop = default(traitlets.List, "strings that end the text")
    ignore_eos = default(traitlets.Bool, "go on after the end-of-text token")
    seed = default(traitlets.Int, "same seed, same text")
    logprobs = default(traitlets.Int, "alternatives per token to keep")
    timeout = default(traitlets.Float, "seconds until a request ends with an error")
    format = default(traitlets.Enum, "how results are shown", FORMATS)

    shell: InteractiveShell

    @no_var_expand
    @line_magic
    def yaie(self, line: str) -> Any:
        """Control the engine: load, look inside, cancel."""
        from .subcommands import dispatch

        return guarded("%yaie", partial(dispatch, self.shell, line))

    @no_var_expand
    @cell_magic
    def generate(self, line: str, cell: str) -> Any:
        """Stream text from the loaded model."""
        from .cell_generate import generate

        return self._cell("generate", line, cell, generate)

    @no_var_expand
    @cell_magic
    def chat(self, line: str, cell: str) -> Any:
        """Go on with a conversation."""
        from .cell_chat import chat

        return self._cell("chat", line, cell, chat)

    @no_var_expand
    @line_cell_magic
    def batch(self, line: str, cell: str = "") -> Any:
        """Answer many prompts together. As a line, `%batch --from NAME` needs no body."""
        from .cell_batch import batch

        return self._cell("batch", line, cell, batch)

    @no_var_expand
    @cell_magic
    def kernel(self, line: str, cell: str) -> Any:
        """Look at a CUDA kernel of the engine, change it, check it, run it."""
        from .cell_kernel import kernel

        return guarded("%%kernel", partial(kernel, self.shell, line, cell))

    def _cell(self, name: Cell, line: str, cell: str, work: Callable[[CellCall], Any]) -> Any:
        def action() -> Any:
            call = read_call(name, self.shell, line, cell, self._defaults())
            return None if call is None else work(call)

        return guarded(f"%%{name}", action)

    def _defaults(self) -> dict[str, Any]:
        """What `%config` has set."""
        own = {name: getattr(self, name) for name in type(self).class_own_traits(config=True)}
        return {name: value for name, value in own.items() if value is not None}


def _help_of(cell: Cell) -> Callable[[], str]:
    return lambda: cell_parser(cell).format_help()


def _help_of_kernel() -> str:
    from .lab.options import kernel_parser

    return kernel_parser().format_help()


def _help_of_line() -> str:
    from .subcommands import overview

    return overview()


# IPython's `?` asks a function for `getdoc()` first: so it shows what `--help` shows, and builds it only then.
for _cell in ("generate", "chat", "batch"):
    setattr(getattr(YaieMagics, _cell), "getdoc", _help_of(_cell))  # noqa: B010
setattr(YaieMagics.kernel, "getdoc", _help_of_kernel)  # noqa: B010
setattr(YaieMagics.yaie, "getdoc", _help_of_line)  # noqa: B010

"""`%%generate`: the cell body is a prompt."""

from __future__ import annotations

from .cell_setup import CellCall, engine_of
from .cells import serve
from .completion import Result
from .prompt import prompt_of
from .run import Run


def generate(call: CellCall) -> Result:
    """Send the body to the engine and stream what comes back."""
    prompt, options = prompt_of(call.body, call.names), call.options
    engine = engine_of(call.given.get("engine"))
    params = call.params(engine)
    return serve(call.shell, lambda: Run(engine.llm.submit(prompt, params), engine.llm, prompt, params), options)

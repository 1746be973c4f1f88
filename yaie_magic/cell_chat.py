"""`%%chat`: the cell body is the next turn of a conversation."""

from __future__ import annotations

from .cell_setup import CellCall, engine_of
from .cells import serve
from .chat import Chat
from .completion import Result
from .options import UsageProblem
from .prompt import prompt_of
from .session import DEFAULT_NAME, LoadedEngine


def chat(call: CellCall) -> Result:
    """Send the conversation with its new turn and stream the answer."""
    text, options = prompt_of(call.body, call.names), call.options
    engine = engine_of(call.given.get("engine"))
    params = call.params(engine)
    if params.n != 1:
        raise UsageProblem(f"n={params.n}: a conversation goes on with one answer; %%generate gives several")
    conversation = find_chat(call, engine)

    return serve(call.shell, lambda: conversation.send(engine.llm, text, params), options)


def find_chat(call: CellCall, engine: LoadedEngine) -> Chat:
    """The conversation the line names, new where it asks for that.

    Raises:
        UsageProblem: `--system` would change a conversation that has begun.
    """
    name = call.given.get("session", DEFAULT_NAME)
    found = engine.chats.get(name)
    if found is None or call.given.get("new"):
        kept = found.system if found else None
        found = engine.chats[name] = Chat(name, call.given.get("system", kept))
    system = call.given.get("system", found.system)
    if system != found.system:
        if found.messages or found.pending:
            raise UsageProblem(f"session {name!r} began with another system text; --new starts it again")
        found.system = system
    return found

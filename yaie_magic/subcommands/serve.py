"""`%yaie serve`: the engine of this session over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yaie_magic.aside import aside
from yaie_magic.options import Option, option, server_options

from .entry import ENGINE, Call, Subcommand

if TYPE_CHECKING:
    from yaie_magic.server.background import BackgroundServer

STOP = option("stop", "end the server; what it answers is cancelled, the engine goes on", kind="flag")


def _options() -> tuple[Option, ...]:
    return (STOP, *(entry for entry in server_options() if entry.name != "start_timeout"), ENGINE)


def _serve(call: Call) -> None:
    from yaie_magic import serving

    engine = call.engine
    if call.given.get("stop"):
        stopped = aside("serve", lambda: serving.stop(engine.name))
        print(f"{engine.model} is not served any more." if stopped else f"{engine.model} is not served.")
        return
    names = {entry.name for entry in server_options()}
    options = {name: value for name, value in call.given.items() if name in names}
    print(snippet(aside("serve", lambda: serving.start(engine, options)), engine.model))


def snippet(server: BackgroundServer, model: str) -> str:
    """Where it is served, and a program that asks it."""
    name = server.config.served_model_name or model
    message = '[{"role": "user", "content": "Hello!"}]'
    return "\n".join(
        [
            f"{model} is served on {server.url}; %yaie serve --stop ends it.",
            "",
            "from openai import OpenAI",
            f'client = OpenAI(base_url="{server.url}/v1", api_key="{server.config.api_key}")',
            f'answer = client.chat.completions.create(model="{name}", messages={message})',
            "print(answer.choices[0].message.content)",
        ]
    )


SUBCOMMANDS = (
    Subcommand("serve", "serve the engine over HTTP with the OpenAI API, under a new key", _serve, _options),
)

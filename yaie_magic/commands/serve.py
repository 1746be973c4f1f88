"""`yaie serve`: one model over HTTP, with the OpenAI API."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING

from yaie_magic import logs
from yaie_magic.cli import DONE, INTERRUPTED
from yaie_magic.commands import form
from yaie_magic.options import Group, engine_options, option, server_options
from yaie_magic.parser import OptionParser

if TYPE_CHECKING:
    from yaie_engine import LLM
    from yaie_magic.loading import Progress

ABOUT = (
    "Serve a model over HTTP: /v1/chat/completions, /v1/completions, /generate, /health, /metrics and more. "
    "It listens on this machine only unless --host says otherwise; then a key is needed, from the variable "
    "YAIE_API_KEY or from api_key in the --config file. The end of the engine ends it with exit code 1."
)
PLACES = (("model", "?", form.MODEL),)
OWN = (
    option("config", "YAML file with settings of engine and server, below the environment and options", metavar="FILE"),
)
EXAMPLES = (
    ("on this machine, on port 8000", "yaie serve tiny"),
    ("for other machines; `openssl rand -hex 24` makes a key", "YAIE_API_KEY=... yaie serve tiny --host 0.0.0.0"),
    ("settings from a file, the log as JSON", "yaie serve --config serve.yaml --log-format json"),
    ("ask it", 'curl -s localhost:8000/generate --json \'{"prompt": "Once upon a time"}\''),
)
VARIABLES = (
    form.SETTINGS,
    ("YAIE_HOST, YAIE_PORT", "where to listen"),
    ("YAIE_API_KEY", "the key that every request but /health must carry"),
    form.CACHES,
)
_LIMITS = ("max_", "header_", "body_", "send_", "start_", "shutdown_")


def parser() -> OptionParser:
    """Our options, those of the server, those of the engine."""
    entries = server_options()
    limits = tuple(entry for entry in entries if entry.name.startswith(_LIMITS))
    server = Group("server", tuple(entry for entry in entries if entry not in limits))
    groups = form.with_logging(server, Group("limits of the server", limits), *form.engine_groups(without=OWN))
    return form.form("serve", ABOUT, OWN, PLACES, groups, EXAMPLES, VARIABLES)


def run(arguments: Sequence[str]) -> int:
    """Parse, listen, load, serve until a signal comes."""
    given = parser().parse(arguments)
    logs.set_up(given, usual="info")

    from yaie_magic import loading
    from yaie_magic.server.foreground import Foreground
    from yaie_magic.server.listen import bind
    from yaie_magic.settings import chosen, engine_settings, server_settings

    config = engine_settings(given.get("config"), chosen(given, engine_options(), also=("model",)))
    form_of_lines = {"access_log": "json"} if given.get("log_format") == "json" else {}
    server = server_settings(given.get("config"), chosen(given, server_options()), form_of_lines)
    logs.set_up_access(given, server.access_log)

    def build(progress: Progress) -> LLM:
        logs.adopt_libraries()
        return loading.build_llm(config, progress)

    foreground = Foreground(server, build)
    foreground.run(bind(server))
    return INTERRUPTED if foreground.signal == signal.SIGINT else DONE

"""`yaie serve`: one model over HTTP, with the OpenAI API."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from yaie_magic.cli import DONE, INTERRUPTED, set_up_logging
from yaie_magic.commands.generate import chosen
from yaie_magic.options import engine_options, option, server_options
from yaie_magic.parser import OptionParser

if TYPE_CHECKING:
    from yaie_engine import LLM
    from yaie_magic.loading import Progress

ABOUT = (
    "Serve a model over HTTP: /v1/chat/completions, /v1/completions, /generate, /health, /metrics and more. "
    "It listens on this machine only unless --host says otherwise; then a key is needed, from the variable "
    "YAIE_API_KEY or from api_key in the --config file. The end of the engine ends it with exit code 1."
)
PLACES = (("model", "?", "bundled model, local folder, Hub id or .gguf file [default: tiny]"),)
OWN = (
    option("config", "YAML file with settings of engine and server, below the environment and options", metavar="FILE"),
)


def parser() -> OptionParser:
    """Our options, those of the server, those of the engine."""
    return OptionParser("yaie serve", (*OWN, *server_options(), *engine_options()), ABOUT, PLACES)


def run(arguments: Sequence[str]) -> int:
    """Parse, listen, load, serve until a signal comes."""
    given = parser().parse(arguments)
    set_up_logging(verbose=True)

    from yaie_magic import loading
    from yaie_magic.server.foreground import Foreground
    from yaie_magic.server.listen import bind
    from yaie_magic.settings import engine_settings, server_settings

    config = engine_settings(given.get("config"), chosen(given, engine_options(), also=("model",)))
    server = server_settings(given.get("config"), chosen(given, server_options()))
    log_access()

    def build(progress: Progress) -> LLM:
        return loading.build_llm(config, progress)

    foreground = Foreground(server, build)
    foreground.run(bind(server))
    return INTERRUPTED if foreground.signal == signal.SIGINT else DONE


def log_access() -> None:
    """A line for each request on standard output, as it stands."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("%(message)s"))
    access = logging.getLogger("yaie.access")
    access.handlers[:] = [handler]
    access.setLevel(logging.INFO)
    access.propagate = False

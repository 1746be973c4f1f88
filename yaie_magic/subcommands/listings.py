"""`%yaie models | config`."""

from __future__ import annotations

from yaie_magic.terminal import printable

from .entry import ENGINE, JSON, Call, Subcommand
from .status import JsonDict


def _models(call: Call) -> None:
    from yaie_magic.catalog import models_here

    entries = models_here()
    for entry in entries:
        print(printable(entry.to_text()))
    if not entries:
        print("No model is on this machine yet; %yaie load takes a Hub id and downloads it.")


def _config(call: Call) -> JsonDict | None:
    engine = call.engine
    values = engine.llm.config.model_dump()
    if call.given.get("json"):
        return JsonDict(values)
    snapshot, chosen = engine.llm.snapshot(), engine.config.model_fields_set
    effective = {
        "dtype": snapshot.model.dtype,
        "device": snapshot.model.device,
        "attention_backend": snapshot.model.attention_backend,
        "num_blocks": snapshot.blocks.total,
        "max_model_len": snapshot.model.max_model_len,
    }
    print(f"Engine {engine.name}; * marks what was given, = what the engine made of it")
    for name, value in values.items():
        found = effective.get(name, value)
        outcome = f" = {found}" if found != value else ""
        print(printable(f"{'*' if name in chosen else ' '} {name:<30} {value}{outcome}"))
    return None


SUBCOMMANDS = (
    Subcommand("models", "the models on this machine, and how large they are", _models),
    Subcommand("config", "the settings in force", _config, lambda: (JSON, ENGINE)),
)

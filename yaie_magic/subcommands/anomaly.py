"""`%yaie anomaly on | off`: find the first NaN or infinity of a forward, and the request that it belongs to."""

from __future__ import annotations

from .entry import ENGINE, Call, Subcommand
from .local import local_llm

STATES = ("on", "off")


def _anomaly(call: Call) -> None:
    word = call.given.get("state")
    llm = local_llm(call, "anomaly", word, STATES)
    if word is None:
        print(f"Anomaly mode is {'on' if llm.detects_anomaly else 'off'}; %yaie anomaly on|off changes it.")
        return
    llm.detect_anomaly(word == "on")
    if word == "on":
        print(
            "Anomaly mode is on: each layer and the logits are checked, and a NaN or infinity fails its request alone, "
            "with module, request and position. Steps are slower until %yaie anomaly off."
        )
    else:
        print("Anomaly mode is off.")


SUBCOMMANDS = (
    Subcommand(
        "anomaly",
        "find where the first NaN or infinity of a request comes from",
        _anomaly,
        lambda: (ENGINE,),
        (("state", "?", "on or off [default: say which]"),),
        lambda: STATES,
    ),
)

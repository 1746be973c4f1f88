"""`%yaie anomaly` and `%yaie trace` in a plain shell, with the real engine."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from yaie_magic.session import session

ASK = "%%generate -m 4 -t 0 --ignore-eos\nOnce upon a time"


def test_anomaly_names_the_module_in_a_cell(real: Any) -> None:
    text = real(ASK).result.text
    assert real("%yaie anomaly").out.startswith("Anomaly mode is off")
    assert real("%yaie anomaly on").out.startswith("Anomaly mode is on")
    assert real(ASK).result.text == text
    llm = session.get().llm
    weight = llm._engine.runner._weights.loaded.model.model.layers[2].mlp.down_proj.weight
    with torch.no_grad():
        kept, weight[0, 0] = weight[0, 0].clone(), math.nan
        real(ASK.replace("Once", "Then"))
        weight[0, 0] = kept
    assert "NaN or infinity in model.layers.2.mlp.down_proj" in real.out + real.err + str(real.error)
    assert real(ASK).result.text == text
    assert real("%yaie anomaly off").out == "Anomaly mode is off.\n" and not llm.detects_anomaly


def test_traces_are_taken_saved_and_compared(real: Any, tmp_path: Path) -> None:
    assert real("%yaie trace").out == "Nothing is traced; %yaie trace on begins.\n"
    assert "The next 2 steps are traced" in real("%yaie trace on --steps 2").out
    real(ASK)
    assert "model.layers.5" in str(real("%yaie trace show").result)
    one = real(f"one = %yaie trace off --save {tmp_path / 'one'}")["one"]
    assert len(one.steps) == 2 and "tiny: float32 on cpu" in str(one)
    real("%yaie trace on --steps 2")
    session.get().llm.reset()
    real(ASK)
    real("two = %yaie trace off")
    same = real(f"%yaie trace compare {tmp_path / 'one'} two").result
    assert same.first is None and "lines agree" in str(same)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("anomaly onn", "did you mean"),
        ("trace of", "did you mean"),
        ("trace on --steps 0", "--steps 0: 1 to 10,000 are allowed"),
        ("trace on --layers x", "is no list of numbers"),
        ("trace on --tolerance 1", "--tolerance is for compare"),
        ("trace compare one", "two traces are needed"),
        ("trace show nowhere", "is no file"),
    ],
)
def test_mistakes_are_told(real: Any, line: str, said: str) -> None:
    real(f"%yaie {line}")
    assert said in real.out + real.err + str(real.error)

"""Case 35: a damaged, foreign or missing record poisons no answer; a good one is of use.

After llama.cpp's saved slots: a damaged file spoilt later answers, saving nothing crashed, and a restore that reported
success reused nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.engine.models import random_llama
from tests.store.conftest import Open, ask, tokens
from tests.store.test_restore import ASK, PREFIX, records, saved
from yaie_engine import RequestError, StoreError

OTHER = [(3 * i + 1) % 250 for i in range(40)]


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for at in (3, 70, len(data) // 2, len(data) - 2):
        data[at] ^= 0x40
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def foreign(path: Path) -> None:
    """Another model's file under the name of this one's."""
    path.write_bytes((path.parent.parent / "foreign.kv").read_bytes())


DAMAGES: dict[str, Callable[[Path], None]] = {"flipped": flipped, "cut": cut, "foreign": foreign}


@pytest.fixture
def foreign_record(open_llm: Open, folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for file in folder.iterdir():
        (other / file.name).write_bytes(file.read_bytes())
    model = random_llama()
    with torch.no_grad():
        next(iter(model.parameters())).mul_(1.5)
    model.save_pretrained(other)
    with open_llm(model=str(other), prefix_store=str(tmp_path / "elsewhere")) as llm:
        llm.save_prefix(PREFIX)
        [path] = records(llm)
    (tmp_path / "foreign.kv").write_bytes(path.read_bytes())


@pytest.mark.parametrize("damage", [*DAMAGES, "empty"])
def test_case_35(
    open_llm: Open,
    foreign_record: None,
    caplog: pytest.LogCaptureFixture,
    damage: str,
) -> None:
    cold = saved(open_llm)
    with open_llm(prefix_store=None) as plain:
        plainly = tokens(ask(plain, OTHER))
    with open_llm() as llm:
        [path] = records(llm)
    caplog.clear()
    if damage == "empty":
        path.unlink()
    else:
        DAMAGES[damage](path)
    llm = open_llm()  # a restart
    output = ask(llm, ASK)
    assert (tokens(output), output.num_cached_tokens) == (cold, 0)
    warnings = [entry.getMessage() for entry in caplog.records if entry.levelno >= logging.WARNING]
    assert len(warnings) == (damage != "empty"), warnings
    assert tokens(ask(llm, OTHER)) == plainly and tokens(ask(llm, ASK)) == cold  # healthy afterwards
    assert llm.prefixes is not None
    kept = [tuple(entry.token_ids) for entry in llm.prefixes.entries()]
    with pytest.raises(StoreError, match="at least 16"):
        llm.save_prefix([1])
    with pytest.raises((StoreError, RequestError)):
        llm.save_prefix([])
    assert [tuple(entry.token_ids) for entry in llm.prefixes.entries()] == kept, "what was refused left nothing"
    llm.save_prefix(PREFIX)
    assert {tuple(entry.token_ids) for entry in llm.prefixes.entries()} == {*kept, tuple(PREFIX)}
    llm.close()
    output = ask(open_llm(), ASK)  # a good file
    assert (tokens(output), output.num_cached_tokens, output.metrics.reuse) == (cold, len(PREFIX), "store")

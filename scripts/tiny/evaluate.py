"""Evaluation: held-out probes by plain transformers, greedy, in float32; exact answers and margins per kind."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from .probes import Probe, probes

MOST_TOKENS = 420
_BATCH = 16


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model wrote to a probe, and the smallest lead of a chosen token over the next best."""

    probe: Probe
    text: str
    margin: float

    @property
    def right(self) -> bool:
        """True when the answer is the expected one."""
        return self.probe.task.accepts(self.text)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    kind: str
    count: int
    right: int
    least: float
    fifth: float
    median: float


class Judge:
    """A trained folder, loaded as any user would."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder, padding_side="left")
        self.model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.ends = set(self.model.generation_config.eos_token_id)

    @torch.no_grad()
    def answer(self, batch: list[Probe]) -> list[Answer]:
        """Answer the probes greedily."""
        inputs = self.tokenizer([probe.prompt for probe in batch], return_tensors="pt", padding=True)
        inputs.pop("token_type_ids", None)
        out = self.model.generate(
            **inputs, max_new_tokens=MOST_TOKENS, do_sample=False, output_logits=True, return_dict_in_generate=True
        )
        start, answers = inputs["input_ids"].shape[1], []
        top = torch.stack(out.logits).topk(2, dim=-1).values  # [steps, batch, 2]
        for row, probe in enumerate(batch):
            ids = out.sequences[row, start:].tolist()
            length = next((i for i, token in enumerate(ids) if token in self.ends), len(ids) - 1) + 1
            lead = (top[:length, row, 0] - top[:length, row, 1]).min().item()
            text = self.tokenizer.decode(ids[: length - 1] if ids[length - 1] in self.ends else [*ids, 0])
            answers.append(Answer(probe, text.strip(), lead))
        return answers


def answers(folder: Path, tasks: int, seed: int) -> list[Answer]:
    """Answer `tasks` probes of each kind."""
    judge, found = Judge(folder), []
    waiting = sorted(probes(tasks, seed), key=lambda probe: (probe.kind, len(probe.prompt)))
    for start in range(0, len(waiting), _BATCH):
        found += judge.answer(waiting[start : start + _BATCH])
    return found


def row(kind: str, found: list[Answer]) -> Row:
    """Sum up the answers of one kind."""
    margins = sorted(answer.margin for answer in found)
    right = sum(answer.right for answer in found)
    return Row(kind, len(found), right, margins[0], margins[len(margins) // 20], margins[len(margins) // 2])


def evaluate(folder: Path, tasks: int, seed: int) -> list[Row]:
    """Return the table: one row per kind, the last over all."""
    found, kinds = answers(folder, tasks, seed), defaultdict(list)
    for answer in found:
        kinds[answer.probe.kind].append(answer)
    return [*(row(kind, group) for kind, group in kinds.items()), row("all", found)]


def render(rows: list[Row]) -> str:
    """Write the table as Markdown."""
    lines = ["| kind | n | exact % | smallest margin | 5th percentile | median |", "|---|---|---|---|---|---|"]
    for r in rows:
        lines.append(
            f"| {r.kind} | {r.count} | {100 * r.right / r.count:.1f} | {r.least:.3f} | {r.fifth:.2f} | {r.median:.2f} |"
        )
    return "\n".join(lines)

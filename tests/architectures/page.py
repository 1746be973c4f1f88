"""docs/architectures.md: which tier serves which architecture, and why. Written by running the probe on the zoo."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers.utils import logging as hf_logging

from tests.architectures.equality import GRID, MAX_TOKENS, prompts
from tests.architectures.zoo import ZOO, Architecture
from yaie_engine.config import EngineConfig
from yaie_engine.loaded import LoadedModel
from yaie_engine.loader import load_model

PAGE = Path(__file__).resolve().parents[2] / "docs" / "architectures.md"
MOST_ERROR = 1e-4
HEAD = """# Architectures

Written by `scripts/architectures`; `scripts/architectures --check` says whether it is stale. Do not edit.

A model is served in one of three ways. Which one is decided when it is loaded, by running it: two short sequences go
through two chunks and one decode in small scattered blocks, and every row of logits is compared with the plain model.
Windows longer than that are shortened for a second run. A model that no tier reproduces is refused.

| tier | how | prefixes shared | requests per forward |
|---|---|---|---|
| flat | one forward over the tokens of all requests; attention is ours, over paged blocks | yes | all |
| paged | the model's own attention, K and V through a cache object over the same blocks | yes | one |
| state | transformers' own cache per request, for recurrent or convolution state | no | one |

The models below are tiny and randomly initialised. Each passed: logits within {error:g} of their spread; as a test in
CI, {tokens} greedy tokens equal to transformers' (one request at a time, float32) with all requests in one batch,
chunks of 8 tokens, blocks of 4, a pool that must preempt, and a warm cache; `scripts/test --full` runs {settings} more
settings each.

| architecture | model_type | tier | why not flat | window | softcap | sinks | chunked prefill |
|---|---|---|---|---|---|---|---|
"""
REASONS = (
    ("attention in chunks of", "attention in chunks shorter than the context"),
    ("does not go through transformers' interface", "no attention interface"),
    ("attention calls per layer were none", "no attention at all"),
    ("attention calls per layer were", "several attention calls per layer"),
    ("a mask of its own", "a mask of its own"),
    ("limits what a token sees", "sparse attention"),
    ("logits differ", "state outside of attention"),
)


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    architecture: Architecture
    loaded: LoadedModel

    def text(self) -> str:
        """The line in Markdown."""
        one, config = self.architecture, self.loaded.model.config.get_text_config()
        window = getattr(config, "sliding_window", None) if "window" in str(one.settings) else None
        cap = getattr(config, "attn_logit_softcapping", None)
        sinks = any(name.endswith("sinks") for name, _ in self.loaded.model.named_parameters())
        cells = (
            one.name,
            f"`{one.model_type}`",
            self.loaded.tier,
            reason_class(self.loaded.tier, self.loaded.tier_reason),
            str(window or ""),
            f"{cap:g}" if cap else "",
            "yes" if sinks else "",
            "yes" if self.loaded.chunks_prefill else "no: prompts go in whole",
        )
        return f"| {' | '.join(cells)} |"


def reason_class(tier: str, reason: str) -> str:
    """Why a higher tier does not serve, in a few words."""
    if tier == "flat":
        return ""
    if tier == "state" and REASONS[1][0] in reason:
        return "state outside of attention"
    return next((words for sign, words in REASONS if sign in reason), "other")


def probe(architecture: Architecture) -> LoadedModel:
    """Load one model of the zoo.

    Raises:
        ValueError: its tier is not the one that the zoo expects, or its logits are further off than rounding explains.
    """
    loaded = load_model(EngineConfig(model=architecture.name), architecture.build())
    error = float(loaded.tier_reason.split("within ")[1].split(" ")[0])
    if loaded.tier != architecture.tier or error > MOST_ERROR:
        raise ValueError(f"{architecture.name}: expected {architecture.tier}, got {loaded.tier}: {loaded.tier_reason}")
    return loaded


def page() -> str:
    """The whole page."""
    torch.set_num_threads(1)
    rows = [Row(architecture, probe(architecture)).text() for architecture in ZOO]
    tokens = 2 * len(prompts()) * MAX_TOKENS
    counts = {tier: sum(architecture.tier == tier for architecture in ZOO) for tier in ("flat", "paged", "state")}
    tail = f"\n{len(ZOO)} models: {', '.join(f'{count} {tier}' for tier, count in counts.items())}.\n"
    return HEAD.format(error=MOST_ERROR, tokens=tokens, settings=len(GRID)) + "\n".join(rows) + "\n" + tail


def main(arguments: list[str]) -> int:
    """Write the page, or say whether it is stale."""
    parser = argparse.ArgumentParser(prog="scripts/architectures", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the page is stale")
    check = parser.parse_args(arguments).check
    hf_logging.set_verbosity_error()
    text = page()
    if check:
        stale = not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text
        print(
            "docs/architectures.md is stale: run scripts/architectures" if stale else "docs/architectures.md is current"
        )
        return int(stale)
    PAGE.write_text(text, encoding="utf-8")
    print(f"wrote {PAGE.relative_to(PAGE.parents[1])}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

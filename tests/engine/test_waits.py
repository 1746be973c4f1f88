"""On kernels a step waits for the device once, to read the sampled tokens and what is asked of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.engine.conftest import Make
from tests.engine.fakes import greedy
from tests.engine.standin import standin, standin_kernels
from yaie_engine import LLM, SamplingParams, sampler
from yaie_engine.backends.kernels import Kernels

METHODS = ("item", "tolist", "numpy", "cpu", "__bool__", "__int__", "__float__", "__index__")
aten = torch.ops.aten
OPERATIONS = {
    aten._local_scalar_dense.default,
    aten.item.default,
    aten.nonzero.default,
    aten.masked_select.default,
    aten.unique_dim.default,
    aten._unique2.default,
    aten.repeat_interleave.Tensor,
}


class Waits(TorchDispatchMode):
    """Counts what would make the host wait for a device: operations, boolean indexes, and values read in Python.

    Tensors that are made from Python values (inputs of a step) count as well, so that the test is on the safe side.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        indices = args[1] if func in (aten.index.Tensor, aten.index_put.default, aten.index_put_.default) else ()
        if func in OPERATIONS or any(index is not None and index.dtype == torch.bool for index in indices):
            self.seen[str(func)] += 1
        return func(*args, **(kwargs or {}))


def best_on_a_device(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What `ranking.best_of` does where the scores are not on the CPU: there it goes through NumPy, or a kernel."""
    ids = scores.argmax(-1)
    return scores.gather(1, ids[:, None])[:, 0], ids


@contextmanager
def counted_waits() -> Iterator[Counter[str]]:
    waits = Waits()

    def counted(name: str, method: Any) -> Any:
        def run(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            waits.seen[name] += 1
            return method(tensor, *args, **kwargs)

        return run

    with pytest.MonkeyPatch.context() as patch:
        for name in METHODS:
            patch.setattr(torch.Tensor, name, counted(name, getattr(torch.Tensor, name)))
        with waits:
            yield waits.seen


def outside(kernels: Kernels) -> Kernels:
    """What a kernel does is not looked at: the stand-ins read values where a kernel does not."""

    def hidden(function: Any) -> Any:
        def run(*arguments: Any) -> None:
            with pytest.MonkeyPatch.context() as patch, torch.utils._python_dispatch._disable_current_modes():
                for name in METHODS:
                    patch.setattr(torch.Tensor, name, ORIGINALS[name])
                function(*arguments)

        return run

    names = [name for name in Kernels.__slots__ if name != "launcher"]
    return Kernels(kernels.launcher, **{name: hidden(getattr(kernels, name)) for name in names})


ORIGINALS = {name: getattr(torch.Tensor, name) for name in METHODS}
STEPS = 6


def waits_of_a_request(llm: LLM, params: SamplingParams) -> Counter[str]:
    """What STEPS steps of three requests wait for, all in one batch."""
    engine = llm._engine
    total: Counter[str] = Counter()
    step = engine.step

    def watched() -> None:
        with counted_waits() as seen:
            step()
        total.update(seen)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "step", watched)
        outputs = llm.generate([[1, 2, 3], [4, 5], [6]], params, use_tqdm=False)
    assert all(output.error is None for output in outputs)
    return total


@pytest.mark.usefixtures("overlap")
@pytest.mark.parametrize(
    "params",
    [
        greedy(STEPS, ignore_eos=True),
        SamplingParams(max_tokens=STEPS, temperature=0.8, top_k=20, top_p=0.9, min_p=0.01, seed=3, ignore_eos=True),
        SamplingParams(
            max_tokens=STEPS,
            temperature=0.8,
            seed=3,
            ignore_eos=True,
            repetition_penalty=1.2,
            presence_penalty=0.1,
            frequency_penalty=0.2,
            logit_bias={5: 1.0, 9: -2.0},
            min_tokens=3,
            stop_token_ids=[11],
            logprobs=4,
        ),
        greedy(STEPS, ignore_eos=True, repetition_penalty=1.2, logprobs=0),
    ],
    ids=["greedy", "sampled", "everything", "greedy, penalised"],
)
def test_a_step_on_kernels_reads_only_the_sampled_tokens(
    make_llm: Make, monkeypatch: pytest.MonkeyPatch, params: SamplingParams
) -> None:
    to_read = sampler._to_read
    monkeypatch.setattr(sampler, "_to_read", lambda parts, _: to_read(parts, "cuda"))
    with standin(outside(standin_kernels())):
        llm = make_llm(attention_backend="emulated", dtype="bfloat16", block_size=16)
    monkeypatch.setattr(llm._engine.sampler, "_best_of", best_on_a_device)
    waits = waits_of_a_request(llm, params)
    steps = llm.snapshot().step
    assert dict(waits) == {"tolist": steps}


def test_the_reference_waits_more_often(make_llm: Make) -> None:
    """The count above counts something."""
    waits = waits_of_a_request(make_llm(dtype="float32", block_size=16), greedy(STEPS, ignore_eos=True))
    assert sum(waits.values()) > 3 * STEPS

"""The runner under plans written by hand: rows, copies, tokens that are not written, states that are released."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.architectures.zoo import BY_NAME
from yaie_engine.config import EngineConfig
from yaie_engine.errors import EngineDeadError, YaieError
from yaie_engine.loader import load_model
from yaie_engine.plan import ScheduledSequence, StepPlan
from yaie_engine.runner import ModelRunner
from yaie_engine.sequence import Sequence

torch.set_num_threads(1)
pytestmark = pytest.mark.filterwarnings("ignore")


class Bench:
    """A model, its runner with blocks of 4 full of NaN, and the plain model's logits."""

    def __init__(self, name: str) -> None:
        self.model = BY_NAME[name].build()
        config = EngineConfig(model="x", block_size=4, num_blocks=24)
        self.runner = ModelRunner(load_model(config, self.model), config)
        for tensors in self.runner.cache.layers.values():
            for cache in tensors:
                cache.fill_(torch.nan)

    def plain(self, ids: list[int]) -> Tensor:
        with torch.inference_mode():
            logits: Tensor = self.model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
        return logits


@pytest.fixture(scope="module", params=["llama", "gemma2", "bloom", "lfm2"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    made = Bench(request.param)
    yield made
    made.runner.close()


def sequence(seq_id: int, count: int, blocks: list[int]) -> Sequence:
    ids = [(7 * i * i + 5 * seq_id + 3) % 90 + 3 for i in range(count)]
    return Sequence(seq_id, str(seq_id), ids, count, 8, block_table=blocks)


def entry(seq: Sequence, start: int, count: int, first_write: int | None = None, samples: bool = False) -> Any:
    first = start if first_write is None else first_write
    return ScheduledSequence(seq, start, count, first, "prefill", samples)


def close(ours: Tensor, plain: Tensor) -> None:
    torch.testing.assert_close(ours, plain, atol=5e-5, rtol=5e-5)


def test_rows_come_in_plan_order_whatever_the_order_of_the_batch(bench: Bench) -> None:
    long, one, other = sequence(10, 9, [3, 1, 7]), sequence(11, 6, [0, 2]), sequence(12, 7, [9, 8])
    bench.runner.run(StepPlan(1, [entry(one, 0, 5), entry(other, 0, 6)]))
    plan = StepPlan(2, [entry(long, 0, 9, samples=True), entry(one, 5, 1, samples=True), entry(other, 6, 1)])
    output = bench.runner.run(plan, {12})
    close(output.logits, torch.stack([bench.plain(seq.token_ids)[-1] for seq in (long, one)]))
    assert output.logits.dtype == torch.float32
    assert set(output.prompt_logits) == {12}
    close(output.prompt_logits[12], bench.plain(other.token_ids)[6:])


def test_a_step_without_samples_gives_no_rows(bench: Bench) -> None:
    output = bench.runner.run(StepPlan(1, [entry(sequence(20, 5, [4, 5]), 0, 3)]))
    assert output.logits.shape == (0, 96)
    assert output.prompt_logits == {}


def test_prompt_rows_of_every_chunk(bench: Bench) -> None:
    seq = sequence(30, 11, [6, 10, 11])
    rows = []
    for start, count in ((0, 4), (4, 1), (5, 6)):
        plan = StepPlan(1, [entry(seq, start, count, samples=start == 5)])
        rows.append(bench.runner.run(plan, frozenset({30})).prompt_logits[30])
    close(torch.cat(rows), bench.plain(seq.token_ids))


def test_a_copied_block_serves_a_follower_and_the_last_token_is_not_written(bench: Bench) -> None:
    """A full hit: block 12 by reference, block 13 copied to 14, the last token computed for its logits only."""
    if bench.runner.cache.layers:
        seq = sequence(40, 6, [12, 13])
        bench.runner.run(StepPlan(1, [entry(seq, 0, 6, samples=True)]))
        follower = sequence(40, 6, [12, 14])
        plan = StepPlan(2, [entry(follower, 5, 1, first_write=6, samples=True)], copies=[(13, 14)])
        before = {
            layer: (key[12:14].clone(), value[12:14].clone())
            for layer, (key, value) in bench.runner.cache.layers.items()
        }
        close(bench.runner.run(plan).logits, bench.plain(seq.token_ids)[-1:])
        for layer, (key, value) in bench.runner.cache.layers.items():
            torch.testing.assert_close(key[12:14], before[layer][0], rtol=0, atol=0, equal_nan=True)
            torch.testing.assert_close(key[14], key[13], rtol=0, atol=0, equal_nan=True)
            torch.testing.assert_close(value[14], value[13], rtol=0, atol=0, equal_nan=True)


def test_a_released_sequence_starts_again_from_nothing(bench: Bench) -> None:
    seq = sequence(50, 8, [16, 17])
    bench.runner.run(StepPlan(1, [entry(seq, 0, 5)]))
    output = bench.runner.run(StepPlan(2, [entry(seq, 0, 8, samples=True)], released=[50]))
    close(output.logits, bench.plain(seq.token_ids)[-1:])


def test_a_state_that_stands_elsewhere_is_an_error() -> None:
    bench = Bench("lfm2")
    with pytest.raises(YaieError, match="the state of sequence 1 stands at 0, not at 4"):
        bench.runner.run(StepPlan(1, [entry(sequence(1, 6, [0, 1]), 4, 2)]))


def test_attention_is_called_once_per_layer_for_the_whole_batch() -> None:
    bench = Bench("llama")
    plan = StepPlan(1, [entry(sequence(i, 3 + i, [2 * i, 2 * i + 1]), 0, 3 + i) for i in range(4)])
    bench.runner.run(plan)
    assert bench.runner.attention_calls == {0: 1, 1: 1, 2: 1}


def test_a_closed_runner_says_so() -> None:
    bench = Bench("llama")
    bench.runner.close()
    assert bench.runner.attention_calls == {}
    with pytest.raises(EngineDeadError, match="closed"):
        bench.runner.run(StepPlan(1))


def test_token_budgets() -> None:
    model = BY_NAME["llama"].build()
    for settings, budget in (
        ({}, 512),
        ({"max_num_batched_tokens": 7}, 7),
        ({"enable_chunked_prefill": False, "max_num_batched_tokens": 7}, 128),
    ):
        config = EngineConfig(model="x", num_blocks=4, **settings)
        assert ModelRunner(load_model(config, model), config).max_num_batched_tokens == budget
    config = EngineConfig(model="x", num_blocks=4, max_num_batched_tokens=7, max_model_len=100)
    assert ModelRunner(load_model(config, BY_NAME["mamba"].build()), config).max_num_batched_tokens == 100

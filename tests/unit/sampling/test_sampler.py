"""The sampler by the bug cases other engines had, and on broken logits."""

from __future__ import annotations

import math

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from yaie_engine import sampler as sampler_module
from yaie_engine.errors import RequestError, YaieError
from yaie_engine.params import SamplingParams
from yaie_engine.sampler import SampledToken, Sampler

VOCAB = 200
EOS = (5, 6)


def logits_of(seed: int = 0, rows: int = 1, vocab: int = VOCAB) -> Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * 3


@pytest.fixture
def sampler() -> Sampler:
    return Sampler(VOCAB, VOCAB, EOS)


def solo(sampler: Sampler, logits: Tensor, params: SamplingParams, **row: object) -> SampledToken:
    return sampler.sample(logits, [sampler.new_row(params, seed=1, **row)])[0]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0},
        {"temperature": 1e-4},
        {"temperature": 1e-8},
        {"temperature": 5e-324},
        {"top_p": 0},
        {"top_p": 1e-6},
        {"top_k": 1},
        {"temperature": 0, "top_p": 0.5, "top_k": 3, "min_p": 0.5},
        {"min_p": 1.0},
    ],
)
def test_case_16_near_greedy_settings_are_greedy(sampler: Sampler, settings: dict[str, float]) -> None:
    logits = logits_of(rows=20)
    rows = [sampler.new_row(SamplingParams(**settings), seed=i) for i in range(20)]
    result = sampler.sample(logits, rows)
    assert [token.token_id for token in result] == logits.argmax(-1).tolist()
    assert all(token.error is None for token in result)


@pytest.mark.parametrize("settings", [{"top_k": 0}, {"top_k": -1}, {"top_k": VOCAB}, {"top_k": 10**6}, {"top_p": 1}])
def test_case_16_filters_that_keep_all_change_nothing(sampler: Sampler, settings: dict[str, float]) -> None:
    logits = logits_of(rows=30)
    plain = sampler.sample(logits, [sampler.new_row(SamplingParams(), seed=i) for i in range(30)])
    same = sampler.sample(logits, [sampler.new_row(SamplingParams(**settings), seed=i) for i in range(30)])
    assert plain == same


def test_case_16_the_extremes_of_temperature(sampler: Sampler) -> None:
    hot = solo(sampler, logits_of() * 1e30, SamplingParams(temperature=100))
    assert hot.token_id == int(logits_of().argmax())
    huge = solo(sampler, logits_of() * 1e37, SamplingParams(temperature=1e-8))
    assert huge.token_id == int(logits_of().argmax())


def test_case_17_greedy_with_bias_beside_sampled_rows(sampler: Sampler) -> None:
    logits = logits_of(rows=3)
    logits[0, 3:] = -torch.inf
    params = [
        SamplingParams(temperature=0, logit_bias={0: -100, 1: -100}),
        SamplingParams(temperature=1.3),
        SamplingParams(temperature=0.8, top_p=0.7),
    ]
    together = sampler.sample(logits, [sampler.new_row(p, seed=9) for p in params])
    alone = [sampler.sample(logits[i : i + 1], [sampler.new_row(p, seed=9)])[0] for i, p in enumerate(params)]
    assert together == alone
    assert together[0].token_id == 2


@pytest.mark.parametrize("token_id", [-1, VOCAB, VOCAB - 5, 2**40])
@pytest.mark.parametrize("field", ["logit_bias", "stop_token_ids"])
def test_case_18_ids_outside_the_vocabulary_are_refused(field: str, token_id: int) -> None:
    sampler = Sampler(VOCAB, VOCAB - 10, EOS)
    params = SamplingParams(**{field: {token_id: 1.0} if field == "logit_bias" else [token_id]})
    with pytest.raises(RequestError, match=rf"{field}.*{token_id}.*0 to {VOCAB - 11}"):
        sampler.check(params)
    with pytest.raises(RequestError):
        sampler.new_row(params, seed=0)


def test_case_18_a_bias_that_is_no_number() -> None:
    with pytest.raises((RequestError, ValidationError), match="logit_bias"):
        SamplingParams(logit_bias={"abc": 1})


def test_case_19_choices_of_one_seed_differ_and_repeat(sampler: Sampler) -> None:
    params = SamplingParams(seed=1, n=4, temperature=1.5)

    def run() -> list[list[int]]:
        rows = [sampler.new_row(params, seed=1, index=index) for index in range(4)]
        texts: list[list[int]] = [[] for _ in rows]
        for step in range(12):
            for text, row, token in zip(texts, rows, sampler.sample(logits_of(step).expand(4, -1), rows), strict=True):
                row.push(token.token_id)
                text.append(token.token_id)
        return texts

    first = run()
    assert len({tuple(text) for text in first}) == 4
    assert first == run()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_case_20_penalties_do_not_depend_on_the_order(sampler: Sampler, order: tuple[int, int]) -> None:
    logits = logits_of()
    best = int(logits.argmax())
    params = [SamplingParams(temperature=0, repetition_penalty=50), SamplingParams(temperature=0)]
    alone = [solo(sampler, logits, p, prompt_token_ids=[best]) for p in params]
    rows = [sampler.new_row(params[i], seed=1, prompt_token_ids=[best]) for i in order]
    together = sampler.sample(logits.expand(2, -1), rows)
    assert together == [alone[i] for i in order]
    assert alone[0].token_id != best
    assert alone[1].token_id == best


def test_case_21_which_tokens_are_penalised(sampler: Sampler) -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, 7], logits[0, 8] = 2.0, 1.0
    for settings in ({"presence_penalty": 1.5}, {"frequency_penalty": 1.5}):
        row = sampler.new_row(SamplingParams(temperature=0, **settings), seed=0, prompt_token_ids=[7] * 50)
        assert sampler.sample(logits, [row])[0].token_id == 7, "the prompt does not count"
        row.push(7)
        assert sampler.sample(logits, [row])[0].token_id == 8, "the output does"
    row = sampler.new_row(SamplingParams(temperature=0, repetition_penalty=4), seed=0, prompt_token_ids=[7] * 50)
    assert sampler.sample(logits, [row])[0].token_id == 8, "repetition counts the prompt from the first token"


def test_case_21_presence_counts_once_and_frequency_each_time(sampler: Sampler) -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, 7] = 2.5
    for settings, pushes_until_gone in (({"presence_penalty": 1.0}, None), ({"frequency_penalty": 1.0}, 3)):
        row = sampler.new_row(SamplingParams(temperature=0, **settings), seed=0)
        for pushed in range(6):
            expect_7 = pushes_until_gone is None or pushed < pushes_until_gone
            assert (sampler.sample(logits, [row])[0].token_id == 7) is expect_7
            row.push(7)


def test_case_21_logprobs_stay_those_of_the_raw_model(sampler: Sampler) -> None:
    logits = logits_of()
    raw = torch.log_softmax(logits, -1)[0]
    params = SamplingParams(temperature=0.5, repetition_penalty=2, logit_bias={3: 100}, logprobs=2)
    token = solo(sampler, logits, params, prompt_token_ids=[1, 2, 3])
    assert token.token_id == 3
    assert token.logprobs is not None and next(iter(token.logprobs)) == 3
    assert all(value == float(raw[i]) for i, (value, _) in token.logprobs.items())


@pytest.mark.parametrize("eos", EOS)
def test_case_22_exactly_min_tokens_before_the_end(sampler: Sampler, eos: int) -> None:
    row = sampler.new_row(SamplingParams(temperature=0, min_tokens=4, logit_bias={eos: 100}), seed=0)
    tokens = []
    for step in range(5):
        tokens.append(sampler.sample(logits_of(step), [row])[0].token_id)
        row.push(tokens[-1])
    assert eos not in tokens[:4]
    assert not set(EOS) & set(tokens[:4])
    assert tokens[4] == eos


def test_case_22_min_tokens_also_holds_back_stop_ids(sampler: Sampler) -> None:
    params = SamplingParams(temperature=0, min_tokens=2, stop_token_ids=[9], logit_bias={9: 100}, ignore_eos=True)
    row = sampler.new_row(params, seed=0)
    first = sampler.sample(logits_of(), [row])[0].token_id
    assert first != 9
    row.push(first)
    row.push(first)
    assert sampler.sample(logits_of(), [row])[0].token_id == 9


def test_ignored_end_tokens_may_be_sampled_at_once(sampler: Sampler) -> None:
    params = SamplingParams(temperature=0, min_tokens=4, ignore_eos=True, logit_bias={5: 100})
    assert solo(sampler, logits_of(), params).token_id == 5


def test_ids_beyond_the_tokenizer_are_never_sampled() -> None:
    sampler = Sampler(VOCAB, VOCAB - 50, ())
    logits = logits_of(rows=60)
    logits[:, VOCAB - 50 :] += 50
    for settings in ({"temperature": 0}, {}, {"top_p": 0.9}, {"top_k": 5}, {"presence_penalty": 1}):
        rows = [sampler.new_row(SamplingParams(**settings), seed=i) for i in range(60)]
        assert max(token.token_id for token in sampler.sample(logits, rows)) < VOCAB - 50


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("where", [0, 90, VOCAB - 1])
def test_broken_logits_fail_their_row_only(sampler: Sampler, bad: float, where: int) -> None:
    logits = logits_of(rows=4)
    params = [{"temperature": 0}, {"top_p": 0.9}, {}, {"presence_penalty": 1, "logprobs": 2}]
    rows = [sampler.new_row(SamplingParams(**p), seed=i) for i, p in enumerate(params)]
    healthy = sampler.sample(logits, rows)
    for broken in range(4):
        damaged = logits.clone()
        damaged[broken, where] = bad
        result = sampler.sample(damaged, rows)
        assert isinstance(result[broken].error, YaieError)
        assert result[broken].token_id == -1
        assert [r for i, r in enumerate(result) if i != broken] == [h for i, h in enumerate(healthy) if i != broken]


def test_nan_in_the_padding_is_an_error_too() -> None:
    sampler = Sampler(VOCAB, VOCAB - 50, ())
    logits = logits_of(rows=2)
    logits[1, -1] = math.nan
    result = sampler.sample(logits, [sampler.new_row(SamplingParams(temperature=0), seed=0) for _ in range(2)])
    assert result[0].error is None
    assert "NaN" in str(result[1].error)


def test_a_row_without_any_possible_token(sampler: Sampler) -> None:
    logits = torch.full((1, VOCAB), -torch.inf)
    logits[0, 5] = 1.0
    token = solo(sampler, logits, SamplingParams(min_tokens=3))
    assert "no token can be sampled" in str(token.error)


@pytest.mark.parametrize("shape", [(1, VOCAB - 1), (1, VOCAB + 1), (2, VOCAB), (VOCAB,), (1, 1, VOCAB), (0, VOCAB)])
def test_wrong_shapes_fail_every_row(sampler: Sampler, shape: tuple[int, ...]) -> None:
    result = sampler.sample(torch.zeros(shape), [sampler.new_row(SamplingParams(), seed=0)])
    assert len(result) == 1
    assert "shape" in str(result[0].error)


def test_logits_are_not_changed(sampler: Sampler) -> None:
    logits = logits_of(rows=2)
    before = logits.clone()
    params = SamplingParams(repetition_penalty=2, logit_bias={1: 5}, min_tokens=3)
    sampler.sample(logits, [sampler.new_row(params, seed=0, prompt_token_ids=[1, 2]) for _ in range(2)])
    assert torch.equal(logits, before)


def test_no_rows(sampler: Sampler) -> None:
    assert sampler.sample(torch.zeros(0, VOCAB), []) == []


def test_plain_greedy_rows_pay_for_nothing_else(sampler: Sampler, monkeypatch: pytest.MonkeyPatch) -> None:
    def unwanted(*_: object) -> None:
        raise RuntimeError("a batch without special parameters came here")

    for name in ("draw", "penalise", "add_bias", "forbid", "rank_table"):
        monkeypatch.setattr(sampler_module, name, unwanted)
    logits = logits_of(rows=8)
    rows = [sampler.new_row(SamplingParams(temperature=0), seed=0, prompt_token_ids=[1] * 9) for _ in range(8)]
    assert [token.token_id for token in sampler.sample(logits, rows)] == logits.argmax(-1).tolist()
    assert rows[0].counts is None


def test_half_precision_logits_are_taken_as_float32(sampler: Sampler) -> None:
    logits = logits_of().bfloat16()
    token = solo(sampler, logits, SamplingParams(temperature=0, logprobs=0))
    assert token.logprobs == {token.token_id: (float(torch.log_softmax(logits.float(), -1).max()), 1)}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_gives_the_tokens_of_the_widened_logits(sampler: Sampler, dtype: torch.dtype) -> None:
    """Greedy rows are never widened when they are among themselves; beside others, or alone, they get the same."""
    logits = logits_of(rows=40).to(dtype)
    for settings in ({"temperature": 0}, {"temperature": 0, "logprobs": 2}, {"top_p": 0.8}, {"min_tokens": 3}):
        rows = [sampler.new_row(SamplingParams(**settings), seed=i) for i in range(40)]
        assert sampler.sample(logits, rows) == sampler.sample(logits.float(), rows)
    mixed = [SamplingParams(temperature=0) if i % 2 else SamplingParams() for i in range(40)]
    found = sampler.sample(logits, [sampler.new_row(one, seed=i) for i, one in enumerate(mixed)])
    assert [token.token_id for token in found[1::2]] == logits[1::2].float().argmax(-1).tolist()


@pytest.mark.parametrize("bad", [math.nan, -math.nan, math.inf])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_broken_padding_is_found_whatever_the_row_asks_for(bad: float, dtype: torch.dtype) -> None:
    sampler = Sampler(VOCAB, VOCAB - 50, EOS)
    for settings in ({"temperature": 0}, {}, {"top_k": 4}, {"min_tokens": 2}, {"temperature": 0, "logprobs": 1}):
        for where in (VOCAB - 1, EOS[0]):  # padding, and an id that min_tokens forbids
            logits = logits_of(rows=3).to(dtype)
            logits[1, where] = bad
            rows = [sampler.new_row(SamplingParams(**settings), seed=0) for _ in range(3)]
            assert [token.error is None for token in sampler.sample(logits, rows)] == [True, False, True]

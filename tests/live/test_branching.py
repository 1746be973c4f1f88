"""Branches of an answer: token-exact requests that share the prefix, and what is said when there can be none."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.live.answers import INTRODUCTION, QUESTION, complete, settled
from yaie_engine import LLM, CapacityError, EngineDeadError, RequestError, SamplingParams
from yaie_magic.branching import params_after
from yaie_magic.completion import Completion
from yaie_magic.inspector import Inspector, inspect_completion
from yaie_magic.run import Run
from yaie_magic.session import LoadedEngine, session

PROMPT = INTRODUCTION + QUESTION
POSITION = 10


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM("tiny", num_blocks=128) as found:
        yield found


@pytest.fixture
def story(llm: LLM) -> Completion:
    return complete(llm, PROMPT, max_tokens=40, temperature=0, logprobs=5, ignore_eos=True)


def alternative(inspector: Inspector, position: int = POSITION, of: int = 0) -> int:
    """The most likely token at a position that was not chosen."""
    answer = inspector.answers[of]
    row = answer.row(answer.start + position)
    assert row is not None
    return next(each.token_id for each in row.candidates if each.token_id != answer.output[position])


def test_a_branch_is_exact_to_the_token_and_shares_the_prefix(llm: LLM, story: Completion) -> None:
    inspector = story.inspect()
    other = alternative(inspector)
    branch = inspector.branch(POSITION, other).wait(60)
    prompt = [*llm.tokenize(PROMPT), *story.tokens[:POSITION], other]
    assert branch.prompt == prompt and branch.params.max_tokens == 40 - POSITION - 1
    settings = {"temperature": 0, "ignore_eos": True}
    assert branch.tokens == complete(llm, prompt, max_tokens=40 - POSITION - 1, **settings).tokens
    # Everything before the alternative was computed by the story.
    assert branch.usage.cached == len(prompt) - 1
    assert inspector.branches == [branch]


def test_the_answer_of_a_branch_is_whole(llm: LLM, story: Completion) -> None:
    inspector = story.inspect()
    other = alternative(inspector)
    branch = inspector.branch(POSITION, other).wait(60)
    settled(inspector, 1)
    original, answer = inspector.answers
    assert answer.prompt == original.prompt
    assert answer.output == (*story.tokens[:POSITION], other, *branch.tokens)
    assert answer.rows is not None and original.rows is not None
    assert len(answer.rows) == 40 and answer.rows[: POSITION + 1] == original.rows[: POSITION + 1]
    assert answer.rows[POSITION + 1 :] == complete_rows(llm, branch)
    assert answer.origin is not None and (answer.origin.parent, answer.origin.position) == (0, POSITION)
    assert answer.cached == branch.usage.cached and answer.reason == "length"
    assert answer.chosen(answer.start + POSITION) != original.chosen(original.start + POSITION)
    assert {*answer.prompt, *answer.output} <= answer.readings.keys()
    assert answer.blocks is not None and answer.blocks.table[:2] == original.blocks.table[:2]  # type: ignore[union-attr]


def complete_rows(llm: LLM, branch: Completion) -> tuple[object, ...]:
    from yaie_widgets.inspection import read_rows

    return read_rows(branch.logprobs, llm.vocab_size) or ()


def test_a_branch_of_a_branch(llm: LLM, story: Completion) -> None:
    inspector = story.inspect()
    inspector.branch(POSITION, alternative(inspector)).wait(60)
    settled(inspector, 1)
    second = POSITION + 5
    other = alternative(inspector, second, of=1)
    branch = inspector.branch(second, other, of=1).wait(60)
    settled(inspector, 2)
    assert branch.prompt == [*inspector.answers[1].prompt, *inspector.answers[1].output[:second], other]
    assert inspector.answers[2].output[: second + 1] == (*inspector.answers[1].output[:second], other)
    assert len(inspector.answers[2].output) == 40 and branch.usage.cached >= len(branch.prompt) - 1 - 1


def test_a_branch_can_be_followed_while_it_is_written(llm: LLM) -> None:
    story = complete(llm, PROMPT, max_tokens=80, temperature=0, logprobs=2, ignore_eos=True)
    inspector = story.inspect()
    seen: list[tuple[int, str | None]] = []

    def listen(number: int) -> None:
        answer = inspector.answers[number]
        assert answer.rows is not None and len(answer.rows) == len(answer.output)
        seen.append((len(answer.output), answer.reason))

    inspector.listen(listen)
    inspector.branch(2, alternative(inspector, 2)).wait(60)
    settled(inspector, 1)
    time.sleep(0.05)
    lengths = [length for length, _ in seen]
    assert lengths[0] == 3 and lengths == sorted(lengths) and seen[-1] == (80, "length")
    assert all(reason is None for _, reason in seen[:-1])


def test_a_branch_that_is_stopped_keeps_what_it_has(llm: LLM) -> None:
    story = complete(llm, PROMPT, max_tokens=60, temperature=0, logprobs=2, ignore_eos=True)
    inspector = story.inspect()
    branch = inspector.branch(0, alternative(inspector, 0))
    inspector.stop(1)
    branch.wait(60)
    settled(inspector, 1)
    assert branch.finish_reason == "cancelled" and inspector.answers[1].state == "cancelled"
    assert inspector.answers[1].output == (*inspector.answers[1].output[:1], *branch.tokens)


def test_parameters_of_a_branch_are_those_of_the_answer_less_what_is_written() -> None:
    given = SamplingParams(
        n=3, max_tokens=50, min_tokens=12, seed=7, stop=["x"], temperature=0.5, prompt_logprobs=1, cache_salt="s"
    )
    rest = params_after(given, 10, 1000)
    assert rest == SamplingParams(max_tokens=40, min_tokens=2, seed=7, stop=["x"], temperature=0.5, cache_salt="s")
    assert params_after(SamplingParams(), 56, 1000).max_tokens == 200
    assert params_after(SamplingParams(), 56, 30).max_tokens == 30
    assert params_after(SamplingParams(min_tokens=4), 9, 30).min_tokens == 0


def test_what_cannot_be_branched_says_why(llm: LLM, story: Completion) -> None:
    inspector = story.inspect()
    other = alternative(inspector)
    for position, token, problem in (
        (40, other, "position=40: the output has tokens 0 to 39"),
        (-1, other, "position=-1"),
        (3, llm.vocab_size, f"token ids go from 0 to {llm.vocab_size - 1}"),
        (39, other, "the alternative would be token 40 of max_tokens=40"),
    ):
        with pytest.raises(RequestError, match=problem):
            inspector.branch(position, token)
    with pytest.raises(RequestError, match="of=1: there are answers 0 to 0"):
        inspector.branch(0, other, of=1)
    ended = complete(llm, PROMPT, max_tokens=9, temperature=0, logprobs=5).inspect()
    with pytest.raises(RequestError, match="ends the text there"):
        ended.branch(3, next(iter(llm.end_ids(SamplingParams()))))
    assert inspector.branches == [] and len(inspector.answers) == 1


def test_a_full_context_is_said() -> None:
    with LLM("tiny", num_blocks=64, max_model_len=64) as llm:
        prompt = llm.tokenize(PROMPT)[:60]
        story = complete(llm, prompt, max_tokens=4, temperature=0, logprobs=2, ignore_eos=True)
        inspector = Inspector(story.inspect().answers[0], llm, SamplingParams(temperature=0))
        with pytest.raises(CapacityError, match="max_model_len is 64"):
            inspector.branch(3, llm.tokenize("a")[0])


def test_an_unloaded_engine_is_said_and_the_same_model_takes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "engines", {})
    monkeypatch.setattr(session, "current", None)
    with LLM("tiny", num_blocks=64) as first:
        inspector = complete(first, PROMPT, max_tokens=20, temperature=0, logprobs=5, ignore_eos=True).inspect()
    other = alternative(inspector)
    with pytest.raises(EngineDeadError, match="its engine was unloaded; load the same model again to branch"):
        inspector.branch(POSITION, other)
    with LLM("tiny", num_blocks=64) as again:
        session.engines["default"] = LoadedEngine("default", again.config, again, "tiny")
        monkeypatch.setattr(session, "current", "default")
        assert len(inspector.branch(POSITION, other).wait(60).tokens) == 20 - POSITION - 1
        settled(inspector, 1)
        inspector._model = "of another model"
        with pytest.raises(EngineDeadError, match="tiny is not known to be the same model"):
            inspector.branch(POSITION, other)


def test_without_its_engine_an_answer_reads_from_what_was_recorded() -> None:
    with LLM("tiny", num_blocks=64) as llm:
        story = complete(llm, PROMPT, max_tokens=6, temperature=0, logprobs=2)
    story._run._engine = None
    answer = story.inspect().answers[0]
    assert [answer.readings[i].text.replace("·", " ") for i in answer.output[:2]] == [
        row[i].decoded_token for i, row in list(zip(story.tokens, story.logprobs or (), strict=True))[:2]
    ]
    assert answer.readings[answer.prompt[0]].text.startswith("\u2039")
    assert "Its engine was unloaded" in answer.notes[0]


def test_a_running_request_is_inspected_when_it_has_ended(llm: LLM) -> None:
    params = SamplingParams(max_tokens=200, temperature=0, ignore_eos=True)
    running = Completion(Run(llm.submit(PROMPT, params), llm, PROMPT, params))
    with pytest.raises(RequestError, match="is still running"):
        inspect_completion(running)
    running.cancel()
    assert running.wait(60).inspect().answers[0].state == "cancelled"


def test_prompt_log_probabilities_show_in_the_prompt(llm: LLM) -> None:
    answer = complete(llm, PROMPT, max_tokens=3, temperature=0, prompt_logprobs=3).inspect().answers[0]
    assert answer.prompt_rows is not None and answer.prompt_rows[0] is None and answer.row(5) is not None
    assert answer.rows is None and answer.chosen(5) is not None


def test_blocks_are_those_of_the_snapshot(llm: LLM) -> None:
    params = SamplingParams(max_tokens=200, temperature=0, ignore_eos=True)
    running = Completion(Run(llm.submit(PROMPT, params), llm, PROMPT, params))
    table: tuple[int, ...] = ()
    while not table:
        table = next((r.block_table for r in llm.snapshot().requests if r.num_output_tokens > 4), ())
    running.cancel()
    answer = running.wait(60).inspect().answers[0]
    assert answer.blocks is not None and answer.blocks.table[: len(table)] == table

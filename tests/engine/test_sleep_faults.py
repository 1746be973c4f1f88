"""Sleep and wake when something goes wrong on the way: who is told what, and what is left."""

from __future__ import annotations

import threading
import time

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.engine.conftest import Make
from tests.engine.fakes import LONG, Formula, ask, assert_idle, eventually, greedy, swap_runner, tokens
from tests.engine.models import VOCAB, random_llama, tokenizer
from yaie_engine import LLM, ConfigError, EngineDeadError
from yaie_engine import runner as runner_module

pytestmark = pytest.mark.timeout(120)
PROMPT = list(range(3, 30))


def test_a_sleep_that_is_refused_cancels_nothing(make_llm: Make) -> None:
    """Not even by force: the engine goes on, and so do its requests."""
    with LLM(random_llama(), tokenizer=tokenizer(), block_size=4, num_blocks=32) as llm:
        formula = Formula(VOCAB)
        runner = llm._engine.runner
        swap_runner(llm, formula.runner)
        swapped = llm._engine.runner
        swapped.sleep = runner.sleep  # type: ignore[method-assign]
        handle = llm.submit(PROMPT, greedy(60, ignore_eos=True))
        with pytest.raises(ConfigError, match="level=2"):
            llm.sleep(2, force=True)
        assert tokens(handle.result(LONG)) == formula.greedy(PROMPT, 60) and llm.state == "ready"
        assert_idle(llm)


def test_an_error_in_the_middle_of_falling_asleep_ends_the_engine(make_llm: Make) -> None:
    """Half of the runner is gone then: nobody is told that it serves."""
    llm = make_llm()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner_module, "give_back", lambda device: 1 / 0)
        with pytest.raises(EngineDeadError, match=r"failed.*division by zero.*load the model again"):
            llm.sleep()
    eventually(lambda: not llm._engine._thread.is_alive())
    assert llm.state == "failed"
    with pytest.raises(EngineDeadError):
        llm.submit(PROMPT)


def test_a_panic_while_waking_ends_the_engine_and_the_wait(make_llm: Make) -> None:
    """Of a library in Rust, say: it is no Exception."""

    class Panic(BaseException):
        pass

    def panic(*_: object) -> None:
        raise Panic("index out of bounds")

    llm = make_llm()
    llm.sleep(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("yaie_engine.model_weights.read_source", panic)
        with pytest.raises(Panic):
            llm.wake_up()
    eventually(lambda: llm.state == "failed")
    with pytest.raises(EngineDeadError, match="index out of bounds"):
        llm.wake_up()


def test_memory_that_others_have_let_go_of_is_there_to_wake(make_llm: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    llm = make_llm()
    llm.sleep()
    given: list[object] = []
    monkeypatch.setattr(runner_module, "free_memory", lambda device: 2**30 if given else 0)
    monkeypatch.setattr(runner_module, "give_back", given.append)
    llm.wake_up()
    assert given and ask(llm, PROMPT).error is None


def test_packed_layers_count_as_weights(make_llm: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = make_llm().sleep(2).freed.weight_bytes
    monkeypatch.setattr("yaie_engine.backends.choose.WORTH_KERNELS", 0)
    monkeypatch.setattr("yaie_engine.models.packed.SMALLEST", 1)
    llm = make_llm()
    first = ask(llm, PROMPT)
    if "packed for this CPU" not in llm.snapshot().model.reason:
        pytest.skip("this CPU packs nothing")
    assert 0.9 * plain < llm.sleep(2).freed.weight_bytes <= 1.1 * plain  # rows are padded to panels
    llm.wake_up()
    assert tokens(ask(llm, PROMPT)) == tokens(first) and "packed for this CPU" in llm.snapshot().model.reason


def test_a_reset_drops_the_tree_of_the_moment_at_which_it_happens(make_llm: Make) -> None:
    """Whoever put it into the inbox may have seen one that has been replaced since."""
    llm = make_llm()
    hold = threading.Event()
    llm._engine._inbox.put(lambda: hold.wait(LONG) and None)
    dropped: list[int] = []
    thread = threading.Thread(target=lambda: dropped.append(llm.reset()))
    eventually(lambda: llm._engine._inbox.qsize() == 0)
    llm._engine._inbox.put(llm._scheduler.rebuild)
    handle = llm.submit(PROMPT, greedy(4))
    thread.start()
    eventually(lambda: llm._engine._inbox.qsize() == 3)
    hold.set()
    thread.join(LONG)
    handle.result(LONG)
    dropped.append(llm.reset())
    assert sum(dropped) > 0 and llm.snapshot().blocks.cached == 0


def test_engines_that_wake_at_once_read_their_models_one_by_one(
    make_llm: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers sets torch's default dtype while it reads; two at a time mix theirs, and leave one behind."""
    llms = [make_llm(dtype=dtype) for dtype in ("float32", "bfloat16")]
    expected = [tokens(ask(llm, PROMPT)) for llm in llms]
    read, inside, most = AutoModelForCausalLM.from_pretrained, [0], [0]

    def slowly(*given: object, **more: object) -> object:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        time.sleep(0.05)
        model = read(*given, **more)
        inside[0] -= 1
        return model

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", slowly)
    for llm in llms:
        llm.sleep(2)
    threads = [threading.Thread(target=llm.wake_up) for llm in llms]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert most == [1] and torch.get_default_dtype() == torch.float32
    assert [tokens(ask(llm, PROMPT)) for llm in llms] == expected

"""The exchange of kernels: all engines stand between two steps, and nothing that other kernels made outlives it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.conftest import Make
from tests.engine.fakes import ask, eventually, greedy, tokens
from tests.engine.standin import REFERENCES, NoLauncher, standin, standin_kernels
from yaie_cuda import sources
from yaie_engine import LLM, kernel_exchange
from yaie_engine.errors import YaieError
from yaie_engine.kernel_exchange import exchange, model_sizes, users
from yaie_engine.kernel_gate import GATE

pytestmark = pytest.mark.timeout(120)
PROMPT = list(range(3, 30))
KERNEL = "silu_and_mul"


@pytest.fixture
def on_kernels(make_llm: Make, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., LLM]]:
    """Makes engines that run kernels; a source that was replaced is restored."""
    monkeypatch.setattr(NoLauncher, "loaded", (), raising=False)

    def make(**settings: Any) -> LLM:
        with standin(standin_kernels()):
            return make_llm(attention_backend="emulated", **settings)

    yield make
    sources.restore()


def other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another gate, and its source."""
    right = REFERENCES[KERNEL]

    def half(source: Any, out: Any) -> None:
        right(source, out)
        out.mul_(0.5)

    monkeypatch.setitem(REFERENCES, KERNEL, half)
    sources.replace(KERNEL, "another text")


def test_all_open_engines_with_kernels_are_users(on_kernels: Callable[..., LLM], make_llm: Make) -> None:
    one, two, plain = on_kernels(), on_kernels(), make_llm()
    assert {one, two} <= set(users()) and plain not in users()
    sizes = model_sizes(one)
    assert sizes is not None and sizes.vocab == one.vocab_size
    two.close()
    assert two not in users()


def test_no_kv_of_other_kernels_is_left_in_any_engine(
    on_kernels: Callable[..., LLM],
) -> None:
    """What ran at the exchange, and at the way back, is computed anew, and so is what it leaves in the cache."""
    engines = on_kernels(num_blocks=128), on_kernels(num_blocks=128)
    long = greedy(60, ignore_eos=True)
    right = [tokens(ask(llm, PROMPT, long)) for llm in engines]
    with pytest.MonkeyPatch.context() as patch:
        exchange(lambda: other(patch))
        first = [ask(llm, PROMPT, long) for llm in engines]
        assert all(output.num_cached_tokens == 0 for output in first)
        assert all(tokens(output) != expected for output, expected in zip(first, right, strict=True))
        running = [llm.submit(PROMPT[:9], greedy(100, ignore_eos=True)) for llm in engines]
        for handle in running:
            next(iter(handle))

        def back() -> None:
            patch.undo()
            sources.restore()

        exchange(back)
    outputs = [handle.result(60) for handle in running]
    assert all(output.error is None and len(tokens(output)) == 100 for output in outputs)
    for llm, output, expected in zip(engines, outputs, right, strict=True):
        llm.check()
        assert tokens(ask(llm, PROMPT, long)) == expected
        whole = [*output.prompt_token_ids, *tokens(output)]
        cached, fresh = (ask(llm, whole, greedy(20, ignore_eos=True, cache_salt=salt)) for salt in (None, "fresh"))
        assert cached.num_cached_tokens > 90 and fresh.num_cached_tokens == 0
        assert tokens(cached) == tokens(fresh)


def test_without_a_change_caches_stay(on_kernels: Callable[..., LLM]) -> None:
    llm = on_kernels()
    ask(llm, PROMPT)
    exchange(lambda: sources.replace(KERNEL, sources.built_in(KERNEL)))
    assert ask(llm, PROMPT).num_cached_tokens > 0


def test_every_engine_stands_still_during_the_change(on_kernels: Callable[..., LLM]) -> None:
    engines = on_kernels(), on_kernels()
    handles = [llm.submit(PROMPT, greedy(60, ignore_eos=True)) for llm in engines]
    for handle in handles:
        next(iter(handle))

    def change() -> bool:
        before = [llm._engine.scheduler.step for llm in engines]
        time.sleep(0.2)
        return before == [llm._engine.scheduler.step for llm in engines]

    assert exchange(change)
    assert all(len(tokens(handle.result(60))) == 60 for handle in handles)


def test_an_engine_that_does_not_end_its_step_leaves_all_as_it_was(
    on_kernels: Callable[..., LLM], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_exchange, "STEP_S", 0.2)
    stuck, well = on_kernels(), on_kernels()
    until = threading.Event()

    def wait() -> None:
        until.wait(60)

    stuck._engine._post(wait)
    changed: list[int] = []
    with pytest.raises(YaieError, match="did not end its step within"):
        exchange(lambda: changed.append(1))
    assert not changed and ask(well, PROMPT).error is None
    until.set()
    assert ask(stuck, PROMPT).error is None
    exchange(lambda: changed.append(1))
    assert changed == [1]


def test_an_engine_that_is_being_loaded_is_waited_for(on_kernels: Callable[..., LLM], folder: Path) -> None:
    """It would else be checked, and captured, with kernels that it does not run."""
    loads, goes_on, exchanged = threading.Event(), threading.Event(), threading.Event()
    made: list[LLM] = []

    def progress(what: str, share: float | None) -> None:
        if what == "checking kernels":
            loads.set()
            assert goes_on.wait(60)

    def load() -> None:
        made.append(LLM(str(folder), attention_backend="emulated", block_size=16, num_blocks=16, progress=progress))

    seen: list[int] = []

    def exchange_all() -> None:
        exchange(lambda: seen.append(len(users())))
        exchanged.set()

    before = len(users())
    with standin(standin_kernels()):
        loader, changer = threading.Thread(target=load), threading.Thread(target=exchange_all)
        loader.start()
        assert loads.wait(60)
        changer.start()
        assert not exchanged.wait(0.3)
        goes_on.set()
        loader.join()
        changer.join()
    assert seen == [before + 1] and ask(made[0], PROMPT).error is None
    made[0].close()


def test_a_load_that_takes_too_long_is_said_and_none_begins_during_an_exchange(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernel_exchange, "STEP_S", 0.1)
    with GATE.loading(), pytest.raises(YaieError, match="an engine is being loaded; kernels stay as they are"):
        exchange(lambda: None)
    begun = threading.Event()

    def load() -> None:
        with GATE.loading():
            begun.set()

    thread = threading.Thread(target=load)

    def change() -> bool:
        thread.start()
        return begun.wait(0.2)

    assert not exchange(change)
    assert begun.wait(60)
    thread.join()


def test_a_change_that_fails_lets_all_engines_go_on(on_kernels: Callable[..., LLM]) -> None:
    engines = on_kernels(), on_kernels()
    with pytest.raises(ZeroDivisionError):
        exchange(lambda: 1 // 0)
    assert all(ask(llm, PROMPT).error is None for llm in engines)


def test_many_exchanges_at_a_time_and_a_close_end(on_kernels: Callable[..., LLM]) -> None:
    engines = [on_kernels() for _ in range(3)]
    texts = [f"text {index}" for index in range(20)]
    threads = [
        threading.Thread(target=exchange, args=(lambda text=text: sources.replace(KERNEL, text),), daemon=True)
        for text in texts
    ]
    handles = [llm.submit(PROMPT, greedy(60, ignore_eos=True)) for llm in engines]
    for thread in threads:
        thread.start()
    engines[1].close()
    eventually(lambda: not any(thread.is_alive() for thread in threads))
    assert [len(tokens(handles[index].result(60))) for index in (0, 2)] == [60, 60]

"""Sleep and wake: what goes back to the system, what stays, and that nothing made before serves after."""

from __future__ import annotations

import shutil
import weakref
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from tests.engine.conftest import Make
from tests.engine.fakes import LONG, Formula, ask, assert_idle, greedy, swap_runner, tokens
from tests.engine.graph_recorder import GraphRecorder
from tests.engine.late_device import late
from tests.engine.models import VOCAB, random_llama, tokenizer
from tests.engine.standin import standin, standin_kernels
from tests.engine.test_overlap import run_all, submitted
from yaie_engine import LLM, AsleepError, BusyError, ConfigError, EngineDeadError, Generation, YaieError
from yaie_engine import runner as runner_module
from yaie_engine.errors import ModelLoadError
from yaie_engine.kv_cache import KVCache
from yaie_engine.model_weights import ModelWeights
from yaie_engine.plan import StepPlan
from yaie_engine.runner import ModelRunner

pytestmark = pytest.mark.timeout(120)
PROMPT = list(range(3, 30))
LEVELS = pytest.mark.parametrize("level", [1, 2])


def pool(llm: LLM) -> KVCache:
    runner = llm._engine.runner
    assert isinstance(runner, ModelRunner)
    return runner.cache


def poisoned(llm: LLM) -> list[weakref.ref[torch.Tensor]]:
    """NaN in all KV, and who to ask whether it is still there."""
    found = []
    for pair in pool(llm).layers.values():
        for tensor in pair:
            tensor.fill_(torch.nan)
            found.append(weakref.ref(tensor))
    return found


@LEVELS
def test_after_waking_answers_are_the_same_and_nothing_is_cached(make_llm: Make, level: int) -> None:
    llm = make_llm()
    first = ask(llm, PROMPT)
    assert ask(llm, PROMPT).num_cached_tokens > 0
    old = poisoned(llm)
    report = llm.sleep(level)
    assert (report.level, report.already, report.num_cancelled) == (level, False, 0)
    assert (
        report.freed.kv_bytes == 32 * 4 * 3 * 2 * 2 * 16 * 4
    )  # blocks, tokens, layers, K and V, heads, numbers, bytes
    assert [tensor() for tensor in old] == [None] * len(old)
    llm.check()
    asleep = llm.snapshot()
    assert asleep.state == llm.state == "asleep" and llm.is_sleeping
    blocks = asleep.blocks
    assert blocks.free + blocks.held + blocks.cached == blocks.total == 0
    assert [node.num_tokens for node in asleep.tree] == [0]
    assert not llm.wake_up().already and llm.state == "ready"
    again = ask(llm, PROMPT)
    assert tokens(again) == tokens(first) and again.num_cached_tokens == 0
    assert ask(llm, PROMPT).num_cached_tokens > 0
    assert_idle(llm)


@LEVELS
def test_history_recorder_and_ids_go_on(make_llm: Make, level: int) -> None:
    llm = make_llm()
    before = ask(llm, PROMPT)
    steps, tape = llm.snapshot().steps, llm.tape()
    llm.sleep(level)
    *before_sleep, emptied = llm.snapshot().steps
    assert tuple(before_sleep) == steps and llm.tape().steps[:-1] == tape.steps
    assert emptied.step == steps[-1].step + 1 and emptied.batch == () and emptied.tree.evicted
    assert set(emptied.blocks.freed) >= {block for step in steps for block in step.blocks.allocated}
    assert [record.request_id for record in llm.history()] == [before.request_id]
    assert llm.tokenize("Q") == llm.tokenizer.encode("Q") and llm.chat_ids([{"role": "user", "content": "x"}])
    assert llm.running() == [] and llm.cancel() == 0 and llm.reset() == 0
    llm.wake_up()
    ask(llm, [*PROMPT, 31])
    first = llm.snapshot().steps[len(steps) + 1]
    assert first.step == emptied.step + 1 and len(llm.history()) == 2
    assert not first.tree.evicted and not first.blocks.freed
    frames = [frame.copy() for frame in llm.tape().frames()]
    for node in frames[-1].nodes.values():
        assert len(node.token_ids) == len(PROMPT) + 1 + 12 - 1


def test_asleep_all_that_is_asked_is_refused_and_names_the_way_out(make_llm: Make) -> None:
    llm = make_llm()
    llm.sleep()
    for work in (
        lambda: llm.submit(PROMPT),
        lambda: llm.generate([PROMPT] * 2, use_tqdm=False),
        lambda: llm.score(PROMPT),
    ):
        with pytest.raises(AsleepError, match=r"%yaie wake or llm\.wake_up\(\)"):
            work()
    with pytest.raises(ValueError, match="prompt"):  # a mistake is told as ever
        llm.submit([])
    llm.wake_up()
    assert ask(llm, PROMPT).error is None


def test_twice_is_a_no_op_that_says_so_and_level_2_follows_level_1(make_llm: Make) -> None:
    llm = make_llm()
    assert llm.wake_up().already
    assert not llm.sleep(1).already
    assert llm.sleep(1).already
    deeper = llm.sleep(2)
    assert not deeper.already and deeper.freed.weights == "dropped" and deeper.freed.kv_bytes == 0
    for level in (1, 2):
        again = llm.sleep(level)
        assert again.already and again.level == 2
    assert not llm.wake_up().already and llm.wake_up().already
    assert ask(llm, PROMPT).error is None


@pytest.mark.parametrize("level", [0, 3, True, "1", None, 1.5])
def test_a_wrong_level_is_refused_before_anything_happens(llm: LLM, level: Any) -> None:
    with pytest.raises(ConfigError, match=r"level=.*allowed are 1 .* and 2 "):
        llm.sleep(level)
    assert llm.state == "ready"


def test_with_running_work_it_is_refused_with_the_count(llm: LLM) -> None:
    """Those count, too, that the engine's thread has not seen yet: they were accepted."""
    swap_runner(llm, Formula(VOCAB).runner)
    handles = submitted(llm, [(PROMPT, greedy(60, ignore_eos=True))] * 3)
    with pytest.raises(BusyError, match=r"3 requests are running: .*--force") as caught:
        llm.sleep()
    assert caught.value.count == 3
    assert all(len(tokens(handle.result(LONG))) == 60 for handle in handles)


def test_force_cancels_what_runs_and_keeps_its_text(llm: LLM) -> None:
    formula = Formula(VOCAB)
    swap_runner(llm, formula.runner)
    handles = [llm.submit([i, *PROMPT], greedy(90, ignore_eos=True)) for i in range(3)]
    next(iter(handles[0]))
    report = llm.sleep(force=True)
    for handle in handles:
        output = handle.result(LONG)
        assert output.error is None and output.outputs[0].finish_reason == "cancelled"
        assert tokens(output) == formula.greedy(list(output.prompt_token_ids), 90)[: len(tokens(output))]
    assert report.num_cancelled == 3 and llm.snapshot().queue.decode == 0
    llm.check()
    llm.wake_up()


@LEVELS
def test_between_any_two_steps(llm: LLM, level: int) -> None:
    """The guess of the next step and the inputs that lie ready for it are gone, whichever step it is."""
    asks = [([i, *PROMPT[: 4 * i]], greedy(9, ignore_eos=True)) for i in range(3)]
    asks.append((PROMPT, greedy(6, ignore_eos=True, n=2)))
    with late(llm) as device:
        first = llm.step
        run_all(llm, asks)
        num_steps = llm.step - first
        llm.reset()
        for at in range(1, num_steps):
            start = llm.step
            reports: list[Any] = []

            def before(plan: StepPlan, start: int = start, at: int = at, reports: list[Any] = reports) -> None:
                if plan.step == start + at:
                    llm._engine._inbox.put(lambda: reports.append(sleep_now(llm, level)))

            device.before = before
            handles: list[Generation] = submitted(llm, asks)
            outputs = [handle.result(LONG) for handle in handles]
            device.before = lambda plan: None
            llm._engine.call(lambda: None)
            assert llm.is_sleeping and len(reports) == 1
            llm.check()
            assert llm._engine._guess is None and llm._engine._finished is None
            llm.wake_up()
            for output in outputs:
                for choice in output.outputs:
                    wanted = Formula(0).greedy(list(output.prompt_token_ids), 9)
                    assert list(choice.token_ids) == wanted[: len(choice.token_ids)]
            assert len(tokens(ask(llm, PROMPT, greedy(5, ignore_eos=True)))) == 5
        assert num_steps > 8 and device.taken > 20


def sleep_now(llm: LLM, level: int) -> Any:
    from yaie_engine.sleep import fall_asleep

    return fall_asleep(llm._engine, level, force=True)


@LEVELS
def test_captured_steps_are_captured_anew(make_llm: Make, level: int) -> None:
    """A replay of before would read and write KV that is gone."""
    recorder = GraphRecorder()
    with standin(recorder.kernels(standin_kernels())):
        llm = make_llm(attention_backend="emulated", block_size=16, max_num_seqs=6)
        runner = llm._engine.runner
        assert isinstance(runner, ModelRunner)
        llm._engine.call(lambda: runner.use_graphs(recorder.capture, 6, llm.max_model_len))
        prompts = [PROMPT[: 5 + i] for i in range(5)]
        expected = [tokens(out) for out in llm.generate(prompts, greedy(8), use_tqdm=False)]
        captures, backend = recorder.captures, pool(llm).backend
        old = poisoned(llm)
        llm.sleep(level)
        assert not runner.replays(1)
        llm.wake_up()
    assert recorder.captures == 2 * captures and runner.replays(1)
    assert (pool(llm).backend is backend) == (level == 1)
    replays = recorder.replays
    assert [tokens(out) for out in llm.generate(prompts, greedy(8), use_tqdm=False)] == expected
    assert recorder.replays > replays and all(tensor() is None for tensor in old)


def resident() -> int:
    return int(psutil.Process().memory_info().rss)


@LEVELS
def test_memory_really_goes_back(make_llm: Make, level: int) -> None:
    llm = make_llm(num_blocks=34_000)  # 104 MB
    ask(llm, PROMPT)
    before = resident()
    poisoned(llm)
    full = resident()
    freed = llm.sleep(level).freed
    assert freed.kv_bytes > 100e6 and full - before > 0.9 * freed.kv_bytes
    assert full - resident() > 0.9 * freed.kv_bytes
    llm.wake_up()
    assert ask(llm, PROMPT).error is None


def test_a_model_object_that_was_handed_in_stays_its_owners(make_llm: Make) -> None:
    model = random_llama()
    with LLM(model, tokenizer=tokenizer(), block_size=4, num_blocks=16) as llm:
        first = ask(llm, PROMPT)
        with pytest.raises(ConfigError, match="level=2 drops the weights, and they belong to the model object"):
            llm.sleep(2)
        assert llm.state == "ready" and ask(llm, PROMPT).num_cached_tokens > 0
        freed = llm.sleep(1).freed
        assert freed.weights == "kept" and "handed in" in freed.why and freed.kv_bytes
        with torch.inference_mode():
            assert model(torch.tensor([PROMPT])).logits.isfinite().all()
        llm.wake_up()
        assert tokens(ask(llm, PROMPT)) == tokens(first)


def test_level_2_reads_the_same_files_again_or_stays_asleep(
    make_llm: Make, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(folder, mine)
    monkeypatch.chdir(tmp_path)
    llm = make_llm(model="./mine")
    first = ask(llm, PROMPT)
    llm.sleep(2)
    monkeypatch.chdir("/")  # a relative path is that of the load
    weights = mine / "model.safetensors"
    kept = weights.read_bytes()
    other = random_llama()
    with torch.no_grad():
        other.lm_head.weight.mul_(1.5)
    other.save_pretrained(mine)
    with pytest.raises(ModelLoadError, match=r"stays asleep: mine: its files have changed .*%yaie restart"):
        llm.wake_up()
    weights.unlink()
    with pytest.raises(ModelLoadError, match="stays asleep: mine"):
        llm.wake_up()
    assert llm.is_sleeping and llm.snapshot().state == "asleep"
    llm.check()
    weights.write_bytes(kept)
    llm.wake_up()
    assert tokens(ask(llm, PROMPT)) == tokens(first)


@LEVELS
def test_without_memory_it_stays_asleep_and_says_what_is_needed(
    make_llm: Make, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = make_llm()
    llm.sleep(level)
    for_weights = r".* for the weights, " if level == 2 else ""
    with monkeypatch.context() as patch:
        patch.setattr(runner_module, "free_memory", lambda device: 5000)
        said = rf"stays asleep: .*KiB are needed \({for_weights}.* for 32 KV blocks\), 4\.9 KiB of RAM are free"
        with pytest.raises(ModelLoadError, match=said):
            llm.wake_up()
    with monkeypatch.context() as patch:

        def full(cache: KVCache, heads: int, dim: int) -> torch.Tensor:
            if cache.num_blocks == 32 and len(cache.layers) == 2:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB. A long story follows.")
            return torch.empty((cache.num_blocks, heads, cache.block_size, dim), dtype=cache.dtype)

        patch.setattr(KVCache, "_new", full)
        with pytest.raises(ModelLoadError, match=r"stays asleep: no memory for 32 KV blocks"):
            llm.wake_up()
    with monkeypatch.context() as patch:
        patch.setattr(runner_module, "make_tier", lambda *_: 1 / 0)
        with pytest.raises(ModelLoadError, match=r"stays asleep: division by zero"):
            llm.wake_up()
        assert not pool(llm).layers
    assert llm.is_sleeping
    with pytest.raises(AsleepError):
        llm.submit(PROMPT)
    llm.wake_up()
    assert ask(llm, PROMPT).error is None


def test_weights_that_do_not_fit_into_host_memory_keep_it_awake(
    make_llm: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = make_llm()
    ask(llm, PROMPT)
    monkeypatch.setattr(ModelWeights, "_moves", property(lambda weights: True))
    monkeypatch.setattr("yaie_engine.model_weights.free_memory", lambda device: 1000)
    with pytest.raises(ModelLoadError, match=r"need .* of host memory, and 1000 bytes are free: level 2 drops them"):
        llm.sleep()
    assert llm.state == "ready" and ask(llm, PROMPT).num_cached_tokens > 0


def test_weights_move_to_the_host_and_back(make_llm: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU: the storages of the model's tensors are emptied in place, so that every holder sees them back."""
    monkeypatch.setattr(ModelWeights, "_moves", property(lambda weights: weights._level == 0))
    llm = make_llm()
    weights = llm._engine.runner._weights  # type: ignore[attr-defined]
    parameters = list(weights.loaded.model.parameters())
    for parameter in parameters:  # those of a file that is mapped cannot be emptied
        parameter.data = parameter.data.clone()
    first = ask(llm, PROMPT)
    report = llm.sleep()
    assert report.freed.weights == "host" and report.freed.weight_bytes == weights.nbytes > 100_000
    assert sum(parameter.untyped_storage().nbytes() for parameter in parameters) == 0
    with monkeypatch.context() as patch:
        patch.setattr(ModelRunner, "_allocate", lambda *_: 1 / 0)
        with pytest.raises(YaieError, match="division"):
            llm.wake_up()
    assert sum(parameter.untyped_storage().nbytes() for parameter in parameters) == 0
    llm.wake_up()
    assert tokens(ask(llm, PROMPT)) == tokens(first)
    assert weights._copy is None


def test_close_ends_a_sleeping_engine(make_llm: Make) -> None:
    llm = make_llm()
    llm.sleep()
    llm.close()
    assert llm.state == "closed" and llm.snapshot().state == "closed" and not llm.is_sleeping
    for work in (llm.sleep, llm.wake_up, lambda: llm.submit(PROMPT)):
        with pytest.raises(EngineDeadError):
            work()

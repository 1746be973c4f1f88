"""Real peers on a tiny model: the same tokens from all, in this process and through the whole command."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from benchmarks.comparison import main as command
from benchmarks.comparison import models, native, peer_continuous, peer_generate, peer_in_place, peer_llama, peer_yaie
from benchmarks.comparison.agreement import compare, gap
from benchmarks.comparison.child import serve
from benchmarks.comparison.peer import PEERS, Answering, Setup
from benchmarks.comparison.worker import PeerFailed, Worker
from yaie_magic.bench.trial import UNSEEN
from yaie_magic.bench.workloads import SMALL, Workload, make, random_ids

SERVER = Path(__file__).with_name("fake_llama_server.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.random_folder(tiny=True, folder=tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def setup(folder: Path) -> Setup:
    return Setup(str(folder), "", "float32", 1, 128, 8)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Peers own their process; here they share one with other tests."""
    threads, grad = torch.get_num_threads(), torch.is_grad_enabled()
    yield
    torch.set_num_threads(threads)
    torch.set_grad_enabled(grad)


def workload(name: str) -> Workload:
    return make(name, random_ids(512), SMALL)


def test_all_peers_give_the_same_tokens(setup: Setup) -> None:
    generate = peer_generate.open_peer(setup)
    peers: dict[str, Answering] = {"generate": generate, "continuous": peer_continuous.open_peer(setup)}
    ours = peer_yaie.open_peer(setup)
    for name in ("W2", "W3s"):
        mine = ours.run(workload(name))
        assert [len(each.token_ids) for each in mine.served] == [ask.tokens for ask in workload(name).asks]
        assert all(0 < each.ttft <= each.total <= mine.wall for each in mine.served)
        for peer, opened in peers.items():
            theirs = opened.run(workload(name))
            assert all(0 < each.ttft <= each.total <= theirs.wall for each in theirs.served)
            found = compare(
                peer,
                workload(name),
                mine,
                theirs,
                lambda cases: [gap(generate.model, c["ids"], c["tokens"]) for c in cases],
            )
            assert found.different == 0 and found.equal == len(mine.served) and found.distinct > 3, (peer, name)
    edited = ours.run(workload("W5"))
    in_place, calls = peer_in_place.open_peer(setup), list[int]()
    in_place._model.register_forward_pre_hook(lambda module, given: calls.append(given[0].shape[1]))
    yardstick = in_place.run(workload("W5"))
    assert len(calls) == len(yardstick.served), "what is in place was computed again"
    assert [each.token_ids[0] for each in yardstick.served] == [each.token_ids[0] for each in edited.served]
    ours.close()


def test_our_engine_begins_each_repetition_without_a_cache(setup: Setup) -> None:
    ours = peer_yaie.open_peer(setup)
    for _ in range(2):
        ours.run(workload("W4"))
        cold, warm = ours._llm.history(2)
        assert cold.num_cached_tokens == 0 and warm.num_cached_tokens == 39
    ours.close()


def test_weights_as_gguf_are_the_same_model(folder: Path) -> None:
    gguf = pytest.importorskip("gguf")
    from safetensors.torch import load_file

    path = models.random_gguf(folder, "float32")
    assert models.random_gguf(folder, "float32") == path
    read = {tensor.name: tensor.data for tensor in gguf.GGUFReader(path).tensors}
    source = load_file(folder / "model.safetensors")
    assert len(read) == 2 + 9 * 2
    assert (read["token_embd.weight"] == source["model.embed_tokens.weight"].numpy()).all()
    # Rows of q change places within a head of 16: neighbours 0, 1 were rows 0 and 8.
    q = source["model.layers.1.self_attn.q_proj.weight"].numpy()
    assert (read["blk.1.attn_q.weight"][[0, 1, 16, 17]] == q[[0, 8, 16, 24]]).all()
    v = source["model.layers.1.self_attn.v_proj.weight"].numpy()
    assert (read["blk.1.attn_v.weight"] == v).all()


def test_the_whole_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], llama: Setup) -> None:
    pytest.importorskip("gguf")
    given = ["--small", "--allow-load", "--rounds", "1", "--no-check", "--peers", "llama.cpp", "--threads", "1"]
    given += ["--workloads", "W1,W2", "--llama-server", llama.llama_server, "--dtype", "bfloat16"]
    code = command.main([*given, "--out", str(tmp_path / "out")])
    shown = capsys.readouterr()
    assert code == 0, shown.err
    run = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert str(tmp_path) not in json.dumps(run) and "--llama-server llama-server " in run["command"]
    assert all(int(about["memory_mib"]) > 10 for about in run["peers"].values())
    assert run["small"] and run["allow_load"] and run["machine"]["cores"] >= 1
    for workload in run["workloads"]:
        rows = {row["peer"]: row for row in workload["rows"]}
        assert set(rows) == {"yaie", "llama.cpp"} and all(len(row["repetitions"]) == 1 for row in rows.values())
    assert run["peers"]["llama.cpp"]["version"] == "99 (abc)"
    assert "| llama.cpp's server |" in shown.out
    assert (tmp_path / "out" / "compare.svg").is_file()


def test_a_busy_machine_is_not_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "wait_until_quiet", lambda limit, seconds: 0.4)
    assert command.main(["--small", "--out", str(tmp_path / "none")]) == command.BUSY
    shown = capsys.readouterr().err
    assert "other processes take 40% of this machine, at most 10% is allowed" in shown and "--allow-load" in shown
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--workloads", "W9"], "--workloads W9: there are W1, W2"),
        (["--peers", "vllm"], "--peers vllm: there are yaie, generate"),
        (["--rounds", "0"], "--rounds 0: at least 1"),
        (["--limit", "0"], "--limit 0.0: more than 0"),
        (["--gguf", "x.gguf"], "--gguf goes with --model"),
        (["--model", "/no/such/folder"], "/no/such/folder is no model folder"),
    ],
)
def test_a_wrong_option_is_named(words: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(words)
    assert ended.value.code == 2 and reason in capsys.readouterr().err


def test_the_help_says_how_llama_is_built(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--help"])
    assert "-DGGML_NATIVE=ON" in capsys.readouterr().out


@pytest.fixture
def llama(tmp_path: Path) -> Setup:
    """A program that talks as llama.cpp's server does."""
    program = tmp_path / "llama-server"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {SERVER} "$@"\n')
    program.chmod(0o755)
    (tmp_path / "m.gguf").touch()
    return Setup("", str(tmp_path / "m.gguf"), "float32", 1, 128, 4, str(program), str(tmp_path))


def test_llama_is_asked_with_ids_and_told_to_keep_float32(llama: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "cpu_flags", lambda: frozenset({"avx2", "avx512f"}))
    assert PEERS["llama.cpp"].missing(llama) == ""
    server = peer_llama.open_peer(llama)
    try:
        assert server.about["version"] == "99 (abc)" and server.about["native"] == "no: it lacks AVX512"
        trial = server.run(workload("W2"))
        # It answers with the length of the prompt and counts on; its second token it holds back.
        for ask, each in zip(workload("W2").asks, trial.served, strict=True):
            assert each.token_ids == (len(ask.prompt), UNSEEN, *range(2, ask.tokens))
            assert 0 < each.ttft <= each.total
        assert [each.token_ids[0] for each in server.run(workload("W4")).served] == [40, 40]
    finally:
        server.close()
    words = (Path(llama.scratch) / "llama-server.log").read_text().split()
    assert "--cache-type-k" in words and words[words.index("--parallel") + 1] == "4"
    assert "--kv-unified" in words and "--swa-full" not in words  # as its help has it
    assert words[words.index("--flash-attn") + 1] == "off"  # it rounds to half precision


def test_a_llama_that_dies_is_told_with_the_end_of_its_log(llama: Setup) -> None:
    Path(llama.gguf).write_text("broken")
    with pytest.raises(RuntimeError, match=r"ended with 3: .*cannot read the model"):
        peer_llama.open_peer(llama)


def test_a_peer_that_dies_or_is_silent_is_said_and_started_again(
    setup: Setup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import sys, json; sys.stdin.readline(); print(json.dumps({'ok': {'version': '1'}}), flush=True); "

    def start(then: str) -> Worker:
        worker = Worker("generate", setup, tmp_path / "log", limit=0.5)
        run = [sys.executable, "-S", "-c", code + then]
        monkeypatch.setattr(
            worker, "_start", lambda: subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        )
        return worker

    worker = start("sys.stdin.readline(); sys.exit(9)")
    monkeypatch.setattr(worker, "_limit", 60.0)
    for _ in range(2):
        with pytest.raises(PeerFailed, match="its process died"):
            worker.run(workload("W1"))
        assert worker.pid == 0 and worker.about == {"version": "1"}
    silent = start("import time; time.sleep(600)")
    silent._limit = 60.0
    silent.load()
    silent._limit = 0.2
    with pytest.raises(PeerFailed, match=r"no answer within 0\.2 s"):
        silent.run(workload("W1"))
    assert silent.pid == 0


def test_a_child_answers_failures_and_ends_its_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    orders = [{"do": "run", "given": [workload("W1").to_dict()]}, {"do": "close", "given": []}]
    out = io.StringIO()
    serve("in place", io.StringIO("".join(json.dumps(order) + "\n" for order in orders)), out)
    first, second = (json.loads(line) for line in out.getvalue().splitlines())
    assert first == {"error": "RuntimeError: the peer is not loaded"} and second == {"ok": None}

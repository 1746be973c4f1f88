"""`yaie kernels`: what is listed and compiled, for which GPUs, and how failures end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from yaie_cuda import compiler, sources
from yaie_cuda.catalog import ARCHS, all_kernels, ci_specialisations
from yaie_cuda.errors import ToolMissingError
from yaie_magic import cli
from yaie_magic.lab import listing
from yaie_magic.lab.options import ARCHITECTURES

pytestmark = pytest.mark.timeout(120)
FIELDS = {
    "name",
    "arch",
    "registers",
    "shared_bytes",
    "spill_bytes",
    "cubin_bytes",
    "compile_ms",
    "cached",
    "ok",
    "log",
}
needs_nvrtc = pytest.mark.skipif(bool(compiler.compiler_reason()), reason=compiler.compiler_reason() or "there is one")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[None]:
    """A cache of its own, no GPU, and the built-in kernels afterwards."""
    monkeypatch.setenv("YAIE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(listing, "own_arch", lambda: "sm_90")
    yield
    sources.restore()


def run(*words: str) -> int:
    return cli.main(["kernels", *words])


@needs_nvrtc
def test_json_has_exactly_the_fields(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("copy_blocks", "--json", "--arch", "sm_90") == 0
    (first,) = json.loads(capsys.readouterr().out)
    assert set(first) == FIELDS
    assert (first["name"], first["arch"], first["ok"], first["cached"]) == ("copy_blocks", "sm_90", True, False)
    assert first["registers"] > 0 and first["spill_bytes"] == 0 and first["cubin_bytes"] > 1000
    assert run("copy_blocks", "--json") == 0
    (second,) = json.loads(capsys.readouterr().out)
    assert second == {**first, "cached": True}


@needs_nvrtc
def test_architectures_can_be_several(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("copy_blocks", "--json", "--arch", "sm_80", "--arch", "sm_120") == 0
    assert [entry["arch"] for entry in json.loads(capsys.readouterr().out)] == ["sm_80", "sm_120"]


@needs_nvrtc
def test_a_table_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("copy_blocks", "silu_and_mul[SCALAR=float16 WIDTH=8]") == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["specialisation", "arch", "registers"]
    assert [row.split("  ")[0] for row in rows] == ["copy_blocks", "silu_and_mul[SCALAR=float16 WIDTH=8]"]


@needs_nvrtc
def test_a_kernel_that_does_not_compile_fails_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    sources.replace("copy_blocks", sources.built_in("copy_blocks").replace("__launch_bounds__(THREADS)", "nonsense"))
    assert run("copy_blocks", "--json") == 1
    out, err = capsys.readouterr()
    (entry,) = json.loads(out)
    assert not entry["ok"] and "copy_blocks.cu(" in entry["log"]
    assert err.splitlines()[-1] == "yaie: 1 of 1 kernels did not compile"
    assert run("copy_blocks") == 1
    out, err = capsys.readouterr()
    assert "failed" in out and "copy_blocks for sm_90:" in err and "nonsense" in err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["copy_bloks"], "unknown kernel 'copy_bloks'; did you mean copy_blocks"),
        (["attention"], "did you mean merge_attention_states or paged_attention_decode or paged_attention_prefill?"),
        (["--arch", "sm_91"], "--arch 'sm_91'; did you mean sm_90"),
        (["--arch", "90"], "--arch '90'; did you mean sm_90"),
        (["--jsn"], "unknown option '--jsn'; did you mean '--json'?"),
    ],
)
def test_a_wrong_word_is_one_line(words: list[str], reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words) == 2
    err = capsys.readouterr().err
    assert err.startswith("yaie: ") and err.count("\n") == 1 and reason in err, err


def test_without_nvrtc_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> tuple[int, int]:
        raise ToolMissingError("NVRTC cannot be loaded: no file; pip install nvidia-cuda-nvrtc")

    monkeypatch.setattr(compiler, "nvrtc_version", missing)
    assert run("copy_blocks") == 1
    assert capsys.readouterr().err == "yaie: NVRTC cannot be loaded: no file; pip install nvidia-cuda-nvrtc\n"


def test_what_is_compiled_for_whom() -> None:
    assert listing.chosen([]) == ci_specialisations()
    assert {each.kernel.name for each in listing.chosen([])} == set(all_kernels())
    assert set(listing.chosen([])) < set(listing.chosen([], everything=True))
    assert ARCHITECTURES == ARCHS
    assert listing.archs_for([]) == ("sm_90",) and listing.archs_for(["sm_80", "sm_80"]) == ("sm_80",)
    assert listing.archs_for(["sm_80", "all"]) == ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")

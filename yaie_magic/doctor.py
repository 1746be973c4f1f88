"""A report on what the engine finds here: versions, hardware, model, drawing, CUDA, notebook, and a real answer.

Each check is a function that returns its lines; one that raises becomes a failed line, never a failed report.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from yaie_engine import LLM

Verdict = Literal["ok", "note", "fail"]
LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors", "huggingface-hub", "numpy", "pydantic", "jinja2")
NOTEBOOK = ("ipython", "ipykernel", "jupyterlab", "notebook", "ipywidgets", "anywidget", "nbconvert")
CUDA = ("cuda-core", "cuda-bindings", "nvidia-cuda-nvrtc")
GIB = 2**30


@dataclass(frozen=True, slots=True)
class Line:
    """One finding: what was looked at, how it is, and what was found or what to do."""

    name: str
    verdict: Verdict
    detail: str


@dataclass(frozen=True, slots=True)
class Report:
    """All findings. `usable` is False when the engine cannot serve the bundled model here."""

    usable: bool
    lines: tuple[Line, ...]
    data: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"usable": self.usable, "checks": [asdict(line) for line in self.lines], **self.data}

    def to_text(self) -> str:
        """One line a finding, marked where something is missing or wrong."""
        marks = {"ok": "  ", "note": "- ", "fail": "! "}
        width = max(len(line.name) for line in self.lines)
        rows = [f"{marks[line.verdict]}{line.name:<{width}}  {line.detail}" for line in self.lines]
        closing = (
            "The engine works here." if self.usable else "The engine is not usable here: see the lines marked with !"
        )
        return "\n".join([*rows, closing])


def examine(*, generate: bool = True, loaded: Mapping[str, LLM] | None = None) -> Report:
    """Run every check, those of `loaded` engines too; `generate=False` leaves out the one that loads the model."""
    data: dict[str, Any] = {}
    checks: list[Callable[[dict[str, Any]], Iterator[Line]]] = [
        check_versions,
        check_machine,
        check_device,
        check_cuda_packages,
        check_gpu_kernels,
        check_bundled_model,
        check_drawing,
        check_notebook,
    ]
    if generate:
        checks.append(check_generation)
    lines = [line for check in checks for line in guarded(check, data)]
    lines += [line for name, llm in (loaded or {}).items() for line in check_engine(llm, name)]
    return Report(all(line.verdict != "fail" for line in lines), tuple(lines), data)


def guarded(check: Callable[[dict[str, Any]], Iterator[Line]], data: dict[str, Any]) -> Iterator[Line]:
    """The lines of a check, and a failed one if it raised."""
    try:
        yield from check(data)
    except Exception as error:
        name = check.__name__.removeprefix("check_").replace("_", " ")
        yield Line(name, "fail", f"{type(error).__name__}: {' '.join(str(error).split())}")


def version_of(package: str) -> str | None:
    """The installed version of a distribution, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_versions(data: dict[str, Any]) -> Iterator[Line]:
    """Ours, Python's, and the libraries the engine stands on."""
    from yaie_magic import __version__

    data["versions"] = {"yaie-magic": __version__, "python": platform.python_version()}
    data["versions"] |= {name: version_of(name) for name in (*LIBRARIES, *NOTEBOOK, *CUDA)}
    supported = sys.version_info >= (3, 11)
    yield Line("yaie-magic", "ok", __version__)
    yield Line("python", "ok" if supported else "fail", f"{platform.python_version()} ({sys.executable})")
    missing = [name for name in LIBRARIES if version_of(name) is None]
    found = ", ".join(f"{name} {version_of(name)}" for name in LIBRARIES if name not in missing)
    yield Line("libraries", "fail" if missing else "ok", f"missing: {', '.join(missing)}" if missing else found)


def check_machine(data: dict[str, Any]) -> Iterator[Line]:
    """System, cores and memory."""
    import psutil

    memory = psutil.virtual_memory()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    data["machine"] = {
        "system": platform.platform(),
        "architecture": platform.machine(),
        "cores": cores,
        "memory_bytes": memory.total,
        "memory_available_bytes": memory.available,
    }
    yield Line("system", "ok", f"{platform.platform()}")
    yield Line("cores", "ok", str(cores))
    yield Line("memory", "ok", f"{memory.available / GIB:.1f} of {memory.total / GIB:.1f} GiB free")


def check_device(data: dict[str, Any]) -> Iterator[Line]:
    """What `device="auto"` means here."""
    import torch

    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        name, memory = properties.name, properties.total_memory / GIB
        data["device"] = {"name": "cuda", "gpu": name, "capability": f"{properties.major}.{properties.minor}"}
        yield Line("device", "ok", f"cuda: {name}, {memory:.0f} GiB, sm_{properties.major}{properties.minor}")
        return
    data["device"] = {"name": "cpu", "threads": torch.get_num_threads()}
    yield Line("device", "ok", f"cpu with {torch.get_num_threads()} threads (PyTorch sees no CUDA device)")


def check_cuda_packages(data: dict[str, Any]) -> Iterator[Line]:
    """The packages that compile kernels, and why they cannot be used where they cannot."""
    missing = [name for name in CUDA if version_of(name) is None]
    reason = f"not installed: {', '.join(missing)}" if missing else driver_reason()
    data["cuda"] = {"usable": reason is None, "reason": reason}
    found = ", ".join(f"{name} {version_of(name)}" for name in CUDA if name not in missing)
    yield Line("cuda packages", "note" if reason else "ok", "; ".join(filter(None, [found, reason])))


def check_gpu_kernels(data: dict[str, Any]) -> Iterator[Line]:
    """Whether the engine runs its own kernels on the GPU, and why not."""
    from yaie_cuda.device import unusable_reason

    reason = unusable_reason()
    data["gpu_kernels"] = {"used": not reason, "reason": reason or None}
    used = "used for models in bfloat16 or float16"
    yield Line("gpu kernels", "note" if reason else "ok", f"not used: {reason}" if reason else used)


def driver_reason() -> str | None:
    """Why CUDA's driver or compiler cannot be loaded; None when both can."""
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib
    except ImportError as error:
        return f"cuda.pathfinder cannot be imported ({error})"
    for library, title in (("nvrtc", "the kernel compiler NVRTC"), ("cuda", "the NVIDIA driver")):
        try:
            load_nvidia_dynamic_lib(library)
        except Exception as error:
            return f"{title} was not found ({type(error).__name__})"
    return None


def check_bundled_model(data: dict[str, Any]) -> Iterator[Line]:
    """The files of `tiny` against their checksums."""
    from yaie_engine.errors import ModelLoadError
    from yaie_engine.models.bundled import bundled_folder

    damage: str | None = None
    folder = None
    try:
        folder = bundled_folder("tiny")
    except ModelLoadError as error:
        damage = str(error)
    if folder is None:
        damage = damage or "tiny is missing: install yaie-magic again"
        data["bundled_model"] = {"name": "tiny", "intact": False, "bytes": 0, "damage": damage}
        yield Line("bundled model", "fail", damage)
        return
    size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    data["bundled_model"] = {"name": "tiny", "intact": True, "bytes": size, "damage": None}
    yield Line("bundled model", "ok", f"tiny, {size / 2**20:.1f} MiB, checksums match")


def check_engine(llm: LLM, name: str) -> Iterator[Line]:
    """The bookkeeping of an engine that is loaded."""
    from yaie_engine.errors import YaieError

    try:
        llm.check()
    except YaieError as error:
        yield Line(f"engine {name}", "fail", f"{type(error).__name__}: {error}")
        return
    blocks = llm.snapshot().blocks
    detail = f"{blocks.held} held, {blocks.cached} cached and {blocks.free} free of {blocks.total} blocks"
    yield Line(f"engine {name}", "ok", f"its books are in order: {detail}")


def check_drawing(data: dict[str, Any]) -> Iterator[Line]:
    """A Graphviz program, tried on a small graph."""
    from yaie_widgets.render import HINT, RenderError, find_renderer, render

    program = find_renderer()
    data["drawing"] = {"renderer": program}
    if program is None:
        yield Line("drawing", "note", f"as text only; {HINT}")
        return
    try:
        render("digraph { a -> b }", "svg")
    except RenderError as error:
        yield Line("drawing", "note", f"as text only; {error}")
        return
    yield Line("drawing", "ok", program)


def check_notebook(data: dict[str, Any]) -> Iterator[Line]:
    """Whether magics and views have what they need."""
    found = [f"{name} {version_of(name)}" for name in NOTEBOOK if version_of(name)]
    absent = [name for name in ("ipykernel", "jupyterlab") if version_of(name) is None]
    hint = f"; for JupyterLab: pip install {' '.join(absent)}" if absent else ""
    yield Line("notebook", "note" if absent else "ok", ", ".join(found) + hint)


def check_generation(data: dict[str, Any]) -> Iterator[Line]:
    """Load the bundled model and let it answer: the proof that everything fits together."""
    from yaie_engine import LLM, SamplingParams

    start = time.perf_counter()
    with LLM("tiny", num_blocks=32, max_num_seqs=1) as llm:
        loaded = time.perf_counter()
        params = SamplingParams(temperature=0, max_tokens=16)
        output = llm.generate("Once upon a time", params, use_tqdm=False)[0]
        seconds = time.perf_counter() - loaded
        llm.check()
    if output.error is not None:
        raise output.error
    text, count = output.outputs[0].text, len(output.outputs[0].token_ids)
    data["generation"] = {"load_s": loaded - start, "seconds": seconds, "tokens": count, "text": text}
    yield Line("generation", "ok", f"loaded in {loaded - start:.1f} s, {count} tokens in {seconds:.2f} s: {text!r}")

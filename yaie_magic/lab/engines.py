"""The loaded engines as the kernel lab sees them: which run kernels, which ones, and how one is exchanged."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from yaie_magic.local import local_llm
from yaie_magic.options import UsageProblem
from yaie_magic.session import LoadedEngine, session

if TYPE_CHECKING:
    from yaie_cuda.kernel import Specialisation
    from yaie_cuda.lab.request import Also, CheckRequest, ModelSizes

    from .result import KernelResult

HOW = "%yaie load tiny --dtype bfloat16 --attention-backend emulated"


def backend_of(engine: LoadedEngine) -> str:
    """ "reference", "emulated" or "cuda"."""
    return engine.llm.snapshot().model.attention_backend


def runs_kernels(engine: LoadedEngine) -> bool:
    """Whether it serves requests here, by our kernels."""
    from yaie_engine import LLM

    return engine.alive and isinstance(engine.llm, LLM) and backend_of(engine) in ("emulated", "cuda")


def kernel_engine(name: str | None) -> LoadedEngine:
    """The engine that `--use` is for.

    Raises:
        UsageProblem: there is none, or it runs no kernels; the text says what to load.
    """
    if name is None and session.current is None:
        raise UsageProblem(f"--use is for a running engine, and none is loaded; {HOW}")
    engine = session.get(name)
    if not engine.alive:
        raise UsageProblem(f"--use is for a running engine, and {engine.model} serves nothing any more; %yaie restart")
    local_llm(engine, "--use")
    if not runs_kernels(engine):
        raise UsageProblem(
            f"--use: {engine.model} runs attention {backend_of(engine)!r} and no kernels; load one that does: {HOW}"
        )
    return engine


def device_of(engine: LoadedEngine) -> str:
    """Where its kernels run: "emulated", or a GPU such as "cuda:0"."""
    device = engine.llm.snapshot().model.device
    return "emulated" if backend_of(engine) == "emulated" else device if ":" in device else f"{device}:0"


def launched_by(engine: LoadedEngine) -> tuple[Specialisation, ...]:
    """The specialisations that its launcher has loaded."""
    from yaie_engine.kernel_exchange import launched

    return launched(local_llm(engine, "--use"))


def sizes_in_use() -> tuple[ModelSizes, ...]:
    """The sizes of all engines of this process that run kernels, as far as kernels take them."""
    from yaie_cuda.lab.request import ModelSizes
    from yaie_engine.kernel_exchange import model_sizes, users

    found = [model_sizes(llm) for llm in users()]
    return tuple(dict.fromkeys(ModelSizes(**asdict(each)) for each in found if each is not None))


def specialisations_in_use(kernel: str) -> Also:
    """Those of `kernel` that engines of this process run: defines, threads, shared_bytes."""
    from yaie_engine.kernel_exchange import launched, users

    found = [each for llm in users() for each in launched(llm) if each.kernel.name == kernel]
    return tuple(dict.fromkeys((each.defines, each.threads, each.shared_bytes) for each in found))


def put_to_use(result: KernelResult, request: CheckRequest, engine: LoadedEngine) -> None:
    """From their next step on engines compile the kernel from the checked text; not if the check failed.

    Sources are the process's own, so that all of its engines change over. Raises YaieError.
    """
    from yaie_cuda import sources
    from yaie_engine.kernel_exchange import exchange, users

    def change() -> bool:
        """Unless there is something by now that was not checked."""
        sizes, also = set(sizes_in_use()), set(specialisations_in_use(result.kernel))
        checked = sizes <= set(request.sizes) and also <= set(request.also)
        if checked:
            sources.replace(result.kernel, result.text)
        return checked

    running = "its last replacement" if result.kernel in sources.replaced() else "the built-in kernel"
    if not result.ok:
        result.fate = f"Not used: {engine.model} goes on with {running}."
        return
    if not exchange(change):
        result.fate = (
            f"Not used: {engine.model} goes on with {running}. Engines came to need more of it during the check; "
            "run the cell again."
        )
        return
    result.used = True
    used = any(each.kernel.name == result.kernel for each in launched_by(engine))
    when = "from its next step on" if used else "when it needs this kernel; so far it has not"
    others = len(users()) - 1
    too = f" So do{'es' if others == 1 else ''} {others} more of this process." if others > 0 else ""
    result.fate = f"{engine.model} uses it {when}.{too} %yaie kernels reset restores the built-in."


def reset() -> tuple[str, ...]:
    """Go back to the built-in kernels everywhere; says which had been replaced. Raises YaieError."""
    from yaie_cuda import sources

    if not sources.replaced():
        return ()
    from yaie_engine.kernel_exchange import exchange

    return exchange(sources.restore)

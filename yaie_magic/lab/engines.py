"""The loaded engines as the kernel lab sees them: which run kernels, which ones, and how one is exchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from yaie_magic.options import UsageProblem
from yaie_magic.session import LoadedEngine, session

if TYPE_CHECKING:
    from yaie_cuda.kernel import Specialisation

    from .result import KernelResult

HOW = "%yaie load tiny --dtype bfloat16 --attention-backend emulated"


def backend_of(engine: LoadedEngine) -> str:
    """ "reference", "emulated" or "cuda"."""
    return engine.llm.snapshot().model.attention_backend


def runs_kernels(engine: LoadedEngine) -> bool:
    """Whether it serves requests, by our kernels."""
    return engine.alive and backend_of(engine) in ("emulated", "cuda")


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

    return launched(engine.llm)


def put_to_use(result: KernelResult, engine: LoadedEngine) -> None:
    """From its next step on the engine compiles the kernel from the checked text; not if the check failed."""
    from yaie_cuda import sources
    from yaie_engine.kernel_exchange import exchange

    if not result.ok:
        running = "its last replacement" if result.kernel in sources.replaced() else "the built-in kernel"
        result.fate = f"Not used: {engine.model} goes on with {running}."
        return
    exchange(engine.llm, lambda: sources.replace(result.kernel, result.text))
    _refresh(without=engine)
    result.used = True
    used = any(each.kernel.name == result.kernel for each in launched_by(engine))
    when = "from its next step on" if used else "when it needs this kernel; so far it has not"
    result.fate = f"{engine.model} uses it {when}. %yaie kernels reset restores the built-in."


def reset() -> tuple[str, ...]:
    """Go back to the built-in kernels everywhere; says which had been replaced."""
    from yaie_cuda import sources

    first = next((engine for engine in session.engines.values() if runs_kernels(engine)), None)
    if first is None:
        return sources.restore()
    from yaie_engine.kernel_exchange import exchange

    gone = exchange(first.llm, sources.restore)
    _refresh(without=first)
    return gone


def _refresh(without: LoadedEngine) -> None:
    """Other engines of this session use the same kernels: what they captured goes at their next step."""
    from yaie_engine.kernel_exchange import exchange

    for engine in session.engines.values():
        if engine is not without and runs_kernels(engine):
            exchange(engine.llm, lambda: None)

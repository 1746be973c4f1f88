"""The process of a detached engine with a model that is none; the name of the engine says what becomes of it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Any

from tests.notebook.fakes import FakeLLM
from yaie_engine import EngineConfig
from yaie_engine.errors import KernelError, ModelLoadError
from yaie_magic import loading
from yaie_magic.detached import host
from yaie_magic.server import foreground


def build(config: EngineConfig, progress: Any) -> Any:
    """In place of `build_llm`."""
    print("what a library prints")
    progress("reading weights", 0.5)
    name = sys.argv[-1]
    while name in ("slow", "deaf"):
        if name == "slow":
            progress("reading weights", 0.5)
        time.sleep(0.01)
    if name == "bad":
        raise ModelLoadError("the file is damaged")
    if name == "odd":
        raise KernelError("it did not compile", "a.cu", "sm_90", "a log")
    if name == "surprise":
        raise RuntimeError("no\nluck")
    if name == "crash":
        print("a long story\n" * 30_000 + "about to fall", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    llm = FakeLLM(config.model, config)
    if name == "mortal":
        threading.Timer(0.1, lambda: setattr(llm, "state", "failed")).start()
    return llm


if __name__ == "__main__":
    if sys.argv[-1] == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal = lambda *_: None  # type: ignore[assignment]
    loading.build_llm = build
    foreground.LAST_WORDS_S = 0.1
    print("what is printed before anybody can help it", flush=True)
    sys.exit(host.main())

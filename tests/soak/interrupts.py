"""Row 8: the stop button at any moment, in a real Jupyter kernel with the bundled model."""

from __future__ import annotations

import random
from typing import Any

from tests.notebook.kernel import Cell, Kernel

from .figure import Figure, slowest

HANGS_S = 60.0
STEADY = "%%generate -m 12 -t 0 --ignore-eos -o same\nOnce upon a time"


class Session:
    """One kernel with the engine loaded, and what its engine says when nobody interferes."""

    def __init__(self) -> None:
        self.kernel = Kernel(YAIE_NOTEBOOK="live")
        self.kernel.run("import threading, time\n%load_ext yaie_magic\nfrom yaie_magic.session import session")
        loaded = self.kernel.run("%yaie load tiny --num-blocks 256", timeout=180)
        if loaded.status != "ok":
            raise RuntimeError(f"the model did not load: {loaded.stderr}{loaded.error}")
        self.right = self.answer()

    def answer(self) -> tuple[int, ...]:
        """The tokens of a cell that runs undisturbed."""
        cell = self.kernel.run(STEADY, HANGS_S)
        if cell.status != "ok":
            raise RuntimeError(f"a cell failed: {cell.stderr}{cell.error}")
        return tuple(self.kernel.value("same.tokens"))

    def begun(self, chance: random.Random) -> Cell:
        """A long cell that has run for a while: some milliseconds, or some updates of what it shows.

        It says that it runs, for an interrupt before that is one of the kernel's own loop.
        """
        magic, words = chance.choice(
            [("generate", ""), ("generate", ""), ("generate", "-b"), ("chat", "--new"), ("batch", "")]
        )
        prompt = "long story " * chance.choice([1, 30, 150])
        body = f"{prompt}\n---\n{prompt} again" if magic == "batch" else prompt
        code = f"get_ipython().run_cell_magic({magic!r}, '-m 1000 --ignore-eos -o r {words}', {body!r})"
        cell = self.kernel.send(f"print('begun', flush=True)\n{code}" + ("; r.wait()" if words == "-b" else ""))
        self.kernel.until(cell, lambda cell: "begun" in cell.stdout, HANGS_S)
        if chance.random() < 0.5:
            self.kernel.settle(chance.random() * 0.6)
        else:
            wanted = chance.randrange(1, 12)
            self.kernel.until(cell, lambda cell: cell.updates >= wanted or bool(cell.finished), HANGS_S)
        return cell

    def state(self) -> Any:
        """Whether the books are right, the blocks in use once nothing runs or is drawn, and the threads of ours."""
        self.kernel.run(
            "llm = session.get().llm\nllm.cancel()\nend = time.monotonic() + 30\n"
            "busy = lambda: any(t.name.startswith('yaie-follow') for t in threading.enumerate())\n"
            "while (llm.running() or busy()) and time.monotonic() < end: time.sleep(0.01)\nllm.check()"
        )
        return self.kernel.value(
            "(llm.state, llm.running(), llm.snapshot().blocks.held, "
            "sorted(t.name for t in threading.enumerate() if t.name.startswith('yaie')))"
        )


def interrupts(size: int, seed: int) -> Figure:
    """`size` cells, each stopped at a random moment."""
    chance, faults, seconds = random.Random(seed), [], []
    session = Session()
    try:
        session.state()
        right = session.state()
        for number in range(size):
            cell = session.begun(chance)
            pressed = session.kernel.interrupt()
            session.kernel.finish(cell, HANGS_S)
            seconds.append(max(0.0, cell.finished - pressed))
            state, again = session.state(), session.answer()
            if state != right:
                faults.append(f"interrupt {number}: {state}, before {right}")
            if again != session.right:
                faults.append(f"interrupt {number}: the next cell said {again}, not {session.right}")
    finally:
        session.kernel.close()
    return Figure(
        f"{size} interrupts", f"{len(faults)} faults", tuple(faults), f"until the cell ended: {slowest(seconds)}"
    )

"""The tokens of an answer and of the branches made from it: one object for notebook, terminal and script."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from yaie_widgets.inspection import Answer, twin_bundle

from .answers import answer_of, answer_of_record, blocks_of, grown, opening
from .aside import start
from .branching import engine_for, fingerprint, submit_branch
from .completion import Completion

if TYPE_CHECKING:
    from yaie_engine import SamplingParams
    from yaie_engine.record import RequestRecord
    from yaie_engine.serving import Engine
    from yaie_widgets import TokenInspector

    from .display import Handle

INTERVAL = 0.1  # seconds between two readings of a branch that is being written
Listener = Callable[[int], None]


class Inspector:
    """Shows an answer token by token. `answers[0]` is the original, the others are branches in the order made.

    It keeps no engine alive. `bind` is called with the completion of each new branch.
    """

    def __init__(
        self,
        answer: Answer,
        llm: Engine | None,
        params: SamplingParams | None,
        *,
        colour: str = "probability",
        bind: Callable[[Completion], None] | None = None,
    ) -> None:
        self.answers: list[Answer] = [answer]
        self.branches: list[Completion] = []
        self.colour = colour
        self._engine = None if llm is None else weakref.ref(llm)
        self._model = None if llm is None or llm.state == "closed" else fingerprint(llm)
        self._params = params
        self._bind = bind
        self._listeners: list[Listener] = []
        self._shown: list[Handle] = []
        self._view: TokenInspector | None = None
        self._lock = threading.Lock()  # two pages may branch at once

    # ---- branches

    def branch(self, position: int, token_id: int, of: int = 0) -> Completion:
        """Continue from token `position` of the output of answer `of` with another token in its place.

        The completion is that of a new request: its prompt is everything up to and with `token_id`. It goes on in the
        background; `wait()` waits for it. The sampling parameters are the same, less the tokens already written.

        Raises:
            EngineDeadError: the engine was unloaded, and no other serves the same model.
            RequestError: position or token are out of range, or nothing can follow.
        """
        from yaie_engine.errors import RequestError

        if self._params is None:
            raise RequestError("the history keeps no sampling parameters; inspect the result itself to branch")
        if not 0 <= of < len(self.answers):
            raise RequestError(f"of={of}: there are answers 0 to {len(self.answers) - 1}")
        llm = engine_for(None if self._engine is None else self._engine(), self._model)
        parent = self.answers[of]
        run = submit_branch(llm, parent, self._params, position, token_id)
        completion = Completion(run)
        with self._lock:
            self.answers.append(opening(parent, of, position, token_id, run.request_id, llm))
            self.branches.append(completion)
            number = len(self.branches)
        if self._bind is not None:
            self._bind(completion)
        self._tell(number)
        start(f"yaie-branch-{run.request_id}", lambda: self._follow(number, position + 1))
        return completion

    def stop(self, number: int) -> None:
        """End a branch that is being written; what it has is kept."""
        self.branches[number - 1].cancel()

    def _follow(self, number: int, kept: int) -> None:
        """Keep the answer of a branch up to date until its request ends."""
        run, told = self.branches[number - 1]._run, 0.0
        for _ in run.deltas():
            llm = run.engine
            if self._listeners and llm is not None and time.monotonic() - told >= INTERVAL:
                output = llm.so_far(run.request_id) if llm.state == "ready" else None
                if output is not None and output.outputs[0].finish_reason is None:
                    self.answers[number] = grown(self.answers[number], kept, output, llm)
                    self._tell(number)
                told = time.monotonic()
            del llm  # the wait for the next delta must not keep it
        llm, answer = run.engine, self.answers[number]
        if run.output is None:
            return
        if llm is None:  # unloaded in the meantime: what was shown stays
            self.answers[number] = replace(answer, reason=run.output.outputs[0].finish_reason)
        else:
            ended = grown(answer, kept, run.output, llm)
            self.answers[number] = replace(ended, blocks=blocks_of(llm, run.output, 0))
        self._tell(number)
        for handle in self._shown:  # what is saved with the notebook has the branch, too
            handle.update(self._hidden())

    # ---- who shows it

    def listen(self, listener: Listener) -> None:
        """Call `listener` with the number of each answer that is new or has changed, on the thread that changed it."""
        self._listeners.append(listener)

    def _tell(self, number: int) -> None:
        for listener in list(self._listeners):
            listener(number)

    @property
    def view(self) -> TokenInspector:
        """The live view; made when first asked for."""
        from yaie_widgets import TokenInspector

        if self._view is None:
            self._view = TokenInspector(self)
        return self._view

    def bundle(self) -> dict[str, str]:
        """The static form, as HTML and as text."""
        return twin_bundle(self.answers, self.colour)

    def _hidden(self) -> dict[str, str]:
        """The static form as it stands behind the live view."""
        from yaie_widgets.live.twin import twin_bundle as behind

        return behind(self.view.key, self.bundle())

    def _ipython_display_(self) -> None:
        from IPython import get_ipython
        from IPython.display import display

        from .display import Handle, in_notebook

        shell = get_ipython()
        if shell is None or not in_notebook(shell):
            display(self.bundle(), raw=True)  # type: ignore[no-untyped-call]
            return
        display(self.view)  # type: ignore[no-untyped-call]
        self._shown.append(Handle(shell))
        self._shown[-1].update(self._hidden())

    def __str__(self) -> str:
        return self.bundle()["text/plain"]

    def __repr__(self) -> str:
        number = len(self.branches)
        return f"<Inspector: {number} {'branch' if number == 1 else 'branches'}>"


def inspect_completion(completion: Completion, colour: str = "probability") -> Inspector:
    """The inspector of a result.

    Raises:
        RequestError: the request still runs.
    """
    from yaie_engine.errors import RequestError

    output = completion.wait(0)._run.output if completion.done else None
    if output is None:
        raise RequestError(f"request {completion.request_id} is still running; wait() for it, then inspect it")
    llm = completion._run.engine
    answer = answer_of(output, completion.index, llm)
    return Inspector(answer, llm, completion.params, colour=colour, bind=bind_newest)


def inspect_record(record: RequestRecord, index: int, llm: Engine, colour: str = "probability") -> Inspector:
    """The inspector of a request that is only in the engine's history. It cannot branch."""
    return Inspector(answer_of_record(record, index, llm), llm, None, colour=colour)


def bind_newest(completion: Completion) -> None:
    """A new branch is the newest result of the notebook."""
    from IPython import get_ipython

    shell = get_ipython()
    if shell is not None:
        shell.user_ns["_yaie"] = completion

"""Many requests at once: as many as the queue takes, in order, and all of them cancelled together."""

from __future__ import annotations

import time
from collections.abc import Callable

from tqdm.auto import tqdm

from .errors import QueueFullError
from .generation import Generation
from .outputs import RequestOutput
from .request import Request

RETRY_S = 0.01  # how often a batch asks again for room in a queue that others have filled


def run_all(requests: list[Request], submit: Callable[[Request], Generation], use_tqdm: bool) -> list[RequestOutput]:
    """The results of `requests`, in their order. An interrupt cancels all of them."""
    handles: list[Generation] = []
    bar = tqdm(total=len(requests), desc="requests", disable=None if use_tqdm else True, leave=False)
    try:
        waited = 0
        for request in requests:
            while (handle := _try_submit(request, submit)) is None:
                if waited < len(handles):  # the queue is full: wait for the oldest of ours
                    handles[waited].wait()
                    waited += 1
                    bar.update()
                else:  # others filled it
                    time.sleep(RETRY_S)
            handles.append(handle)
        for handle in handles[waited:]:
            handle.wait()
            bar.update()
    except BaseException:
        for handle in handles:
            handle.cancel()
        raise
    finally:
        bar.close()
    return [handle.result() for handle in handles]


def _try_submit(request: Request, submit: Callable[[Request], Generation]) -> Generation | None:
    """None when the queue is full."""
    try:
        return submit(request)
    except QueueFullError:
        return None

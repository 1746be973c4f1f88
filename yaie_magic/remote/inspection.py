"""What a YAIE server shows of its engine, as the plain data that an engine of this process gives."""

from __future__ import annotations

import re
import threading
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from yaie_engine.plain_data import MalformedError, read
from yaie_engine.record import RequestRecord
from yaie_engine.snapshot import EngineSnapshot, ModelInfo
from yaie_magic.terminal import printable
from yaie_widgets.live.recorded import increment_of, tape_of

from .client import MOST_BYTES
from .source import WHOLE_S, RemoteSource

if TYPE_CHECKING:
    from yaie_engine.increment import Increment
    from yaie_engine.tape import Tape

    from .client import Client

_ID = re.compile(r"[!-~]{1,80}")


class Inspection:
    """The members of `LLM` that look inside. Any thread. What a server says is checked before it is used.

    All of them raise a YaieError of one line when the server does not answer, shows nothing of its engine, or answers
    something else than our server does.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._source: RemoteSource | None = None
        self._making = threading.Lock()

    def snapshot(self) -> EngineSnapshot:
        """The engine between two steps."""
        found = EngineSnapshot.from_dict(self._client.get_json("/debug/snapshot", timeout=WHOLE_S, most=MOST_BYTES))
        return replace(found, model=_plain(found.model))

    def history(self, n: int | None = None) -> list[RequestRecord]:
        """The last `n` ended requests, oldest first."""
        found = _requests(
            self._client.get_json(
                "/debug/requests", limit=None if n is None else max(0, n), timeout=WHOLE_S, most=MOST_BYTES
            )
        )
        return [_record(f"ended[{place}]", each) for place, each in enumerate(found["ended"])]

    def running(self) -> list[str]:
        """Ids of the requests that have not ended, whoever sent them."""
        return [
            _id("running", each) for each in _requests(self._client.get_json("/debug/requests", limit=0))["running"]
        ]

    def tape(self) -> Tape:
        """What each recorded step changed, as far back as a recording for a page goes."""
        return tape_of(self._fresh())

    def steps_since(self, step: int) -> Increment:
        """The recorded steps after `step` (-1: all) and the live requests."""
        return increment_of(self._fresh(), step)

    def source(self) -> RemoteSource:
        """What live views follow: one for each run of the server's engine."""
        with self._making:
            if self._source is not None:
                self._source.pull()
            if self._source is None or self._source.over:
                self._source = RemoteSource(self._client)
            return self._source

    def close(self) -> None:
        """The connection is dropped."""
        if self._source is not None:
            self._source.close()

    def _fresh(self) -> dict[str, Any]:
        """The recording as of now.

        Raises:
            YaieError: the server has not told it; what was known before is in the views that are open.
        """
        source = self.source()
        if (trouble := source.trouble) is not None:
            raise trouble
        return source.recording()


def _plain(model: ModelInfo) -> ModelInfo:
    """The words about the model, without what a terminal would obey."""
    words: dict[str, Any] = {each.name: getattr(model, each.name) for each in fields(ModelInfo)}
    texts: dict[str, Any] = {name: printable(word) for name, word in words.items() if isinstance(word, str)}
    return replace(model, **texts)


def _requests(answer: Any) -> dict[str, list[Any]]:
    if not isinstance(answer, dict) or not all(isinstance(answer.get(name), list) for name in ("ended", "running")):
        raise MalformedError("is not the answer of a YAIE server", "/debug/requests")
    return answer


def _record(where: str, value: Any) -> RequestRecord:
    try:
        found = read(RequestRecord, value)
    except MalformedError as error:
        raise error.within(where) from None
    _id(f"{where}.request_id", found.request_id)
    counts = {len(part) for part in (found.texts, found.finish_reasons, found.stop_reasons, found.output_token_ids)}
    if len(counts) != 1 or 0 in counts or not all(map(_ID.fullmatch, found.finish_reasons)):
        raise MalformedError("has not as many texts, ids and reasons as choices", where)
    return found


def _id(where: str, value: Any) -> str:
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise MalformedError("is not the id of a request", where)
    return value

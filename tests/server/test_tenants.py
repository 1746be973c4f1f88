"""Whose share a request counts on under the fair policy: the end user's whom a client names, or all clients'."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.engine.fakes import eventually
from yaie_engine import LLM
from yaie_magic.remote import connect
from yaie_magic.server import ServerConfig
from yaie_magic.server.background import BackgroundServer
from yaie_magic.server.tenant import tenant_of


@pytest.fixture(scope="module")
def fair() -> Iterator[BackgroundServer]:
    """One place in a step, shared fairly."""
    with LLM("tiny", num_blocks=256, max_num_seqs=1, scheduling_policy="fair") as llm:
        server = BackgroundServer(llm, ServerConfig(port=0, access_log="off", strict=True))
        yield server
        server.stop()


def ask(server: BackgroundServer, user: str, tokens: int) -> httpx.Response:
    body = {"prompt": f"One {user}", "max_tokens": tokens, "ignore_eos": True, "user": user}
    return httpx.post(f"{server.url}/generate", json=body, timeout=120, trust_env=False)


def test_a_user_with_one_request_does_not_wait_for_anothers_queue(fair: BackgroundServer) -> None:
    llm = fair.llm
    with ThreadPoolExecutor(8) as pool:
        busy = [pool.submit(ask, fair, "busy", 120) for _ in range(4)]
        eventually(lambda: len(llm.running()) == 4)
        other = pool.submit(ask, fair, "other", 2)
        answers = [each.result() for each in [*busy, other]]
    assert {answer.status_code for answer in answers} == {200}
    assert not any("x-yaie-ignored" in answer.headers for answer in answers)
    order = [record.prompt for record in llm.history(5)]
    assert order.index("One other") <= 2, order


def test_who_is_whose() -> None:
    named = tenant_of({"user": "u"})
    assert tenant_of({}) == tenant_of({"user": ""}) == tenant_of({"user": 7}) == "http" != named
    assert tenant_of({"user": "x", "safety_identifier": "u"}) == named != tenant_of({"user": "v"})
    assert len(tenant_of({"user": "\ud800" * 10**5})) < 64 and "secret" not in tenant_of({"user": "secret"})


def test_each_connection_is_a_tenant_and_the_notebook_another(
    fair: BackgroundServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    submit = fair.llm.submit

    def noted(*given: Any, tenant: str = "", **named: Any) -> Any:
        seen.append(tenant)
        return submit(*given, tenant=tenant, **named)

    monkeypatch.setattr(fair.llm, "submit", noted)
    with connect(fair.url) as first, connect(fair.url) as second:
        for llm in (first, second, first):
            llm.generate(["One"], use_tqdm=False)
    assert seen[0] == seen[2] != seen[1] and all(tenant.startswith("http:") for tenant in seen)

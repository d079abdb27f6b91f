import json
from collections.abc import AsyncIterator

import httpx2
import pytest
import pytest_asyncio

from domain.sessions.session import Reason
from store import mailbox, sessions
from store.database import Pool
from tests.behaviour.api.conftest import end, problem, run, spawned

FIELDS = {
    *("message_id", "conversation_id", "source_session_id", "source_type"),
    *("subagent_name", "created_at", "delivered_to"),
}


@pytest_asyncio.fixture
async def conversation(api: httpx2.AsyncClient, pool: Pool) -> AsyncIterator[str]:
    """A conversation whose root session has ended, with three outcomes in its mailbox."""
    root = (await run(api))["session_id"]
    children = [await spawned(pool, root, name=name) for name in ("one", "two", "three")]
    await end(pool, root, head="node-1")
    await end(pool, children[1], output="Two.")
    await end(pool, children[0], output=None, reason=Reason.ERROR)
    await end(pool, children[2], output="Half.", reason=Reason.INTERRUPTED)
    yield root


@pytest.mark.proves("S0-21", "S0-22", "S0-42")
async def test_mailbox_lists_pending_outcomes(api: httpx2.AsyncClient, pool: Pool, conversation: str) -> None:
    url = f"/conversations/{conversation}/mailbox"
    page = (await api.get(url)).json()
    assert [(item["subagent_name"], item["source_type"]) for item in page["items"]] == [
        ("two", "subagent_result"),
        ("one", "subagent_failed"),
        ("three", "subagent_result"),
    ]
    assert all(set(item) == FIELDS for item in page["items"])
    assert page["pending_count"] == 3
    await mailbox.deliver(pool, "default", [page["items"][0]["message_id"]], "somebody")
    assert [item["subagent_name"] for item in (await api.get(url)).json()["items"]] == ["one", "three"]
    everything = (await api.get(f"{url}?all=true")).json()
    assert [item["delivered_to"] for item in everything["items"]] == ["somebody", None, None]
    first = (await api.get(f"{url}?all=true&limit=2")).json()
    rest = (await api.get(url, params={"all": True, "limit": 2, "cursor": first["next_cursor"]})).json()
    assert [item["subagent_name"] for item in rest["items"]] == ["three"] and rest["next_cursor"] is None
    problem(await api.get(url, params={"cursor": first["next_cursor"]}), 400, "invalid-cursor")
    problem(await api.get(f"{url}?live=true"), 503, "dependency-unavailable")


@pytest.mark.proves("S0-30", "S0-28")
async def test_an_empty_mailbox_fires_nothing(api: httpx2.AsyncClient, pool: Pool) -> None:
    root = (await run(api))["session_id"]
    await end(pool, root, head="node-1")
    before = (await api.get(f"/conversations/{root}")).json()
    key = {"Idempotency-Key": f"fire-{root}"}
    for body in ({}, {"input": "Words."}, {"if_busy": "queue"}):
        answer = await api.post(f"/conversations/{root}/fire", json=body, headers=key)
        problem(answer, 422, "mailbox-empty")
    problem(await api.post(f"/conversations/{root}/fire"), 422, "mailbox-empty")
    assert (await api.get(f"/conversations/{root}")).json() == before
    assert await pool.fetchval("SELECT count(*) FROM inbox WHERE conversation_id = $1", root) == 1
    assert await pool.fetchval("SELECT count(*) FROM idempotency WHERE key = $1", key["Idempotency-Key"]) == 0


async def test_fire_of_unknown_or_terminated_conversations_is_refused(
    api: httpx2.AsyncClient, pool: Pool, conversation: str
) -> None:
    url = f"/conversations/{conversation}/fire"
    problem(await api.post(url, json={"transport": "pigeon"}), 422, "unknown-transport")
    problem(await api.post(url, json={"if_busy": "steer"}), 422, "validation")
    problem(await api.post(url, json={"agent": "nobody"}), 422, "unknown-agent")
    problem(await api.post(url, json={"input": ""}), 422, "validation")
    # the conversation decides about a fire; if it is unavailable, the messages stay and the key can be used again
    key = {"Idempotency-Key": f"fire-{conversation}"}
    problem(await api.post(url, json={"input": "Go."}, headers=key), 503, "dependency-unavailable")
    kept = json.loads(await pool.fetchval("SELECT response FROM idempotency WHERE key = $1", key["Idempotency-Key"]))
    assert await sessions.get(pool, "default", kept["session_id"]) is None
    problem(await api.post(url, json={"input": "Stop."}, headers=key), 422, "idempotency-key-reused")
    assert (await api.get(f"/conversations/{conversation}/mailbox")).json()["pending_count"] == 3
    await api.post(f"/conversations/{conversation}/terminate")
    problem(await api.post(url), 409, "conversation-terminated")

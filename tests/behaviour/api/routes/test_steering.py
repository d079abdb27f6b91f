from typing import Any

import httpx2
import pytest

from domain.sessions.session import Reason
from store.database import Pool
from tests.behaviour.api.conftest import end, problem, run, spawned, submitted


async def shown(api: httpx2.AsyncClient, task_id: str) -> dict[str, Any]:
    record: dict[str, Any] = (await api.get(f"/tasks/{task_id}")).json()
    return record


async def inbox(pool: Pool, conversation_id: str) -> int:
    count: int = await pool.fetchval(
        "SELECT count(*) FROM inbox WHERE conversation_id = $1 AND taken_by IS NULL", conversation_id
    )
    return count


async def test_steering_a_task_that_is_not_running_is_refused(api: httpx2.AsyncClient, pool: Pool) -> None:
    task_id = await submitted(api)
    url = f"/tasks/{task_id}/steer"
    for empty in ("", "  \n"):
        problem(await api.post(url, json={"message": empty}), 422, "validation")
    problem(await api.post(url, json={}), 422, "validation")
    problem(await api.post(url, json={"message": "x", "message_id": ""}), 422, "validation")
    waits = (await api.post(f"/conversations/{task_id}/messages", json={"input": "Then."})).json()["session_id"]
    problem(await api.post(f"/tasks/{waits}/steer", json={"message": "x"}), 409, "not-started")
    await end(pool, task_id)
    found = problem(await api.post(url, json={"message": "x"}), 404, "not-running")
    assert found["task_status"] == "completed"
    assert await inbox(pool, task_id) == 0


@pytest.mark.exactly_once
async def test_message_that_cannot_be_delivered_is_kept(api: httpx2.AsyncClient, pool: Pool) -> None:
    task_id = await submitted(api)
    body = {"message": "Mind the gap.", "message_id": "mine"}
    for _ in range(2):
        answer = await api.post(f"/tasks/{task_id}/steer", json=body)
        assert (answer.status_code, answer.json()["session_id"]) == (202, task_id)
    waiting = "SELECT unsignalled, parts FROM inbox WHERE conversation_id = $1 AND taken_by IS NULL"
    rows = await pool.fetch(waiting, task_id)
    assert [row["unsignalled"] for row in rows] == [True] and "Mind the gap." in rows[0]["parts"]


@pytest.mark.proves("S0-B08", "S0-B50")
async def test_interrupt_is_recorded_once(api: httpx2.AsyncClient, pool: Pool) -> None:
    task_id = await submitted(api)
    child = await spawned(pool, task_id)
    url = f"/tasks/{task_id}/interrupt"
    answer = await api.post(url, json={"reason": "enough"}, headers={"Idempotency-Key": "one stop"})
    assert answer.status_code == 202
    cancel = answer.json()["cancel_requested"]
    assert (cancel["note"], cancel["request_id"]) == ("enough", "one stop")
    again = await api.post(f"/tasks/{task_id}/cancel", json={"reason": "other"})
    assert again.status_code == 202 and again.json()["cancel_requested"] == cancel
    events = (await api.get(f"/tasks/{task_id}/events", headers={"Accept": "application/json"})).json()["items"]
    assert [event["reason"] for event in events if event["type"] == "cancel_requested"] == ["interrupted"]
    assert (await shown(api, child))["cancel_requested"] is None  # an interrupt does not cascade
    await end(pool, task_id, reason=Reason.INTERRUPTED)
    again = await api.post(url, headers={"Idempotency-Key": "one stop"})
    assert (again.status_code, again.json()["reason"]) == (200, "interrupted")
    assert problem(await api.post(url), 404, "not-running")["task_status"] == "cancelled"
    cancelled = await api.post(f"/tasks/{task_id}/cancel")
    assert (cancelled.status_code, cancelled.json()["reason"]) == (200, "interrupted")  # a later cancel changes nothing


@pytest.mark.proves("S0-43")
async def test_a_tree_is_cancelled_on_request(api: httpx2.AsyncClient, pool: Pool) -> None:
    for scope, reached in (("session", False), ("tree", True)):
        root = await submitted(api)
        child = await spawned(pool, root)
        below = await spawned(pool, child)
        answer = await api.post(f"/tasks/{root}/cancel", json={"scope": scope})
        assert answer.status_code == 202 and answer.json()["cancel_requested"]
        for task_id in (child, below):
            assert ((await shown(api, task_id))["cancel_requested"] is not None) is reached
    root = await submitted(api)
    child = await spawned(pool, root)
    await end(pool, root)
    # the root has ended, but its subagents are still running
    assert (await api.post(f"/tasks/{root}/cancel", json={"scope": "tree"})).status_code == 200
    assert (await shown(api, child))["cancel_requested"] is not None
    problem(await api.post(f"/tasks/{root}/cancel", json={"scope": "world"}), 422, "validation")


async def test_promote_of_other_than_a_waiting_subagent_is_refused(api: httpx2.AsyncClient, pool: Pool) -> None:
    root = await submitted(api)
    problem(await api.post(f"/tasks/{root}/promote"), 409, "not-blocking")
    free, bound = await spawned(pool, root), await spawned(pool, root, blocking=True)
    assert (await api.post(f"/tasks/{free}/promote")).status_code == 200
    attempt = await spawned(pool, root, blocking=True)
    await pool.execute("UPDATE sessions SET trigger = 'attempt' WHERE id = $1", attempt)
    problem(await api.post(f"/tasks/{attempt}/promote"), 409, "not-blocking")
    problem(await api.post(f"/tasks/{bound}/promote"), 503, "dependency-unavailable")
    await end(pool, bound)
    problem(await api.post(f"/tasks/{bound}/promote"), 409, "already-terminal")


async def test_conversations_are_interrupted_and_terminated(api: httpx2.AsyncClient, pool: Pool) -> None:
    root = (await run(api))["session_id"]
    child = await spawned(pool, root)
    waits = (await api.post(f"/conversations/{root}/messages", json={"input": "Then."})).json()["session_id"]
    answer = await api.post(f"/conversations/{root}/interrupt")
    assert (answer.status_code, answer.json()) == (202, {"interrupted": 2, "session_ids": [root, child]})
    assert (await shown(api, waits))["cancel_requested"] is None
    for task_id in (root, child):
        await end(pool, task_id, reason=Reason.INTERRUPTED)
    assert (await api.post(f"/conversations/{root}/interrupt")).json()["interrupted"] == 0

    fenced = (await api.post(f"/conversations/{root}/terminate")).json()
    assert (fenced["status"], fenced["session_ids"]) == ("terminated", [waits])
    ended = await shown(api, waits)
    assert (ended["status"], ended["reason"]) == ("cancelled", "terminated")
    assert (await api.get(f"/conversations/{root}")).json()["status"] == "terminated"
    assert (await api.post(f"/conversations/{root}/terminate")).json()["stopped"] == 0
    late = (await run(api))["session_id"]
    await api.post(f"/conversations/{late}/terminate")
    problem(await api.post(f"/tasks/{late}/steer", json={"message": "x"}), 409, "conversation-terminated")
    problem(await api.post(f"/conversations/{late}/messages", json={"input": "x"}), 409, "conversation-terminated")

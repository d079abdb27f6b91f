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

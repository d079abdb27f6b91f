"""/tasks end to end against the database. Temporal is unavailable, which makes no difference here."""

import asyncio
import os
import pwd
import time
from datetime import datetime, timedelta
from typing import Any

import httpx2
import pytest

from domain.events import ArtifactSaved, MessageDelta, StepStarted
from domain.ids import is_id, new_id
from domain.sessions.session import Reason
from store import files
from store.database import Pool
from tests.behaviour.api.conftest import end, problem, record, submitted, waiting_subagent


@pytest.mark.proves("S1-40", "S1-02")
async def test_submit_returns_a_handle_that_can_be_read_immediately(api: httpx2.AsyncClient) -> None:
    answer = await api.post("/tasks", json={"agent": "assistant", "input": "Say hi.", "config": {"ttl": 60_000}})
    assert answer.status_code == 202
    handle = answer.json()
    assert set(handle) == {"task_id", "status", "created_at", "poll_interval", "conversation_id"}
    assert is_id(handle["task_id"]) and handle["status"] == "submitted" and handle["poll_interval"] == 1_500
    task = (await api.get(f"/tasks/{handle['task_id']}")).json()
    assert task["created_at"] == handle["created_at"]
    assert task["conversation_id"] == handle["task_id"] == handle["conversation_id"]
    taken = datetime.fromisoformat(task["deadline"]) - datetime.fromisoformat(task["created_at"])
    assert taken == timedelta(minutes=1)


@pytest.mark.proves("S1-43")
async def test_task_result_shows_output_usage_and_log(api: httpx2.AsyncClient, pool: Pool) -> None:
    task_id = await submitted(api)
    await record(pool, task_id, StepStarted(step=1, description="Look"), MessageDelta(step=1, text="He"))
    [digest] = await files.put_blobs(pool, "default", [b"# Report"])
    file_id = new_id()
    await pool.execute(
        """INSERT INTO files (tenant, id, sha256, size, name, media_type, type, session_id)
           VALUES ('default', $1, $2, 8, 'report.md', 'text/markdown', 'report', $3)""",
        file_id,
        digest,
        task_id,
    )
    await record(pool, task_id, ArtifactSaved(name="report.md", artifact_type="report", file_id=file_id, size=8))
    await end(pool, task_id, output="It is done.")
    result = (await api.get(f"/tasks/{task_id}/result")).json()
    assert result["status"] == "completed" and result["reason"] == "goal_reached" and result["output"] == "It is done."
    [artifact] = result["artifacts"]
    assert artifact == {
        "type": "report",
        "name": "report.md",
        "url": f"/files/{file_id}",
        "size": 8,
        "media_type": "text/markdown",
        "file_id": file_id,
        "description": "",
        "content": "# Report",
    }
    assert (await api.get(artifact["url"])).content == b"# Report"
    assert [entry["type"] for entry in result["audit_log"]] == ["task_submitted", "artifact_saved", "task_completed"]
    assert "output" not in result["audit_log"][-1]  # the output is in the result itself
    full = (await api.get(f"/tasks/{task_id}/result?audit_log=full")).json()
    kinds = [entry["type"] for entry in full["audit_log"]]
    assert kinds == ["task_submitted", "step_started", "artifact_saved", "task_completed"]
    assert full["audit_log"][-1]["output"] == "It is done." and full["audit_log_complete"]
    assert {"duration_ms", "llm_calls", "tool_invocations", "tokens_consumed", "cost_usd"} <= set(result["usage"])
    assert result["usage"]["tokens_consumed"] == 120 and result["audit_log_complete"]


async def test_result_waits_for_the_end(api: httpx2.AsyncClient, pool: Pool) -> None:
    task_id = await submitted(api)
    started = time.monotonic()
    waiting = asyncio.create_task(api.get(f"/tasks/{task_id}/result?wait=15"))
    await asyncio.sleep(0.3)
    # this event wakes the waiting request, but is not the end
    await record(pool, task_id, MessageDelta(step=1, text="He"))
    free = (await api.get("/tasks")).status_code
    assert free == 200 and not waiting.done()
    await end(pool, task_id, output="At last.")
    answer = await waiting
    assert answer.json()["output"] == "At last."
    assert time.monotonic() - started < 3  # the notification ends the wait, not the time limit or the next poll


async def test_result_that_is_not_there_in_time_is_a_conflict(api: httpx2.AsyncClient) -> None:
    task_id = await submitted(api)
    started = time.monotonic()
    body = problem(await api.get(f"/tasks/{task_id}/result?wait=1"), 409, "not-terminal")
    assert body["task_status"] == "submitted" and 1 <= time.monotonic() - started < 3
    problem(await api.get(f"/tasks/{task_id}/result?wait=61"), 422, "validation")
    problem(await api.get(f"/tasks/{new_id()}/result?wait=60"), 404, "not-found")


async def test_many_wait_without_holding_database_connections(
    open_url: str, api: httpx2.AsyncClient, pool: Pool
) -> None:
    """There are more callers than connections in the API's pool; each one uses a stream slot of its key instead."""
    task_id = await submitted(api)
    limits = httpx2.Limits(max_connections=60)
    async with httpx2.AsyncClient(base_url=open_url, timeout=20, limits=limits) as crowd:
        waiting = [asyncio.create_task(crowd.get(f"/tasks/{task_id}/result?wait=15")) for _ in range(50)]
        await asyncio.sleep(0.5)
        started = time.monotonic()
        assert (await api.get("/tasks")).status_code == 200 and time.monotonic() - started < 2
        await end(pool, task_id)
        answers = await asyncio.gather(*waiting)
    assert {answer.status_code for answer in answers} == {200}


@pytest.mark.exactly_once
async def test_hundred_duplicates_at_once_make_one_task(api: httpx2.AsyncClient, pool: Pool) -> None:
    before = await pool.fetchval("SELECT count(*) FROM sessions")
    headers = {"Idempotency-Key": new_id()}
    spec = {"agent": "assistant", "input": "Once."}
    answers = await asyncio.gather(*(api.post("/tasks", json=spec, headers=headers) for _ in range(100)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.text for answer in answers}) == 1
    assert sum("idempotent-replayed" not in answer.headers for answer in answers) == 1
    assert await pool.fetchval("SELECT count(*) FROM sessions") == before + 1


@pytest.mark.proves("S1-44")
async def test_cancel_is_recorded_once(api: httpx2.AsyncClient, pool: Pool) -> None:
    task_id = await submitted(api)
    answer = await api.post(f"/tasks/{task_id}/cancel", json={"reason": "not needed"})
    assert answer.status_code == 202
    cancel = answer.json()["cancel_requested"]
    assert cancel["by"] == pwd.getpwuid(os.geteuid()).pw_name and cancel["note"] == "not needed" and cancel["at"]
    again = await api.post(f"/tasks/{task_id}/cancel")
    assert again.status_code == 202 and again.json()["cancel_requested"] == cancel
    page = (await api.get(f"/tasks/{task_id}/events", headers={"Accept": "application/json"})).json()
    assert [event["type"] for event in page["items"]] == ["task_submitted", "cancel_requested"]
    assert page["items"][1]["note"] == "not needed"

    await end(pool, task_id, reason=Reason.CALLER_CANCEL)
    late = await api.post(f"/tasks/{task_id}/cancel")
    assert late.status_code == 200 and late.json()["status"] == "cancelled"
    assert late.json()["cancel_requested"] == cancel

    ended = await submitted(api)
    await end(pool, ended)
    before = (await api.get(f"/tasks/{ended}")).json()
    answer = await api.post(f"/tasks/{ended}/cancel", json={"reason": "late"})
    assert answer.status_code == 200 and answer.json() == before
    assert (await api.get(f"/tasks/{ended}")).json() == before


async def test_list_pages_without_gaps_or_repeats(api: httpx2.AsyncClient, pool: Pool) -> None:
    mine = {await submitted(api, agent="orchestrator") for _ in range(7)}
    seen: list[str] = []
    cursor: str | None = None
    while True:
        params = {"agent": "orchestrator", "limit": "3", **({"cursor": cursor} if cursor else {})}
        page = (await api.get("/tasks", params=params)).json()
        seen += [item["task_id"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
        await submitted(api, agent="orchestrator")  # newer tasks do not change older pages
    assert seen == sorted(mine, reverse=True)


async def test_subagents_that_wait_for_variables_are_listed_in_pages(api: httpx2.AsyncClient, pool: Pool) -> None:
    task_id = await submitted(api)
    ids = [await waiting_subagent(pool, "default", task_id) for _ in range(2)]
    params: dict[str, Any] = {"conversation_id": task_id, "limit": 1}
    first = (await api.get("/variable-requests", params=params)).json()
    last = (await api.get("/variable-requests", params={**params, "cursor": first["next_cursor"]})).json()
    assert [one["request_id"] for one in first["items"] + last["items"]] == sorted(ids)
    assert last["next_cursor"] is None

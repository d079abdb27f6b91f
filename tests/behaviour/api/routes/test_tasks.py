"""/tasks end to end against the database. Temporal is unavailable, which makes no difference here."""

import asyncio
import json
import os
import pwd
import time
from datetime import datetime, timedelta
from typing import Any

import httpx2
import pytest

from domain.events import ArtifactSaved, MessageDelta, StepStarted, Thinking, ToolCalled
from domain.ids import is_id, new_id
from domain.sessions.session import Reason
from store import files, sessions, workers
from store.database import Pool
from tests.behaviour.api.conftest import end, key_for, problem, record, submitted


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


async def test_task_record_shows_progress_and_limits(api: httpx2.AsyncClient, pool: Pool) -> None:
    task_id = await submitted(api, title="A title")
    task = (await api.get(f"/tasks/{task_id}")).json()
    assert {"task_id", "status", "progress", "started_at", "updated_at"} <= set(task)
    assert task["progress"] == {"step": 0, "total_steps": None, "message": ""}
    assert task["title"] == "A title" and task["reason"] is None and task["retry"] is None
    session = (await api.get(f"/sessions/{task_id}")).json()
    assert task.items() <= session.items() and session["session_id"] == task_id
    plan = {"steps": [{"title": "one", "status": "done"}, {"title": "two"}, {"title": "three"}]}
    retry = {"step": 7, "attempt": 2, "model": "m", "reason": "overloaded", "next_at": "2026-01-01T00:00:00Z"}
    await pool.execute(
        "UPDATE sessions SET plan = $2, retry = $3, step = 7, progress = 'at it' WHERE id = $1",
        task_id,
        json.dumps(plan),
        json.dumps(retry),
    )
    task = (await api.get(f"/tasks/{task_id}")).json()
    assert task["progress"] == {"step": 2, "total_steps": 3, "message": "at it"}
    assert task["retry"] == retry


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


async def test_short_audit_log_has_the_newest_actions(api: httpx2.AsyncClient, pool: Pool) -> None:
    task_id = await submitted(api)
    calls = [ToolCalled(tool="bash", args=str(number)) for number in range(250)]
    await record(pool, task_id, *calls, Thinking(step=1, text="Hm."))
    await end(pool, task_id)
    result = (await api.get(f"/tasks/{task_id}/result")).json()
    log = result["audit_log"]
    assert len(log) == 200 and not result["audit_log_complete"]
    assert log[-1]["type"] == "task_completed" and log[-2]["args"] == "249"
    assert (await api.get(f"/tasks/{task_id}/result?audit_log=full")).json()["audit_log_complete"]


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
    for query in ("wait=61", "wait=-1", "wait=soon", "audit_log=all", "audit_log=", "await=1"):
        problem(await api.get(f"/tasks/{task_id}/result?{query}"), 422, "validation")
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


async def test_key_that_is_revoked_while_it_waits_gets_no_result(keyed_url: str, pool: Pool) -> None:
    headers = await key_for(pool, "waiting")
    async with httpx2.AsyncClient(base_url=keyed_url, timeout=20, headers=headers) as mine:
        task_id = await submitted(mine)
        waiting = asyncio.create_task(mine.get(f"/tasks/{task_id}/result?wait=15"))
        await asyncio.sleep(0.3)
        await pool.execute("UPDATE api_keys SET revoked_at = now() WHERE tenant = 'waiting'")
        await end(pool, task_id, tenant="waiting")
        problem(await waiting, 401, "unauthenticated")
        other = await key_for(pool, "others")
        problem(await mine.get(f"/tasks/{task_id}/result?wait=5", headers=other), 404, "not-found")


@pytest.mark.proves("S1-53")
async def test_spec_becomes_messages_workspace_and_limits(api: httpx2.AsyncClient, pool: Pool) -> None:
    file = (await api.post("/files?name=notes.txt", content=b"hello")).json()
    earlier = await submitted(api)
    await end(pool, earlier)
    task_id = await submitted(
        api,
        agent="code-reviewer",
        input={"path": "."},
        acceptance_criteria=["findings have lines"],
        constraints=["no edits"],
        context={
            "files": [file["file_id"]],
            "notes": ["be kind"],
            "history_session": earlier,
            "history": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}],
            "environment": {"os": "linux"},
        },
        config={"max_steps": 5, "max_tokens": 1_000, "max_cost_usd": 1, "model": "claude-haiku-4-5"},
    )
    session = await sessions.get(pool, "default", task_id)
    assert session is not None
    assert session.parent_session_id == earlier and session.thread_id == session.workspace_id == task_id
    asked = {"ttl_ms": 3_600_000, "steps": 5, "tokens": 1_000, "cost_usd": 1.0}
    usual = {"tool_calls": None, "repeats": 8, "repeats_warning": 4, "denied": 20}
    assert session.limits.model_dump() == asked | usual
    assert session.models == ["claude-haiku-4-5"]
    rows = await pool.fetch("SELECT id, kind, parts FROM inbox WHERE thread_id = $1", task_id)
    kept = {row["id"]: row for row in rows}
    assert [kept[id]["kind"] for id in session.inbox] == ["user", "assistant", "user"]
    text = json.loads(kept[session.inbox[-1]]["parts"])[0]["text"]
    for part in ('"path": "."', "findings have lines", "no edits", "be kind", "notes.txt", "os: linux"):
        assert part in text
    workspace = await pool.fetchrow("SELECT version, manifest FROM workspaces WHERE id = $1", task_id)
    assert workspace and workspace["version"] == 1
    expected = {"notes.txt": {"sha256": file["sha256"], "size": 5, "mode": 0o644}}
    assert json.loads(workspace["manifest"]) == expected


async def test_files_of_one_name_and_unfinished_sessions_are_refused(api: httpx2.AsyncClient) -> None:
    ids = [(await api.post("/files?name=a.txt", content=content)).json()["file_id"] for content in (b"1", b"2")]
    spec: dict[str, Any] = {"agent": "assistant", "input": "x", "context": {"files": ids}}
    assert problem(await api.post("/tasks", json=spec), 422, "validation")["errors"][0]["code"] == "duplicate_name"
    spec["context"] = {"history_session": await submitted(api)}
    assert problem(await api.post("/tasks", json=spec), 422, "validation")["errors"][0]["code"] == "not_terminal"


async def test_sandbox_is_taken_where_a_worker_has_one(api: httpx2.AsyncClient, pool: Pool) -> None:
    spec = {"agent": "assistant", "input": "x", "config": {"sandbox": "isolated"}}
    await workers.beat(pool, "w1", "none")
    problem(await api.post("/tasks", json=spec), 422, "not-available")
    await workers.beat(pool, "w2", "bwrap")
    assert (await api.post("/tasks", json=spec)).status_code == 202
    await workers.leave(pool, "w1")
    await workers.leave(pool, "w2")


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


async def test_idempotency_key_binds_the_body(api: httpx2.AsyncClient) -> None:
    headers = {"Idempotency-Key": new_id()}
    first = await api.post("/tasks", json={"agent": "assistant", "input": {"a": 1, "b": 2}}, headers=headers)
    again = await api.post("/tasks", json={"input": {"b": 2, "a": 1}, "agent": "assistant"}, headers=headers)
    assert again.text == first.text and again.headers["idempotent-replayed"] == "true"
    other = await api.post("/tasks", json={"agent": "assistant", "input": "Else."}, headers=headers)
    problem(other, 422, "idempotency-key-reused")


async def test_refused_request_does_not_use_up_its_key(api: httpx2.AsyncClient) -> None:
    headers = {"Idempotency-Key": new_id()}
    problem(await api.post("/tasks", json={"agent": "nobody", "input": "x"}, headers=headers), 422, "unknown-agent")
    answer = await api.post("/tasks", json={"agent": "assistant", "input": "x"}, headers=headers)
    assert answer.status_code == 202 and "idempotent-replayed" not in answer.headers


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


async def test_list_is_filtered(api: httpx2.AsyncClient, pool: Pool) -> None:
    done, waiting = await submitted(api, agent="researcher"), await submitted(api, agent="researcher")
    await end(pool, done)

    async def ids(**params: Any) -> list[str]:
        page = (await api.get("/tasks", params={"agent": "researcher", **params})).json()
        return [item["task_id"] for item in page["items"]]

    assert await ids() == [waiting, done]
    assert await ids(status="completed") == [done]
    assert await ids(status=["completed", "submitted"]) == [waiting, done]
    assert await ids(conversation_id=waiting) == [waiting]
    moment = (await api.get(f"/tasks/{waiting}")).json()["created_at"]
    assert await ids(created_after=moment) == [waiting]


async def test_cursor_is_bound_to_its_query(api: httpx2.AsyncClient) -> None:
    for _ in range(2):
        await submitted(api)
    cursor = (await api.get("/tasks", params={"limit": 1})).json()["next_cursor"]
    assert (await api.get("/tasks", params={"limit": 2, "cursor": cursor})).status_code == 200
    problem(await api.get("/tasks", params={"cursor": cursor, "status": "working"}), 400, "invalid-cursor")
    problem(await api.get("/tasks", params={"cursor": cursor[:-2] + "xx"}), 400, "invalid-cursor")

"""Retention: afterwards texts and bytes are removed and the outcome stays; live and forked sessions are not touched."""

import asyncio
from typing import Any

import pytest

from store import retention
from tests.behaviour.record.conftest import swept
from tests.support.stack import Stack, calls, steps

CANARY = "canary-of-the-record"  # it is in everything that a caller or an agent says
SAVE = steps(
    [("write_file", {"path": f"{CANARY}.txt", "content": CANARY}), ("read_file", {"path": "notes.md"})],
    [("save_artifact", {"path": f"{CANARY}.txt", "description": CANARY}), ("bash", {"command": f"echo {CANARY}"})],
)
ASKED = [{"permission": "bash", "pattern": "*", "action": "ask"}]
SHORT = {"retention": 1_000}


async def upload(stack: Stack) -> str:
    answer = await stack.http.post("/files", params={"name": "notes.md"}, content=b"notes for the task\n")
    file_id: str = answer.json()["file_id"]
    return file_id


async def tables_with(stack: Stack, phrase: str) -> list[str]:
    """Return every table that contains this phrase in any column."""
    names = await stack.pool.fetch("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")
    search = "SELECT 1 FROM {} t WHERE to_jsonb(t)::text LIKE '%' || $1 || '%' LIMIT 1"
    found = [row[0] for row in names if await stack.pool.fetchval(search.format(row[0]), phrase)]
    return sorted(found)


async def test_content_is_removed_and_the_outcome_stays(recorded: Stack) -> None:
    shared, own = await upload(recorded), await upload(recorded)
    living = await recorded.submit("Keep.", context={"files": [shared]}, config={"retention": 3_600_000})
    context = {"files": [own], "notes": [CANARY]}
    task_id = await recorded.submit(SAVE, title=CANARY, context=context, permissions=ASKED, config=SHORT)
    request = (await recorded.seen(task_id, "input_required"))["request_id"]
    await recorded.http.patch(f"/conversations/{task_id}", json={"metadata": {"about": CANARY}})
    answer = {"response_to": request, "input": {"approved": True, "notes": CANARY}}
    assert (await recorded.http.post(f"/tasks/{task_id}/input", json=answer)).status_code == 202
    before = await recorded.wait(task_id)
    assert before["status"] == "completed" and before["keep_until"] > before["ended_at"]
    [artifact] = (await recorded.result(task_id))["artifacts"]
    assert len(await tables_with(recorded, CANARY)) > 7
    record = await swept(recorded, task_id)
    outcome = ("status", "reason", "usage", "created_at", "started_at", "ended_at", "agent", "agent_version")
    assert {name: record[name] for name in outcome} == {name: before[name] for name in outcome}
    assert await tables_with(recorded, CANARY) == []
    gone = await recorded.http.get(f"/tasks/{task_id}/result")
    assert gone.status_code == 410 and gone.json()["type"].endswith("content-removed")
    assert gone.json()["task_status"] == "completed"
    assert (await recorded.http.get(f"/tasks/{task_id}/events")).status_code == 410
    assert (await recorded.http.get(artifact["url"])).status_code == 404
    assert (await recorded.http.get(f"/files/{own}")).status_code == 404
    assert not await asyncio.to_thread(recorded.workspace(task_id).exists)
    listed = (await recorded.http.get(f"/tasks/{task_id}/effects")).json()["items"]
    assert [(entry["kind"], entry["state"], entry["description"]) for entry in listed] == [
        ("file", "done", ""),
        ("artifact", "done", ""),
        ("command", "done", ""),
    ]
    await recorded.wait(living)
    assert (await recorded.result(living))["output"]  # its own retention has not passed
    assert (await recorded.http.get(f"/files/{shared}")).status_code == 200
    assert (await recorded.http.get("/audit/verify")).json()["intact"]


async def test_bytes_that_nobody_refers_to_are_dropped_after_a_day(recorded: Stack) -> None:
    mine, ours = "only mine\n", "ours\n"
    write = calls(("write_file", {"path": "a", "content": mine}), ("write_file", {"path": "b", "content": ours}))
    other = await recorded.run(calls(("write_file", {"path": "c", "content": ours})))
    task = await recorded.run(write, config=SHORT)
    await swept(recorded, task["task_id"])
    held = "SELECT convert_from(content, 'UTF8') AS text FROM blobs WHERE content = ANY($1::bytea[]) ORDER BY text"
    wanted = [mine.encode(), ours.encode()]
    assert [row["text"] for row in await recorded.pool.fetch(held, wanted)] == [mine, ours]
    await recorded.pool.execute(
        "UPDATE blobs SET put_at = now() - interval '2 days' WHERE content = ANY($1::bytea[])", wanted
    )
    await retention.drop_loose_bytes(recorded.pool)
    assert [row["text"] for row in await recorded.pool.fetch(held, wanted)] == [ours]
    assert await asyncio.to_thread((recorded.workspace(other["task_id"]) / "c").read_text) == ours


async def test_a_live_conversation_and_the_source_of_a_fork_are_left_alone(recorded: Stack) -> None:
    waits = {"permissions": [{"permission": "bash", "pattern": "*", "action": "ask"}]}
    first = await recorded.run("Hello.", config=SHORT)
    url = f"/conversations/{first['conversation_id']}/messages"
    body = {"input": calls(("bash", {"command": "true"})), "agent": "tester", "config": SHORT, **waits}
    second = (await recorded.http.post(url, json=body)).json()["session_id"]
    await recorded.seen(second, "input_required")
    source = await recorded.run("Origin.", config=SHORT)
    fork = await recorded.run("Go on.", context={"history_session": source["task_id"]})
    done = await recorded.run("Done.", config=SHORT)
    await swept(recorded, done["task_id"])  # the other sessions were due earlier than this one
    assert (await recorded.result(first["task_id"]))["output"]
    assert (await recorded.result(source["task_id"]))["output"]
    await recorded.cancel(second)
    await recorded.wait(second)
    await swept(recorded, second)
    assert (await recorded.record(first["task_id"]))["content_removed_at"]
    await recorded.pool.execute("UPDATE sessions SET keep_until = now() WHERE id = $1", fork["task_id"])
    await swept(recorded, source["task_id"])


async def test_conversation_continues_without_its_removed_past(recorded: Stack) -> None:
    first = await recorded.run("A secret of the past.", config=SHORT)
    await swept(recorded, first["task_id"])
    # content is removed once
    assert not await retention.remove_content(recorded.pool, "default", first["conversation_id"])
    url = f"/conversations/{first['conversation_id']}/messages"
    said = await recorded.http.post(url, json={"input": "Once more.", "agent": "tester"})
    assert said.status_code == 202, said.text
    assert (await recorded.wait(said.json()["session_id"]))["status"] == "completed"
    assert "secret" not in str((await recorded.result(said.json()["session_id"]))["output"])


@pytest.mark.parametrize("retention_ms", [0, 999, -1, 10**18, "1d"])
async def test_invalid_retention_is_refused(recorded: Stack, retention_ms: Any) -> None:
    body = {"agent": "tester", "input": "Hello.", "config": {"retention": retention_ms}}
    said = await recorded.http.post("/tasks", json=body)
    assert said.status_code == 422 and said.json()["errors"][0]["pointer"] == "/config/retention"

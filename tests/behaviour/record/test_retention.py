"""Retention: afterwards texts and bytes are removed and the outcome stays; live and forked sessions are not touched."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from domain.ids import new_id
from store import files
from tests.behaviour.channels.people import Service
from tests.behaviour.notifications.receivers import http_receiver
from tests.behaviour.record.conftest import swept
from tests.behaviour.triggers.sender import Sender
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


async def _by_responses(stack: Stack, canary: str) -> str:
    tool = {"type": "function", "name": "look_up", "description": canary, "parameters": {"type": "object"}}
    body = {
        "model": "tester",
        "input": f"{calls(('look_up', {'order': canary}))} {canary}",
        "instructions": canary,
        "metadata": {"about": canary},
        "tools": [tool],
    }
    first = (await stack.http.post("/v1/responses", json=body)).json()
    [call] = [item for item in first["output"] if item["type"] == "function_call"]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": canary}
    body = {"model": "tester", "input": [output], "previous_response_id": first["id"], "tools": [tool]}
    second = await stack.http.post("/v1/responses", json=body)
    assert second.json()["status"] == "completed", second.text
    task_id: str = first["id"].split("_")[1]
    return task_id


async def _by_channel(stack: Stack, canary: str) -> str:
    async with http_receiver() as receiver:
        service = await Service.connected(stack, receiver)
        await service.asking()
        ask = calls(("ask_user", {"question": canary, "options": [canary]}))
        said = await service.say(f"{ask} {canary}")
        await stack.seen(said["session_id"], "input_required")
        await service.say(canary)  # the answer
        await stack.wait(said["session_id"])
        await service.say(canary, wake=False)  # and one that nobody reads
        await service.replies(2)
        await service.close()
    task_id: str = said["session_id"]
    return task_id


async def _by_trigger(stack: Stack, canary: str) -> str:
    sender = await Sender.new(stack)
    accepted = await sender.accepted({"type": "order", "text": canary})
    task_id: str = accepted["session_id"]
    return task_id


@pytest.mark.parametrize("way", [_by_responses, _by_channel, _by_trigger])
async def test_content_is_removed_whichever_way_it_came_in(
    recorded: Stack, way: Callable[[Stack, str], Awaitable[str]]
) -> None:
    canary = f"canary-{new_id()}"
    task_id = await way(recorded, canary)
    assert (await recorded.wait(task_id))["status"] == "completed"
    assert len(await tables_with(recorded, canary)) > 2
    due = "UPDATE sessions SET keep_until = now() WHERE conversation_id = $1"
    await recorded.pool.execute(due, (await recorded.record(task_id))["conversation_id"])
    await swept(recorded, task_id)
    assert await tables_with(recorded, canary) == []


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
    await files.drop_loose_bytes(recorded.pool)
    assert [row["text"] for row in await recorded.pool.fetch(held, wanted)] == [ours]
    assert await asyncio.to_thread((recorded.workspace(other["task_id"]) / "c").read_text) == ours


async def test_conversation_continues_without_its_removed_past(recorded: Stack) -> None:
    first = await recorded.run("A secret of the past.", config=SHORT)
    await swept(recorded, first["task_id"])
    # content is removed once
    assert not await files.remove_content(recorded.pool, "default", first["conversation_id"])
    url = f"/conversations/{first['conversation_id']}/messages"
    said = await recorded.http.post(url, json={"input": "Once more.", "agent": "tester"})
    assert said.status_code == 202, said.text
    assert (await recorded.wait(said.json()["session_id"]))["status"] == "completed"
    assert "secret" not in str((await recorded.result(said.json()["session_id"]))["output"])

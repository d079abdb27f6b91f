"""A sweep ends sessions whose workflow wrote no ending, repeats lost signals, and does not touch live sessions."""

import json

import pytest

from domain.ids import new_id
from domain.sessions.session import Reason, RecordedStop, SessionRef
from domain.sessions.writes import ThreadMessage
from store import conversations, sessions
from tests.behaviour.missions.test_missions import create as mission
from tests.behaviour.schedules.clock import create as schedule
from tests.behaviour.schedules.clock import fired
from tests.support.stack import Stack, calls, eventually, of_type
from workflows.client import WorkflowClient

HANGS = "[[script:say words=30]] [[fault:hang after=6 times=9]]"


async def sweep_until(stack: Stack, task_id: str) -> dict[str, object]:
    async def look() -> dict[str, object] | None:
        await stack.age(task_id)  # repeated, because the running call may still commit its result
        await stack.sweep()
        record = await stack.record(task_id)
        return record if record["ended_at"] else None

    return await eventually(look, pause=0.5, what="a sweep settled it")


@pytest.mark.proves("S0-B22")
async def test_session_of_a_terminated_workflow_is_lost(stack: Stack) -> None:
    task_id, living = await stack.submit("[[script:count n=2]] [[fault:hang at=3]]"), await stack.submit(HANGS)
    await stack.seen(task_id, "step_started", step=3)
    await stack.seen(living, "message_delta")
    await WorkflowClient(stack.client, stack.settings.task_queue).reopen("default", task_id)
    await stack.session(task_id).terminate("from outside")
    await stack.age(living)  # no event for a long time, but its workflow is running
    record = await sweep_until(stack, task_id)
    assert (record["status"], record["reason"], record["partial"]) == ("failed", "lost", True)
    assert "stopped from outside" in str(record["error"])
    assert (await stack.result(task_id))["output"] == "Step 2 of 2."
    assert (await stack.events(task_id))[-1]["type"] == "task_failed"

    async def closed() -> bool:
        description = await stack.client.get_workflow_handle(f"conversation/{task_id}").describe()
        return description.close_time is not None

    await eventually(closed, what="its conversation was told")
    assert (await stack.record(living))["status"] == "working"
    # the living one becomes a subagent whose parent has ended, and which nobody told
    await stack.pool.execute(
        "UPDATE sessions SET spawned_by = $2, blocking = true, delivery = 'explicit' WHERE id = $1", living, task_id
    )
    await stack.pool.execute("UPDATE sessions SET ended_at = ended_at - interval '1 minute' WHERE id = $1", task_id)
    record = await sweep_until(stack, living)
    assert (record["status"], record["reason"]) == ("cancelled", "interrupted")


async def test_sweeper_starts_accepted_sessions_of_an_open_conversation(stack: Stack) -> None:
    """The API died before it started the session. A later message opened the conversation, which starts nothing."""
    with stack.frozen("temporal"):
        task_id = await stack.submit("[[script:say text=here]]")
        await stack.back("api", await stack.kill("api"))
    await WorkflowClient(stack.client, stack.settings.task_queue).reopen("default", task_id)
    await stack.age(task_id)
    assert (await sweep_until(stack, task_id))["status"] == "completed"


@pytest.mark.proves("S1-21")
async def test_a_cancel_that_only_reached_the_row_is_passed_on(stack: Stack) -> None:
    """The API died between storing the cancel and signalling the workflow."""
    task_id = await stack.submit(HANGS)
    await stack.seen(task_id, "message_delta")
    ref = SessionRef(tenant="default", session_id=task_id, conversation_id=task_id)
    stop = RecordedStop(reason=Reason.CALLER_CANCEL, by="someone")
    assert await sessions.request_cancel(stack.pool, ref, stop)
    record = await sweep_until(stack, task_id)
    assert (record["status"], record["reason"]) == ("cancelled", "caller_cancel")
    assert len(of_type(await stack.events(task_id), "cancel_requested")) == 1


def unsignalled_message(task_id: str, message_id: str) -> ThreadMessage:
    return ThreadMessage(
        id=message_id, conversation_id=task_id, thread_id=task_id, text="Mind the gap.", unsignalled=True
    )


@pytest.mark.exactly_once
async def test_sweeper_delivers_messages_that_reached_only_the_row(stack: Stack) -> None:
    """The API stored a steering message while Temporal was unavailable, and the session is still waiting for it."""
    tool = {"name": "look_up", "description": "Looks up.", "input_schema": {"type": "object"}}
    task_id = await stack.submit(calls(("look_up", {})), config={"external_tools": [tool]})
    [call] = (await eventually(lambda: _deferred(stack, task_id), what="it waits"))["calls"]
    message_id = new_id()
    await conversations.add_message(stack.pool, "default", unsignalled_message(task_id, message_id))
    # too new for a sweep: the process that stored them may be about to send the signal
    assert await conversations.find_unsignalled(stack.pool) == []
    await stack.pool.execute("UPDATE inbox SET created_at = now() - interval '1 minute' WHERE id = $1", message_id)
    await stack.sweep()

    async def message_read() -> bool:
        history = await stack.session(task_id).fetch_history()
        names = [event.workflow_execution_signaled_event_attributes.signal_name for event in history.events]
        return "message" in names

    await eventually(message_read, what="the session read the message")
    assert await conversations.find_unsignalled(stack.pool) == []
    body = {"response_to": call["request_id"], "input": {"result": "x"}}
    assert (await stack.http.post(f"/tasks/{task_id}/input", json=body)).status_code == 202
    assert (await stack.wait(task_id))["reason"] == "goal_reached"
    texts = [node["body"]["parts"][0]["text"] for node in await stack.nodes(task_id) if node["kind"] == "user"]
    assert texts[1:] == ["Mind the gap."]


async def test_rows_that_no_sweep_can_repair_do_not_block_the_others(stack: Stack) -> None:
    """One row of each kind that no sweep can repair, older than one that it can. Unreadable rows are not counted."""
    pool, idle = stack.pool, await stack.run("[[script:say text=here]]")
    bad, good = [await schedule(stack) for _ in range(2)]
    for one in (bad, good):
        await fired(stack, one["id"])
    missions = [await mission(stack), await mission(stack)]
    assert await pool.fetchval("SELECT count(*) FROM schedules WHERE status = 'working'") >= 2
    endless = "x" * 2_000  # longer than any workflow id may be
    await pool.execute(
        "INSERT INTO conversations (tenant, id, title, metadata) VALUES ('default', $1, '', '{}')", endless
    )
    left = [unsignalled_message(where, new_id()) for where in (endless, idle["task_id"])]
    for message in left:
        await conversations.add_message(pool, "default", message)
    await pool.execute(
        "UPDATE inbox SET created_at = now() - interval '1 minute' WHERE id = ANY ($1)", [one.id for one in left]
    )
    kept = await pool.fetchval("SELECT rules FROM schedules WHERE id = $1", bad["id"])
    await pool.execute("UPDATE schedules SET rules = '{', version = version + 1 WHERE id = $1", bad["id"])
    await pool.execute("UPDATE schedules SET version = version + 1 WHERE id = $1", good["id"])
    await pool.execute("UPDATE schedule_runs SET settled = false WHERE schedule_id IN ($1, $2)", bad["id"], good["id"])
    await pool.execute("UPDATE sessions SET status = 'failed' WHERE conversation_id = $1", good["conversation_id"])
    rules = await pool.fetchval("SELECT rules FROM schedules WHERE id = $1", missions[0]["id"])
    await pool.execute("UPDATE schedules SET rules = '{' WHERE id = $1", missions[0]["id"])
    past = json.loads(rules)
    past["mission"]["expires_at"] = "2026-01-01T00:00:00Z"
    await pool.execute("UPDATE schedules SET rules = $2 WHERE id = $1", missions[1]["id"], json.dumps(past))

    async def passed_on() -> bool:
        signalled = not await pool.fetchval("SELECT unsignalled FROM inbox WHERE id = $1", left[1].id)
        synced = "SELECT synced = version FROM schedules WHERE id = $1"
        return signalled and bool(await pool.fetchval(synced, good["id"]))

    try:
        async with stack.without_sweeps():
            await eventually(passed_on, seconds=15, what="a look of a worker passed on what it can")
        await pool.execute("UPDATE inbox SET unsignalled = true WHERE id = $1", left[1].id)
        await pool.execute("UPDATE schedules SET version = version + 1 WHERE id = $1", good["id"])
        await stack.sweep()
        assert not await pool.fetchval("SELECT unsignalled FROM inbox WHERE id = $1", left[1].id)
        ended = "SELECT status FROM schedules WHERE id = $1"
        assert await pool.fetchval(ended, missions[1]["id"]) == "expired"
        synced = "SELECT synced = version AS synced, failures FROM schedules WHERE id = $1"
        [row] = await pool.fetch(synced, good["id"])
        assert tuple(row) == (True, 1)
        runs = "SELECT count(*) FROM schedule_runs WHERE NOT settled AND schedule_id = $1"
        assert await pool.fetchval(runs, bad["id"]) == 0
    finally:
        await pool.execute("DELETE FROM inbox WHERE conversation_id = $1", endless)
        await pool.execute("DELETE FROM conversations WHERE id = $1", endless)
        await pool.execute("UPDATE schedules SET rules = $2 WHERE id = $1", bad["id"], kept)
        await pool.execute("UPDATE schedules SET rules = $2 WHERE id = $1", missions[0]["id"], rules)


async def _deferred(stack: Stack, task_id: str) -> dict[str, list[dict[str, str]]] | None:
    found: dict[str, list[dict[str, str]]] | None = (await stack.record(task_id))["deferred_tools"]
    return found


@pytest.mark.proves("S0-B20")
async def test_pieces_of_texts_are_deleted_after_the_end(stack: Stack) -> None:
    ended = await stack.submit("[[script:say words=60 delay=0.05]]")
    runs = await stack.submit("[[script:say words=30]] [[fault:hang after=6]]")
    await stack.seen(runs, "message_delta")
    await stack.wait(ended)
    before = await stack.events(ended)
    assert len(of_type(before, "message_delta")) > 3
    await stack.pool.execute("UPDATE ended_streams SET ended_at = ended_at - interval '2 minutes'")
    await stack.sweep()
    assert await stack.events(ended) == [event for event in before if event["type"] != "message_delta"]
    assert await stack.pool.fetchval(
        "SELECT count(*) FROM events WHERE session_id = $1 AND type = 'message_delta'", runs
    )
    await stack.cancel(runs)
    await stack.wait(runs)

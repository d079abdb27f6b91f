"""Steps, histories and conversations as workflows: in order though a worker dies, small, and without secrets."""

import asyncio

import pytest
from temporalio.client import WorkflowExecutionStatus

from domain.ids import new_id
from store import keys, sessions
from store.keys import Right
from tests.support.launch import MODEL_KEY
from tests.support.secrets import secrets_found
from tests.support.stack import Stack, calls, eventually, of_type
from workflows.client import WorkflowClient


@pytest.mark.exactly_once
async def test_a_step_whose_worker_is_killed_begins_once(stack: Stack) -> None:
    task_id = await stack.submit("[[script:count n=3]] [[script:say words=30]] [[fault:hang at=2 after=1]]")

    async def asked() -> bool:
        return len(await stack.asked(task_id)) == 2

    await eventually(asked, what="the model is asked after the first tool call")
    await stack.seen(task_id, "step_started", step=2)
    row = await stack.pool.fetchrow("SELECT step, status FROM sessions WHERE id = $1", task_id)
    assert row is not None and (row["step"], row["status"]) == (2, "working")
    await stack.back("worker", await stack.kill("worker"))
    assert (await stack.wait(task_id))["status"] == "completed"
    events = await stack.events(task_id)
    began = [(event["type"], event["step"]) for event in of_type(events, "step_started", "step_completed")]
    assert began == [(kind, step) for step in range(1, 5) for kind in ("step_started", "step_completed")]
    assert [event["step"] for event in of_type(events, "attempt_reset")] == [2]


async def size(stack: Stack, task_id: str) -> int:
    """Return the size of the history as the server counts it for its limits."""
    described = await stack.session(task_id).describe()
    return described.raw_description.workflow_execution_info.history_size_bytes


@pytest.mark.proves("S1-B02")
async def test_history_per_step_is_flat_and_small(stack: Stack) -> None:
    lengths = (5, 20, 35)  # a longer session continues as new
    growing = [f"[[script:count n={n} grow=4000]]" for n in lengths]
    records = await asyncio.gather(*(stack.run(text, config={"max_steps": 100}) for text in growing))
    assert {record["status"] for record in records} == {"completed"}
    short, middle, long = [await size(stack, record["task_id"]) for record in records]
    first, second = (middle - short) / 15, (long - middle) / 15
    assert first < 3_000 and second < 3_000
    assert second == pytest.approx(first, rel=0.05)


async def test_history_holds_no_content_beyond_its_previews(stack: Stack) -> None:
    text = "x " * 400 + "canary-in-the-prompt"
    content = "y " * 400 + "canary-in-the-arguments"
    record = await stack.run(
        f"{calls(('write_file', {'path': 'a', 'content': content}), ('read_file', {'path': 'a'}))} {text}"
    )
    assert record["status"] == "completed"
    answer = await stack.http.post(
        f"/conversations/{record['task_id']}/messages", json={"input": text, "if_busy": "reject"}
    )
    assert answer.status_code == 202
    later = (await stack.wait(answer.json()["session_id"]))["task_id"]
    for workflow in (f"session/{record['task_id']}", f"session/{later}", f"conversation/{record['task_id']}"):
        history = await stack.client.get_workflow_handle(workflow).fetch_history()
        raw = b"".join(event.SerializeToString() for event in history.events)
        assert record["task_id"].encode() in raw  # the search covers raw payloads
        assert b"canary-in-the" not in raw


async def test_no_secret_leaves_its_place(stack: Stack) -> None:
    _, key = await keys.create(stack.pool, "default", "canary", list(Right))
    password = stack.database_url.partition("://")[2].partition("@")[0].partition(":")[2]
    secrets = [MODEL_KEY.encode(), key.encode(), password.encode()]

    headers = {"Authorization": f"Bearer {key}"}
    task = {"agent": "tester", "input": "[[fault:auth]]"}
    assert (await stack.http.post("/tasks", json=task, headers=headers)).status_code == 202
    assert (await stack.http.get("/tasks", headers={"Authorization": f"Bearer {key[:-1]}x"})).status_code == 401
    record = await stack.run(calls(("bash", {"command": "env; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'"})))
    assert record["status"] == "completed"

    assert await secrets_found(stack, secrets) == []


async def status(stack: Stack, task_id: str) -> WorkflowExecutionStatus | None:
    return (await stack.client.get_workflow_handle(f"conversation/{task_id}").describe()).status


async def closes(stack: Stack, task_id: str) -> None:
    async def closed() -> bool:
        return await status(stack, task_id) is WorkflowExecutionStatus.COMPLETED

    await eventually(closed, what="the conversation closed")


@pytest.mark.proves("D13")
async def test_a_repeated_start_changes_nothing(stack: Stack) -> None:
    """A repeated start, by the same client or another one, finds the conversation started."""
    record = await stack.run("[[script:count n=1]]")
    task_id = record["task_id"]
    row = await sessions.get(stack.pool, "default", task_id)
    assert row is not None
    workflow_client = WorkflowClient(stack.client, stack.settings.task_queue)
    for _ in range(2):
        assert await workflow_client.start(row.workflow_input())
        assert await workflow_client.submit(row.workflow_input(), new_id(), task_id)
    await closes(stack, task_id)
    assert await stack.record(task_id) == record
    assert len(await stack.asked(task_id)) == 2

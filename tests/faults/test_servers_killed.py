"""kill -9 of Temporal and PostgreSQL while tasks run: all tasks finish, and nothing is lost or repeated."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.faults.nemesis import children_of, signal_each
from tests.support.stack import Stack, calls, eventually, of_type, steps


async def running(stack: Stack, ledger: Path) -> list[str]:
    tasks = [
        await stack.submit("[[script:say words=120 delay=0.1]]"),
        await stack.submit('[[script:count n=12 tool=bash input={"command": "sleep 0.5"}]]'),
        await stack.submit("[[script:count n=25 tool=report_progress]]"),
        await stack.submit(calls(("ledger_once", {"path": str(ledger), "seconds": 6}))),
    ]
    for task_id in tasks:
        await stack.seen(task_id, "task_started")
    await stack.seen(tasks[0], "message_delta")
    await stack.seen(tasks[3], "tool_called")
    return tasks


async def all_well(stack: Stack, tasks: list[str], ledger: Path) -> None:
    for task_id in tasks:
        record = await stack.wait(task_id, seconds=90)
        assert (record["status"], record["reason"]) == ("completed", "goal_reached")
        events = await stack.events(task_id)  # numbered without gaps, with one terminal event
        began = [event["step"] for event in of_type(events, "step_started")]
        assert began == list(range(1, len(began) + 1))
        nodes = await stack.nodes(task_id)
        replies = [node["step"] for node in nodes if node["kind"] == "assistant"]
        assert replies == began, "a step was written twice or never"
        assert len({node["idem"] for node in nodes}) == len(nodes)
    assert len((await asyncio.to_thread(ledger.read_text)).splitlines()) == 1
    assert (await stack.record(tasks[1]))["usage"]["tool_invocations"] == 12
    assert (await stack.record(tasks[2]))["usage"]["tool_invocations"] == 25


@pytest.mark.proves("S3-B07")
async def test_tasks_survive_a_killed_temporal_and_then_a_killed_postgres(stack: Stack, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    tasks = await running(stack, ledger)
    temporal, postgres = stack.pid("temporal"), stack.pid("postgres")
    with stack.frozen_supervisor():
        stack.signal("temporal", signal.SIGKILL)
        waiting = await stack.submit("[[script:say text=patient]]")  # accepted while Temporal is unavailable
        assert (await stack.record(waiting))["status"] == "submitted"
    await stack.back("temporal", temporal)
    assert (await stack.wait(waiting))["status"] == "completed"
    with stack.frozen_supervisor():
        stack.signal("postgres", signal.SIGKILL)
        await asyncio.sleep(1)
        refused = await stack.http.post("/tasks", json={"agent": "tester", "input": "x"})
        assert refused.status_code == 503 and refused.headers["retry-after"]
    await stack.back("postgres", postgres)
    await eventually(stack.reads, what="the API reads again")
    await stack.pool.expire_connections()
    await all_well(stack, tasks, ledger)


async def test_postgres_stopped_but_not_dead_is_a_503_within_five_seconds(stack: Stack) -> None:
    assert (await stack.http.get("/tasks")).status_code == 200
    with stopped_postgres(stack):
        loop = asyncio.get_running_loop()
        for _ in range(2):  # with a connection of the pool, and then with a new one
            begun = loop.time()
            answers = await asyncio.gather(*(stack.http.get("/tasks", timeout=20) for _ in range(25)))
            assert {answer.status_code for answer in answers} == {503} and answers[0].headers["retry-after"]
            assert loop.time() - begun < 5
    await eventually(stack.reads, what="the API reads again")


@contextmanager
def stopped_postgres(stack: Stack) -> Iterator[None]:
    processes = [stack.pid("postgres"), *children_of(stack.pid("postgres"))]
    with stack.frozen_supervisor():
        try:
            signal_each(processes, signal.SIGSTOP)
            yield
        finally:
            signal_each(processes, signal.SIGCONT)


@pytest.mark.proves("S1-22")
async def test_reads_show_the_store_though_nothing_else_runs(stack: Stack, tmp_path: Path) -> None:
    """Status, progress, what a task has made so far and the audit log, in the middle of its work: with Temporal and the
    worker stopped, each read is the same, and a cancel is recorded there first."""
    write, save = ("write_file", {"path": "a.md", "content": "half"}), ("save_artifact", {"path": "a.md"})
    planned = ("update_plan", {"steps": [{"title": "one", "status": "done"}, {"title": "two"}]})
    task_id = await stack.submit(steps([write], [save, planned], [("bash", {"command": "sleep 600"})]))
    await stack.seen(task_id, "tool_called", tool="bash")
    paths = [f"/tasks/{task_id}", f"/tasks/{task_id}/events", f"/tasks/{task_id}/effects", f"/tasks/{task_id}/audit"]

    async def read() -> list[Any]:
        answers = [await stack.http.get(path, headers={"Accept": "application/json"}) for path in paths]
        assert {answer.status_code for answer in answers} == {200}
        return [answer.json() for answer in answers]

    with stack.frozen_supervisor(), stack.frozen("worker"), stack.frozen("temporal"):
        task, events, effects, audit = before = await read()
        assert task["status"] == "working" and task["progress"]["step"] == 2 and task["progress"]["total_steps"] == 2
        assert [one["kind"] for one in effects["items"]] == ["file", "artifact", "command"]
        [artifact] = [one for one in events["items"] if one["type"] == "artifact_saved"]
        content = await stack.http.get(f"/files/{artifact['file_id']}")
        assert content.text == "half", content.text
        assert {"submit", "tool_begun", "tool_ended"} <= {one["action"] for one in audit["items"]}
        assert await read() == before
        assert (await stack.cancel(task_id)).status_code == 202
        after = (await read())[0]
        assert after["cancel_requested"] and after["status"] == "working"
    assert (await stack.wait(task_id))["reason"] == "caller_cancel"

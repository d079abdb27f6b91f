"""The steps of a session are recorded in their order, with and without a budget, even if a worker dies."""

from typing import Any

import pytest

from tests.support.stack import Stack, eventually, of_type, steps

LOOK = ("list_files", {"path": "."})
SCRIPT = steps([LOOK], [("bash", {"command": "echo a"})], [("report_progress", {"message": "x"})], [LOOK])
COUNTED = {"tree": {"max_steps": 100}}


async def recorded(stack: Stack, task_id: str) -> tuple[list[tuple[str, int | None]], dict[str, Any], list[str]]:
    """The events without repeated deltas, the row and the messages of a session."""
    order: list[tuple[str, int | None]] = []
    for event in await stack.events(task_id):
        one = event["type"], event.get("step")
        if one[0] != "message_delta" or order[-1] != one:
            order.append(one)
    row = await stack.pool.fetchrow(
        "SELECT step, version, status, reason, progress, started_at IS NULL AS unstarted FROM sessions WHERE id = $1",
        task_id,
    )
    assert row is not None
    return order, dict(row), [node["kind"] for node in await stack.nodes(task_id)]


async def test_steps_are_recorded_in_their_order(stack: Stack) -> None:
    quick, counted = [(await stack.run(SCRIPT, config=config))["task_id"] for config in ({}, COUNTED)]
    assert await recorded(stack, quick) == await recorded(stack, counted)
    order, row, _ = await recorded(stack, quick)
    began = [one for one in order if one[0] in ("step_started", "step_completed")]
    assert began == [(kind, step) for step in range(1, 6) for kind in ("step_started", "step_completed")]
    assert (row["step"], row["status"]) == (5, "completed")
    for step in range(1, 6):
        of_step = [kind for kind, number in order if number == step]
        assert (of_step[0], of_step[-1]) == ("step_started", "step_completed")


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


@pytest.mark.exactly_once
async def test_a_message_that_a_failed_summary_took_is_answered_by_another_session(stack: Stack) -> None:
    script = "[[script:forever]] [[fault:slow delay=0.5 at=1]] [[fault:auth at=2]]"
    task_id = await stack.submit(script, config={"max_steps": 1})
    await stack.seen(task_id, "task_started")
    answer = await stack.http.post(f"/tasks/{task_id}/steer", json={"message": "And then?"})
    assert answer.status_code == 202, answer.text
    assert (await stack.wait(task_id))["reason"] == "step_limit"

    async def readers() -> list[str] | None:
        rows = await stack.pool.fetch(
            """SELECT s.id FROM inbox i JOIN sessions s ON s.tenant = i.tenant AND s.id = i.taken_by
                WHERE i.conversation_id = $1 AND i.parts LIKE '%And then?%' AND s.ended_at IS NOT NULL""",
            task_id,
        )
        return [row["id"] for row in rows]

    [reader] = await eventually(readers, seconds=20, what="a session that has read the message")
    assert reader != task_id
    assert [one for one in (task_id, reader) if "And then?" in str(await stack.nodes(one))] == [reader]


async def test_a_step_begins_before_its_retry_is_shown(stack: Stack) -> None:
    record = await stack.run("[[script:count n=2]] [[fault:529 at=2 retry_after=0]]")
    shown = [event["type"] for event in await stack.events(record["task_id"]) if event.get("step") == 2]
    assert shown[:3] == ["step_started", "model_retry", "attempt_reset"]
    assert shown.count("step_started") == 1

"""A session's workflow is deleted, reset or lost with Temporal's data: another run continues from what was committed.

Nothing is repeated, no answer is lost, and ended sessions stay ended.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.faults.damage import Damage, delete, lines, once, reset, results, swept, temporal_loses_its_data
from tests.support.stack import Stack, calls, eventually, of_type, steps

Scene = Callable[[Stack, Path, Damage], Awaitable[None]]


SCENES: list[Scene] = []
PLAYED: "dict[Scene, asyncio.Task[list[None]]]" = {}


def deleted_and_reset(scene: Scene) -> Callable[[Stack, pytest.TempPathFactory], Awaitable[None]]:
    """Play a scene once with each damage to its workflow; the first test that needs one begins all of them, since
    Temporal takes half a minute to delete a workflow that has ended."""

    async def played(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> None:
        for one in () if PLAYED else SCENES:
            both = [one(stack, tmp_path_factory.mktemp(damage.__name__), damage) for damage in (delete, reset)]
            PLAYED[one] = asyncio.create_task(_together(both))
        await PLAYED[scene]

    SCENES.append(scene)
    return played


async def _together(scenes: list[Awaitable[None]]) -> list[None]:
    return await asyncio.gather(*scenes)


@deleted_and_reset
async def test_steps_that_were_committed_are_not_repeated(stack: Stack, tmp_path: Path, damage: Damage) -> None:
    ledgers = [tmp_path / name for name in ("one", "two", "three")]
    task_id = await stack.submit(steps(*([once(ledger)] for ledger in ledgers)) + " [[fault:hang at=3]]")
    await stack.seen(task_id, "step_started", step=3)
    await damage(stack, task_id)
    record = await swept(stack, task_id)
    assert (record["status"], record["reason"]) == ("completed", "goal_reached")
    assert [len(await lines(ledger)) for ledger in ledgers] == [1, 1, 1]
    replies = [node["step"] for node in await stack.nodes(task_id) if node["kind"] == "assistant"]
    assert len(replies) == 4 and replies == sorted(replies)
    # the call that hung may have been counted when Temporal cancelled it
    assert record["usage"]["llm_calls"] in (4, 5) and record["usage"]["tool_invocations"] == 3
    await stack.events(task_id)  # without a gap, and with one end


async def test_a_reply_that_a_reset_interrupted_is_continued(stack: Stack) -> None:
    """The partial reply is committed, and a model cannot be asked to continue its own last message."""
    task_id = await stack.submit("[[script:say words=40 delay=0.2]]")
    await stack.seen(task_id, "message_delta")
    await reset(stack, task_id)
    record = await swept(stack, task_id)
    assert (record["status"], record["reason"]) == ("completed", "goal_reached"), record["error"]
    await stack.events(task_id)  # without a gap, and with one end


@deleted_and_reset
async def test_a_call_that_runs_is_not_repeated(stack: Stack, tmp_path: Path, damage: Damage) -> None:
    ledger, after = tmp_path / "ledger", tmp_path / "after"
    task_id = await stack.submit(steps([once(ledger, 30)], [once(after)]))
    await eventually(lambda: lines(ledger), what="the call has begun")
    await damage(stack, task_id)
    record = await swept(stack, task_id)
    assert record["status"] == "completed"
    assert len(await lines(ledger)) == len(await lines(after)) == 1
    states = await stack.pool.fetch("SELECT state FROM tool_calls WHERE session_id = $1 ORDER BY started_at", task_id)
    # Temporal cancels the call of a workflow that is gone; a worker that did not learn of it in time is fenced
    assert states[0]["state"] in ("cancelled", "unknown") and states[1]["state"] == "ok"
    assert len(await stack.asked(task_id)) == 3, "no step is paid for twice"
    assert len(results(await stack.nodes(task_id))) == 2, "the model knows what became of each call"


@deleted_and_reset
async def test_an_ended_session_stays_ended(stack: Stack, tmp_path: Path, damage: Damage) -> None:
    ledger = tmp_path / "ledger"
    task_id = await stack.submit(steps([once(ledger)]))
    before = await stack.wait(task_id)
    await stack.session(task_id).result()
    events = await stack.events(task_id)
    await damage(stack, task_id)
    await stack.age(task_id)
    await stack.sweep()
    if damage is reset:
        result = await asyncio.wait_for(stack.session(task_id).result(), 30)
        assert (result["status"], result["reason"]) == ("completed", "goal_reached")
    assert len(await lines(ledger)) == 1 and len(await stack.asked(task_id)) == 2
    assert await stack.record(task_id) | {"updated_at": ""} == before | {"updated_at": ""}
    assert await stack.events(task_id) == events


@deleted_and_reset
async def test_an_answer_to_the_old_runs_question_reaches_the_session(
    stack: Stack, tmp_path: Path, damage: Damage
) -> None:
    tool = {"name": "look_up", "description": "Looks up.", "input_schema": {"type": "object"}}
    task_id = await stack.submit(calls(("look_up", {})), config={"external_tools": [tool]})
    request_id = (await stack.seen(task_id, "input_required"))["request_id"]
    await damage(stack, task_id)
    body = {"response_to": request_id, "input": {"result": "the blue one"}}
    assert (await stack.http.post(f"/tasks/{task_id}/input", json=body)).status_code == 202
    record = await swept(stack, task_id)
    assert record["status"] == "completed"
    assert "the blue one" in results(await stack.nodes(task_id))[0]
    assert len(of_type(await stack.events(task_id), "input_required")) == 1


async def test_nothing_is_repeated_after_temporal_lost_its_data(stack: Stack, tmp_path: Path) -> None:
    ledgers = {name: tmp_path / name for name in ("first", "running", "last")}
    task_id = await stack.submit(
        steps([once(ledgers["first"])], [once(ledgers["running"], 40)], [once(ledgers["last"])])
    )
    tool = {"name": "look_up", "description": "Looks up.", "input_schema": {"type": "object"}}
    asking = await stack.submit(calls(("look_up", {})), config={"external_tools": [tool]})
    done = await stack.submit("[[script:say text=done]]")
    before = await stack.wait(done)
    request_id = (await stack.seen(asking, "input_required"))["request_id"]
    await eventually(lambda: lines(ledgers["running"]), what="the second call has begun")
    async with temporal_loses_its_data(stack):
        body = {"response_to": request_id, "input": {"result": "the blue one"}}
        assert (await stack.http.post(f"/tasks/{asking}/input", json=body)).status_code == 202
    record = await swept(stack, task_id, seconds=120)
    assert (record["status"], record["reason"]) == ("completed", "goal_reached")
    assert [len(await lines(ledger)) for ledger in ledgers.values()] == [1, 1, 1]
    assert "It was not repeated" in results(await stack.nodes(task_id))[1]
    replies = [node["step"] for node in await stack.nodes(task_id) if node["kind"] == "assistant"]
    assert replies == [1, 2, 3, 4]
    assert (await swept(stack, asking))["status"] == "completed"
    assert "the blue one" in results(await stack.nodes(asking))[0]
    assert await stack.record(done) == before
    assert (await stack.run("[[script:say text=again]]"))["status"] == "completed"

"""Missions: they stay working over many runs, keep within budgets, pause at risks, and end once with a summary."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from activities.sessions.sweep import ScheduleSync
from domain.ids import new_id
from domain.missions import MissionRules, MissionStatus
from store import missions
from tests.behaviour.conversations.talk import Gate, chain
from tests.behaviour.schedules.clock import FAR, runs, trigger
from tests.behaviour.schedules.clock import create as schedule
from tests.behaviour.supervision.people import answer, waiting
from tests.behaviour.triggers.sender import Sender
from tests.support.stack import Stack, calls, eventually, steps
from workflows.schedules import ScheduleClient


async def create(stack: Stack, input: str = "[[script:say text=done]]", **fields: Any) -> dict[str, Any]:
    """A mission; its schedule and what bounds it in one."""
    task, timing = {"agent": "tester", "input": input}, FAR | fields
    bounds = {"total": {"runs": 100}} | {
        name: timing.pop(name) for name in MissionRules.model_fields.keys() & fields.keys()
    }
    made = await schedule(stack, **{"task": task, **timing, "mission": bounds})
    return {**made, **made["mission"]}


async def show(stack: Stack, made: dict[str, Any]) -> dict[str, Any]:
    record: dict[str, Any] = (await stack.http.get(f"/schedules/{made['id']}")).json()
    return {**record, **record["mission"]}


async def run(stack: Stack, made: dict[str, Any]) -> dict[str, Any]:
    """Start one run by hand; return its row."""
    return await trigger(stack, made["id"])


async def finished(stack: Stack, made: dict[str, Any]) -> dict[str, Any]:
    row = await run(stack, made)
    assert row["status"] == "fired", row
    return await stack.wait(row["session_id"])


async def test_a_mission_stays_working_over_its_runs_until_it_is_cancelled(stack: Stack) -> None:
    made = await create(stack)
    assert (made["status"], made["paused"], made["summary"]) == ("working", False, None)
    for _ in range(2):
        record = await finished(stack, made)
        assert (record["status"], record["conversation_id"]) == ("completed", made["conversation_id"])
    conversation = (await stack.http.get(f"/conversations/{made['conversation_id']}")).json()
    assert conversation["descriptor"] == {"type": "schedule", "identity": {"id": made["id"]}}
    shown = await show(stack, made)
    assert (shown["status"], shown["total"]["runs"], shown["reason"]) == ("working", 2, None)
    assert shown["total"]["tokens"] > 0
    assert (await stack.http.delete(f"/schedules/{made['id']}")).status_code == 204
    cancelled = await show(stack, made)
    assert cancelled["status"] == "cancelled" and "Runs: 2" in cancelled["summary"]
    assert "Last answer: done" in cancelled["summary"]
    assert (await stack.http.delete(f"/schedules/{made['id']}")).status_code == 204
    assert await show(stack, made) == cancelled
    assert [row["task_status"] for row in await runs(stack, made["id"])] == ["completed"] * 2
    for verb in ("trigger", "pause", "resume"):
        refused = await stack.http.post(f"/schedules/{made['id']}/{verb}")
        assert (refused.status_code, refused.json()["type"]) == (409, "urn:errand:problem:mission-ended")
    ended = await stack.pool.fetchval(
        "SELECT count(*) FROM notices WHERE type = 'mission_ended' AND data LIKE $1", f"%{made['id']}%"
    )
    assert ended == 1


async def test_a_cancel_that_died_half_way_is_finished_by_a_repeat_or_by_the_sweeper(stack: Stack) -> None:
    gate = Gate()
    script = chain([gate.call])
    agent = {"name": "mission-gated", "description": "x", "prompt": "x", "tools": ["wait_for"]}
    assert (await stack.http.put("/agents/mission-gated", json=agent)).is_success
    for repeats in (True, False):
        made = await create(stack, task={"agent": "mission-gated", "input": script})
        row = await run(stack, made)
        await stack.seen(row["session_id"], "tool_called")
        await missions.end(stack.pool, "default", made["id"], MissionStatus.CANCELLED, "and then the API was killed")
        if repeats:
            assert (await stack.http.delete(f"/schedules/{made['id']}")).is_success
            ended = await stack.wait(row["session_id"])
            assert (ended["status"], ended["reason"]) == ("cancelled", "caller_cancel")
            continue
        await ScheduleSync(stack.pool, ScheduleClient(stack.client, stack.settings.task_queue)).repair()
        recorded = "SELECT cancel_requested::jsonb ->> 'scope' FROM sessions WHERE id = $1"
        # a sweep sends the signal for this stop
        assert await stack.pool.fetchval(recorded, row["session_id"]) == "tree"
    gate.open()


async def test_daily_and_total_budgets_limit_a_mission(stack: Stack) -> None:
    made = await create(stack, per_day={"runs": 1}, total={"runs": 2})
    await finished(stack, made)
    skipped = await run(stack, made)
    assert (skipped["status"], skipped["reason"]) == ("skipped", "the day's budget of runs is used up")
    await stack.pool.execute(  # a day passes
        "UPDATE sessions SET created_at = created_at - interval '1 day' WHERE conversation_id = $1",
        made["conversation_id"],
    )
    await finished(stack, made)
    shown = await show(stack, made)
    assert (shown["status"], shown["reason"]) == ("out_of_budget", "its budget of runs is used up")
    assert "Ticks: 2 fired, 1 skipped" in shown["summary"]
    late = await stack.http.post(
        "/conversations/run",
        json={"conversation_id": made["conversation_id"], "input": "more", "transport": "stream"},
    )
    assert late.status_code == 409  # the conversation of an ended mission accepts no turns


async def test_run_ends_within_the_remaining_budget(stack: Stack) -> None:
    made = await create(stack, "[[script:forever]]", total={"tokens": 3_000})
    row = await run(stack, made)
    record = await stack.wait(row["session_id"])
    assert record["reason"] == "tree_budget", record
    shown = await show(stack, made)
    assert shown["total"]["tokens"] <= 3_000 + 500
    assert (await show(stack, made))["status"] in ("working", "out_of_budget")


@pytest.mark.proves("S1-32")
async def test_conditions_and_time_end_a_mission(stack: Stack) -> None:
    answered = await create(stack, stop_when_answer="^done$")
    await finished(stack, answered)
    assert (await show(stack, answered))["status"] == "stopped"
    failing = await create(stack, "[[fault:auth times=always]]", stop_after_failures=1)
    row = await run(stack, failing)
    assert (await stack.wait(row["session_id"]))["status"] == "failed"

    async def stopped() -> bool:
        shown = await show(stack, failing)
        assert shown["reason"] in (None, "1 run failed"), shown
        return shown["reason"] is not None

    await eventually(stopped)
    soon = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
    expiring = await create(stack, expires_at=soon)

    async def expired() -> bool:
        return bool((await show(stack, expiring))["status"] == "expired")

    await eventually(expired)


async def test_a_risk_pauses_the_mission_and_asks(stack: Stack) -> None:
    script = steps([("bash", {"command": "echo harmless"})], [("bash", {"command": "echo push it"})])
    made = await create(stack, script, risks=[{"tool": "bash", "argument": "*push*"}])
    row = await run(stack, made)
    [request] = await waiting(stack, row["session_id"])
    assert request["kind"] == "tool_approval" and request["details"]["risk"]["argument"] == "*push*"
    assert request["question"].endswith(f"The mission {made['name']} is paused, as this is a risk: bash *push*.")
    shown = await show(stack, made)
    assert (shown["status"], shown["paused"], shown["requests"]) == ("working", True, [request["id"]])
    assert shown["pause_reason"].startswith("risk: bash *push*: bash: ")
    held = await run(stack, made)
    assert held["status"] == "skipped" and "paused" in held["reason"]
    assert (await answer(stack, row["session_id"], request["id"], {"approved": True})).status_code == 202
    assert (await stack.wait(row["session_id"]))["status"] == "completed"
    assert (await show(stack, made))["paused"] is False
    second = await run(stack, made)
    [request] = await waiting(stack, second["session_id"])
    await answer(stack, second["session_id"], request["id"], {"approved": False})
    await stack.wait(second["session_id"])
    assert (await show(stack, made))["paused"] is True  # until somebody resumes it
    assert (await stack.http.post(f"/schedules/{made['id']}/resume")).json()["paused"] is False


async def test_a_risk_may_begin_after_some_calls(stack: Stack) -> None:
    """Only calls with matching arguments are counted, including those of earlier steps."""
    look, other = ("bash", {"command": "echo x"}), ("bash", {"command": "echo y"})
    risk = {"tool": "bash", "argument": "*x", "after_calls": 2}
    made = await create(stack, steps([look, other], [other, look], [look]), risks=[risk])
    row = await run(stack, made)
    [request] = await waiting(stack, row["session_id"])
    done = [node["kind"] for node in await stack.nodes(row["session_id"])].count("tool_results")
    assert done == 2  # the request is for the last call only
    await answer(stack, row["session_id"], request["id"], {"approved": True})
    assert (await stack.wait(row["session_id"]))["status"] == "completed"


@pytest.mark.proves("S1-32")
async def test_a_mission_is_triggered_from_outside_and_bounded_by_risks_conditions_and_budgets(stack: Stack) -> None:
    risky = calls(("bash", {"command": "echo push"}))
    made = await create(
        stack, total={"runs": 3}, stop_when_answer="^never$", risks=[{"tool": "bash", "argument": "*push*"}]
    )
    await finished(stack, made)
    sender = await Sender.new(stack, conversation_id=made["conversation_id"], task={"agent": "tester", "input": risky})
    accepted = await sender.accepted({"n": 1})
    assert accepted["conversation_id"] == made["conversation_id"]
    [request] = await waiting(stack, accepted["session_id"])
    assert (await show(stack, made))["paused"]
    await answer(stack, accepted["session_id"], request["id"], {"approved": True})
    await stack.wait(accepted["session_id"])
    shown = await show(stack, made)
    # no single run completes the mission
    assert (shown["status"], shown["paused"], shown["total"]["runs"]) == ("working", False, 2)
    await finished(stack, made)
    ended = await show(stack, made)
    assert (ended["status"], ended["reason"]) == ("out_of_budget", "its budget of runs is used up")
    assert "Runs: 3" in ended["summary"]


async def test_events_keep_to_the_pauses_budgets_and_end_of_their_mission(stack: Stack) -> None:
    """A refused event is not stored: its sender may send it again."""
    made = await create(stack, per_day={"runs": 3})
    path, mark = f"/schedules/{made['id']}", new_id()
    task = {"agent": "tester", "input": "[[script:say text=seen]]"}
    sender = await Sender.new(stack, conversation_id=made["conversation_id"], task=task)  # nothing has run yet

    async def refused(kind: str, **event: Any) -> None:
        answer = await sender.send({"n": 1}, **event)
        assert (answer.status_code, answer.json()["type"]) == (409, f"urn:errand:problem:{kind}"), answer.text

    assert (await stack.http.post(f"{path}/pause", json={"reason": "holiday"})).json()["pause_reason"] == "holiday"
    await refused("mission-paused", event_id=mark)
    assert await sender.events() == [] and (await show(stack, made))["total"]["runs"] == 0
    await stack.http.post(f"{path}/resume")
    first = await sender.accepted({"n": 1}, event_id=mark)
    assert (await stack.wait(first["session_id"]))["conversation_id"] == made["conversation_id"]
    await stack.http.post(f"{path}/pause")
    assert await sender.accepted({"n": 1}, event_id=mark) == first  # a repeated event gets the same answer
    await stack.http.post(f"{path}/resume")
    answers = await asyncio.gather(*(sender.send({"n": number}) for number in range(5)))
    assert sorted(one.status_code for one in answers) == [202, 202, 409, 409, 409]  # three runs a day are allowed
    await refused("mission-budget-spent")
    assert "the day's budget of runs is used up" in str([one.json().get("detail") for one in answers])
    for one in answers:
        if one.status_code == 202:
            await stack.wait(one.json()["session_id"])
    assert (await show(stack, made))["total"]["runs"] == 3
    await stack.http.delete(path)
    await refused("mission-ended")
    body = {"signature": "standard_webhooks", "conversation_id": made["conversation_id"], "task": task}
    late = await stack.http.put(f"/triggers/{sender.name}", json=body)
    assert (late.status_code, late.json()["type"]) == (409, "urn:errand:problem:mission-ended")


async def test_a_mission_survives_kills_in_the_middle_of_a_risk(stack: Stack) -> None:
    """Worker and API are killed while a run waits for an answer: one run, one pause, one answer, one effect."""
    script = steps([("bash", {"command": "echo push it >> log"})], [("bash", {"command": "cat log"})])
    made = await create(stack, script, risks=[{"tool": "bash", "argument": "*push*"}], total={"runs": 1})
    row = await run(stack, made)
    [request] = await waiting(stack, row["session_id"])
    await stack.back("api", await stack.kill("api"))
    assert (await show(stack, made))["requests"] == [request["id"]]
    await stack.back("worker", await stack.kill("worker"))
    assert (await answer(stack, row["session_id"], request["id"], {"approved": True})).status_code == 202
    assert (await stack.wait(row["session_id"], 120))["status"] == "completed"
    assert (stack.workspace(row["session_id"]) / "log").read_text() == "push it\n"

    async def ended() -> bool:
        return bool((await show(stack, made))["status"] == "out_of_budget")

    await eventually(ended)
    assert [one["status"] for one in await runs(stack, made["id"])] == ["fired"]
    notices = "SELECT count(*) FROM notices WHERE type = 'mission_ended' AND data LIKE $1"
    assert await stack.pool.fetchval(notices, f"%{made['id']}%") == 1


@pytest.mark.parametrize(
    ("fields", "bounds", "pointer"),
    [
        ({}, {"total": {"runs": 0}}, "/mission/total/runs"),
        ({}, {"expires_at": "2020-01-01T00:00:00Z"}, "/mission/expires_at"),
        ({"overlap": "allow", "context": "isolated"}, {}, ""),
        ({"conversation_id": "0" * 26}, {}, ""),
    ],
)
async def test_a_mission_that_cannot_work_is_refused(
    stack: Stack, fields: dict[str, Any], bounds: dict[str, Any], pointer: str
) -> None:
    name, task = f"m{new_id()}", {"agent": "tester", "input": "x"}
    body = {"name": name, "task": task, **FAR, **fields, "mission": {"total": {"runs": 1}, **bounds}}
    refused = await stack.http.post("/schedules", json=body)
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, pointer), refused.text
    assert (await stack.http.get(f"/schedules?name={name}")).json()["items"] == []

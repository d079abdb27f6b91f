"""Schedules over the API: created, due, triggered, backfilled, paused, replaced, deleted; and what is refused."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from domain import wire
from domain.ids import new_id, schedule_workflow_id
from store import schedule_runs, schedules
from tests.behaviour.notifications.receivers import http_receiver
from tests.behaviour.notifications.subscribers import Subscribers
from tests.behaviour.schedules.clock import create, fired, runs, show, tick, trigger, until
from tests.support.stack import Stack


@pytest.mark.proves("S1-B12")
async def test_ticks_missed_in_an_outage_follow_the_setting_of_each_schedule(stack: Stack) -> None:
    """Temporal is killed and stays down until ticks are missed. Also tested: once, cron with a zone, overlap."""
    every: dict[str, Any] = {"every": 6_000, "overlap": "queue"}
    made = {one: await create(stack, missed=one, **every) for one in ("each", "once", "skip")}
    made["dropped"] = await create(stack, catch_up=10_000, **every)
    daily = await create(stack, cron="30 7 * * *", timezone="Europe/Berlin")
    zone = ZoneInfo("Europe/Berlin")
    assert {datetime.fromisoformat(one).astimezone(zone).strftime("%H:%M") for one in daily["next_times"]} == {"07:30"}
    for one in made.values():  # Temporal counts from the time when it first processes a schedule
        await until(stack, one["id"], lambda listed: len(listed) >= 1)
    down = datetime.now(UTC)
    soon = {"at": (down + timedelta(seconds=4)).isoformat()}
    made |= {f"at {one}": await create(stack, missed=one, **soon) for one in ("each", "once", "skip")}
    with stack.frozen_supervisor():
        before = await stack.kill("temporal")
        await asyncio.sleep(15)
    await stack.back("temporal", before)
    up = datetime.now(UTC)

    async def after(name: str) -> list[dict[str, Any]]:
        """Return the runs since the outage began, once the schedule fires again."""

        def enough(listed: list[dict[str, Any]]) -> bool:
            times = [_at(run) for run in listed if _at(run) > down]
            complete = name == "dropped" or times[:1] == [_next(down)] and _gaps(times) == {timedelta(seconds=6)}
            return complete and times[-1] > up and [run["status"] for run in listed[-2:]] == ["fired", "fired"]

        return [run for run in await until(stack, made[name]["id"], enough) if _at(run) > down]

    found = {name: await after(name) for name in ("each", "once", "skip", "dropped")}  # each due time has its row
    assert {run["status"] for run in found["each"]} == {"fired"} and len(found["each"]) >= 3
    for name, reason in (("once", "missed, as was a later one"), ("skip", "missed")):
        missed = [run for run in found[name] if run["status"] == "skipped"]
        assert missed == found[name][: len(missed)] and {run["reason"] for run in missed} == {reason}, name
    assert _at(found["dropped"][0]) > _next(down)  # ticks that were missed for longer are dropped
    for name, decided in (("each", ("fired", "")), ("once", ("fired", "")), ("skip", ("skipped", "missed"))):
        [run] = await until(stack, made[f"at {name}"]["id"], lambda listed: len(listed) == 1)
        assert (run["status"], run["reason"]) == decided, name  # no later tick replaces it
        assert (await show(stack, made[f"at {name}"]["id"]))["next_times"] == []
    for one in made.values():
        await stack.http.delete(f"/schedules/{one['id']}")
    slow = "[[script:say words=100 delay=0.1]]"
    for overlap, statuses in (
        ("skip", ["fired", "skipped"]),
        ("allow", ["fired"] * 2),
        ("cancel_previous", ["fired"] * 2),
    ):
        one = await create(stack, slow, overlap=overlap, context="isolated")
        first, second = await trigger(stack, one["id"]), await trigger(stack, one["id"])
        assert [run["status"] for run in await runs(stack, one["id"])] == statuses
        cancelled = [first] if overlap == "cancel_previous" else []
        for run in cancelled:
            assert (await stack.wait(run["session_id"]))["status"] == "cancelled"
        for run in (first, second):
            if run["session_id"] and run not in cancelled:
                assert (await stack.record(run["session_id"]))["status"] in ("submitted", "working")
                await stack.cancel(run["session_id"])


def _at(run: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(run["scheduled_at"])


def _next(moment: datetime, every: int = 6) -> datetime:
    """Return the next time of an interval, which Temporal counts from the epoch."""
    return datetime.fromtimestamp((int(moment.timestamp()) // every + 1) * every, UTC)


def _gaps(times: list[datetime]) -> set[timedelta]:
    return {later - earlier for earlier, later in zip(times, times[1:], strict=False)}


async def test_ticks_sessions_and_deliveries_take_turns_between_tenants(stack: Stack) -> None:
    """Temporal deals out the work of one queue by this key, where its server has fairness switched on."""
    subscribers = Subscribers(stack)
    async with http_receiver() as receiver:
        made = await subscribers.subscribe(f"{receiver.url}/", events=["task_completed"])
        schedule = await create(stack, every=1_000)
        await until(stack, schedule["id"], lambda listed: len(listed) >= 1)
        triggered = await trigger(stack, schedule["id"])
        await stack.http.post(f"/schedules/{schedule['id']}/pause")
        await receiver.got("/", 1)
        (await stack.http.delete(f"/subscriptions/{made['id']}")).raise_for_status()
    assert triggered["manual"]
    keys: dict[str, set[str]] = {}
    async for one in stack.client.list_workflows('TenantId = "default"'):
        described = await stack.client.get_workflow_handle(one.id).describe()
        key = described.raw_description.workflow_execution_info.priority.fairness_key
        keys.setdefault(one.workflow_type, set()).add(key)
    assert keys.keys() >= {wire.SESSION, wire.TICK, wire.NOTIFICATION_DELIVERY}
    # other tests start sessions by hand, without a key
    assert all(found - {""} <= {"default"} for found in keys.values()), keys
    assert all("default" in keys[kind] for kind in (wire.SESSION, wire.TICK, wire.NOTIFICATION_DELIVERY)), keys
    assert keys[wire.TICK] == keys[wire.NOTIFICATION_DELIVERY] == {"default"}, keys


@pytest.mark.exactly_once
async def test_the_same_tick_is_one_message_however_often_it_is_repeated(stack: Stack) -> None:
    made = await create(stack)
    call = tick(made, datetime(2026, 1, 1, tzinfo=UTC))
    decided = await asyncio.gather(*(schedule_runs.fire(stack.pool, call, "hello") for _ in range(10)))
    assert len({run.session_id for run, _ in [one for one in decided if one]}) == 1
    sessions = await stack.pool.fetchval(
        "SELECT count(*) FROM sessions WHERE conversation_id = $1", made["conversation_id"]
    )
    assert sessions == 1 and len(await runs(stack, made["id"])) == 1


@pytest.mark.together
async def test_a_replaced_schedule_keeps_its_runs_and_a_deleted_one_its_id(stack: Stack) -> None:
    made = await create(stack)
    await fired(stack, made["id"])
    body = {"name": made["name"], "every": 3_600_000, "task": {"agent": "tester", "input": "[[script:say text=new]]"}}
    changed = await stack.http.put(f"/schedules/{made['id']}", json=body)
    assert changed.status_code == 200 and changed.json()["every"] == 3_600_000, changed.text
    assert (await fired(stack, made["id"]))["conversation_id"] == made["conversation_id"]
    assert (await show(stack, made["id"]))["runs"] == {"fired": 2}
    assert (await stack.http.delete(f"/schedules/{made['id']}")).status_code == 204
    assert (await stack.http.get(f"/schedules/{made['id']}")).status_code == 404
    assert (await create(stack, name=made["name"]))["id"] != made["id"]
    guest = await create(stack, conversation_id=made["conversation_id"])  # the files there are not its own
    assert (await stack.http.put(f"/schedules/{guest['id']}", json={**body, "name": guest["name"]})).is_success
    assert (await stack.http.put(f"/schedules/{guest['id']}/files", json={})).status_code == 409


async def test_a_schedule_that_temporal_lost_is_created_again(stack: Stack) -> None:
    made = await create(stack, every=3_600_000)
    await stack.client.get_schedule_handle(schedule_workflow_id(made["id"])).delete()
    assert (await show(stack, made["id"]))["next_times"] is None
    await schedules.note_missing(stack.pool, [])
    late = await create(stack, every=60_000)  # Temporal has it only after it was due
    await stack.client.get_schedule_handle(schedule_workflow_id(late["id"])).delete()
    sql = "UPDATE schedules SET synced = 0, created_at = now() - interval '150 seconds' WHERE id = $1 RETURNING now()"
    created_in_temporal = await stack.pool.fetchval(sql, late["id"])

    await stack.sweep()
    assert (await show(stack, made["id"]))["next_times"] is not None
    due = await until(stack, late["id"], lambda listed: len(listed) >= 2)
    assert {_at(run) < created_in_temporal for run in due[:2]} == {True} and due[1]["status"] != "failed"


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"cron": "61 * * * *"}, "/cron"),
    ({"cron": "0 3 * * *", "timezone": "Europe/Atlantis"}, "/timezone"),
    ({"every": 10}, "/every"),
    ({"at": "2020-01-01T00:00:00Z"}, "/at"),
    ({"at": "9999-12-31T23:59:59-14:00"}, "/at"),
    ({"every": 60_000, "overlap": "allow"}, ""),
    ({"every": 60_000, "quiet_hours": {"start": "25:00", "end": "07:00"}}, "/quiet_hours/start"),
    ({"every": 60_000, "conversation_id": "0" * 26}, ""),
]


@pytest.mark.parametrize(("fields", "pointer"), REFUSED)
async def test_bad_schedules_are_refused_and_change_nothing(stack: Stack, fields: dict[str, Any], pointer: str) -> None:
    name = f"s{new_id()}"
    body = {"name": name, "task": {"agent": "tester", "input": "x"}, **fields}
    answer = await stack.http.post("/schedules", json=body)
    assert answer.status_code in (404, 422) and answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert not pointer or problem["errors"][0]["pointer"] == pointer
    assert (await stack.http.get("/schedules", params={"name": name})).json()["items"] == []


async def test_a_bad_backfill_and_unknown_schedules_are_refused(stack: Stack) -> None:
    made = await create(stack, every=1_000, overlap="skip")
    await stack.http.post(f"/schedules/{made['id']}/pause")
    span = {"start": "2025-01-01T00:00:00Z", "end": "2026-01-01T00:00:00Z"}  # too many due times
    assert (await stack.http.post(f"/schedules/{made['id']}/backfill", json=span)).status_code == 422
    for query in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"):
        listed = await stack.http.get(f"/schedules/{made['id']}/runs", params={"before": query})
        assert listed.json()["errors"][0]["pointer"] == "/before", listed.text
    for path in ("trigger", "pause", "resume"):
        assert (await stack.http.post(f"/schedules/{new_id()}/{path}")).status_code == 404
    again = await stack.http.post(
        "/schedules", json={"name": made["name"], "every": 60_000, "task": {"agent": "tester", "input": "x"}}
    )
    assert again.status_code == 409 and again.json()["type"].endswith("name-taken")

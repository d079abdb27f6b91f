"""Checks and heartbeats: a check without findings costs no model call; and known defects of other systems."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from domain.ids import new_id
from domain.sessions.session import Reason, SessionRef
from domain.sessions.writes import SessionEnding
from store import conversations, schedule_runs
from store import sessions as endings
from tests.behaviour.conversations.talk import BROKEN, asked
from tests.behaviour.notifications.receivers import http_receiver
from tests.behaviour.notifications.subscribers import Subscribers
from tests.behaviour.schedules.clock import create, fired, runs, show, tick, trigger, until
from tests.support.stack import Stack, eventually

LOOK = {"run": 'n=$(cat n 2>/dev/null || echo 0); echo $((n + 1)) > n; [ "$n" = 5 ] && echo "alarm" || exit 3'}


async def test_a_check_with_nothing_to_do_costs_one_row_and_no_model_call(stack: Stack) -> None:
    word = f"beat-{new_id()}"
    async with http_receiver() as receiver:
        watcher = Subscribers(stack)
        subscription = await watcher.subscribe(f"{receiver.url}/", events=["task_completed", "task_failed"])
        made = await create(stack, f"[[script:say text=looked]] {word}", check=LOOK)
        for _ in range(7):
            await trigger(stack, made["id"])
        assert (await show(stack, made["id"]))["runs"] == {"skipped": 6, "fired": 1}
        [run] = [run for run in await runs(stack, made["id"]) if run["status"] == "fired"]
        await stack.wait(run["session_id"])
        [request] = await asked(stack, word)  # one model call in seven ticks
        assert "<check_output>\nalarm\n</check_output>" in str(request["messages"][0]).replace("\\n", "\n")

        async def delivered() -> bool:
            found = [one for one in await watcher.deliveries(subscription) if one["task_id"] == run["session_id"]]
            return [one["status"] for one in found] == ["delivered"]

        await eventually(delivered, what="one notification, for the run that did something")
        await stack.http.delete(f"/subscriptions/{subscription['id']}")


@pytest.mark.together
async def test_a_check_that_breaks_or_takes_too_long_is_a_failed_run(stack: Stack) -> None:
    check = {"run": "[ -e again ] && sleep 30; touch again; exit 127", "timeout_s": 3}
    made = await create(stack, check=check, pause_after_failures=2)
    first, second = await trigger(stack, made["id"]), await trigger(stack, made["id"])
    assert (first["status"], second["status"]) == ("failed", "failed")
    assert "exit code 127" in first["reason"] and "stopped after 3 s" in second["reason"]
    shown = await show(stack, made["id"])
    assert shown["paused"] and shown["failures"] == 2


@pytest.mark.together
async def test_quiet_hours_skip_ticks_but_not_what_a_person_triggers(stack: Stack) -> None:
    now = datetime.now(UTC)
    quiet = {"start": f"{now - timedelta(hours=1):%H:%M}", "end": f"{now + timedelta(hours=1):%H:%M}"}
    made = await create(stack, every=1_000, quiet_hours=quiet)
    found = await until(stack, made["id"], lambda listed: len(listed) >= 2)
    assert {(run["status"], run["reason"]) for run in found} == {("skipped", "quiet hours")}
    assert (await fired(stack, made["id"]))["status"] == "completed"
    await stack.http.delete(f"/schedules/{made['id']}")


@pytest.mark.exactly_once
async def test_no_duplicate_heartbeats_whatever_repeats_a_tick(stack: Stack) -> None:
    """Reported of another system: 835 duplicate heartbeats in a day. Here concurrent claims, a backfill and retries
    repeat the same due time."""
    made = await create(stack, cron="*/15 * * * *", overlap="queue", check={"run": "exit 3"})
    day = datetime(2026, 3, 2, tzinfo=UTC)
    span = {"start": (day - timedelta(minutes=1)).isoformat(), "end": (day + timedelta(hours=3)).isoformat()}
    for _ in range(3):
        assert (await stack.http.post(f"/schedules/{made['id']}/backfill", json=span)).status_code == 202
    await until(stack, made["id"], lambda listed: len(listed) >= 13)
    again = [tick(made, day + timedelta(minutes=15 * number)) for number in range(13) for _ in range(5)]
    await asyncio.gather(*(schedule_runs.fire(stack.pool, one, "again") for one in again))
    assert (await show(stack, made["id"]))["runs"] == {"skipped": 13}
    count = "SELECT count(*) FROM sessions WHERE conversation_id = $1"
    assert await stack.pool.fetchval(count, made["conversation_id"]) == 0


@pytest.mark.together
async def test_a_heartbeat_is_not_stuck_after_its_first_run(stack: Stack) -> None:
    """Ticks by the clock with the default rules: however the first run ended, others follow."""
    again: dict[str, Any] = {"every": 1_000, "pause_after_failures": None}
    well, broken = await create(stack, **again), await create(stack, BROKEN, **again)
    endless = await create(stack, "[[script:say words=600 delay=0.1]]", **again)
    first, *_ = await until(stack, endless["id"], lambda listed: bool(listed))
    assert (await stack.cancel(first["session_id"])).status_code == 202
    for made, ends in ((well, "completed"), (broken, "failed"), (endless, "cancelled")):
        found = await until(stack, made["id"], lambda listed: [run["status"] for run in listed].count("fired") >= 2)
        await stack.http.delete(f"/schedules/{made['id']}")
        sessions = [run["session_id"] for run in found if run["status"] == "fired"]
        for session_id in sessions[1:] if made is endless else []:
            await stack.cancel(session_id)
        assert (await stack.wait(sessions[0]))["status"] == ends


async def test_an_undeliverable_message_stops_no_other_heartbeat(stack: Stack) -> None:
    async with http_receiver() as receiver:
        watcher = Subscribers(stack)
        subscription = await watcher.subscribe(f"{receiver.url}/", events=["schedule_paused"])
        dead, alive = await create(stack, pause_after_failures=3), await create(stack)
        await fired(stack, dead["id"])
        await conversations.terminate(stack.pool, "default", dead["conversation_id"])
        for number in range(4):
            run = await trigger(stack, dead["id"])
            assert run["status"] == "failed" and "terminated" in run["reason"], number
            assert (await fired(stack, alive["id"]))["status"] == "completed"
        shown = await show(stack, dead["id"])
        assert shown["paused"] and "3 runs in a row" in shown["pause_reason"]
        assert (await watcher.delivery(subscription, status="delivered"))["event"] == "schedule_paused"  # one notice
        await stack.http.delete(f"/subscriptions/{subscription['id']}")


@pytest.mark.proves("S2-B17")
async def test_failing_sessions_pause_the_schedule_with_one_notice(stack: Stack) -> None:
    made = await create(stack, BROKEN, pause_after_failures=2)
    for _ in range(2):
        assert (await fired(stack, made["id"]))["status"] == "failed"

    await schedule_runs.settle(stack.pool)
    shown = await show(stack, made["id"])
    assert shown["paused"] and shown["failures"] == 2
    paused = "SELECT count(*) FROM notices WHERE type = 'schedule_paused' AND data LIKE $1"
    assert await stack.pool.fetchval(paused, f"%{made['id']}%") == 1
    failed = "SELECT count(*) FROM notices WHERE type = 'task_failed' AND conversation_id = $1"
    assert await stack.pool.fetchval(failed, made["conversation_id"]) == 2  # each failure is reported once, by its run
    read = "SELECT count(*) FROM inbox WHERE conversation_id = $1"
    assert await stack.pool.fetchval(read, made["conversation_id"]) == 2  # and the agent gets no message about it
    resumed = (await stack.http.post(f"/schedules/{made['id']}/resume")).json()
    assert not resumed["paused"] and resumed["failures"] == 0


@pytest.mark.parametrize(
    ("ends", "failures"),
    [
        (["failed", "cancelled", "failed"], 2),  # a cancelled run says nothing: failures stay in a row
        (["failed", "failed", "completed"], 0),
        (["failed", "cancelled", "failed", "cancelled", "failed"], 3),
    ],
)
async def test_failures_in_a_row_are_counted_by_how_runs_end(stack: Stack, ends: list[str], failures: int) -> None:
    made = await create(stack, pause_after_failures=3)
    for number, status in enumerate(ends):
        tick_ = tick(made, datetime(2030, 1, 1 + number, tzinfo=UTC))
        decided = await schedule_runs.fire(stack.pool, tick_, "text", session=None)
        assert decided is not None and decided[1] is not None, decided
        reason = {"failed": Reason.ERROR, "completed": Reason.GOAL_REACHED, "cancelled": Reason.CALLER_CANCEL}[status]
        ref = SessionRef(tenant="default", session_id=decided[1].id, conversation_id=decided[1].conversation_id)
        await endings.finish_session(stack.pool, SessionEnding(ref=ref, reason=reason, output="x", version=9))
        await schedule_runs.settle(stack.pool)
    shown = await show(stack, made["id"])
    assert (shown["failures"], shown["paused"]) == (failures, failures >= 3)


async def test_the_cadence_does_not_stall_when_the_worker_dies(stack: Stack) -> None:
    made = await create(stack, every=1_000, overlap="queue", check={"run": "exit 3"})
    await until(stack, made["id"], lambda listed: len(listed) >= 2)
    await stack.kill("worker")
    await until(stack, made["id"], lambda listed: len(listed) >= 8)
    await stack.http.post(f"/schedules/{made['id']}/pause")

    def complete(listed: list[dict[str, Any]]) -> bool:
        """Every due time has its row, including those during the outage."""
        times = [datetime.fromisoformat(run["scheduled_at"]) for run in listed]
        return {later - earlier for earlier, later in zip(times, times[1:], strict=False)} == {timedelta(seconds=1)}

    await until(stack, made["id"], complete)

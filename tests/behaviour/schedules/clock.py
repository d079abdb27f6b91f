"""Helpers for schedule tests: schedules that fire only when triggered, and their runs."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from domain.ids import new_id
from domain.schedules import TickCall
from tests.support.stack import Stack, eventually

FAR = {"cron": "0 0 1 1 *"}  # once a year


async def create(stack: Stack, input: str = "[[script:say text=done]]", **fields: Any) -> dict[str, Any]:
    task = {"agent": fields.pop("agent", "tester"), "input": input, **fields.pop("task", {})}
    timing = {} if {"cron", "every", "at"} & set(fields) else FAR
    answer = await stack.http.post("/schedules", json={"name": f"s{new_id()}", "task": task, **timing, **fields})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def show(stack: Stack, schedule_id: str) -> dict[str, Any]:
    answer = await stack.http.get(f"/schedules/{schedule_id}")
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


async def runs(stack: Stack, schedule_id: str) -> list[dict[str, Any]]:
    """Return the runs, oldest first."""
    answer = await stack.http.get(f"/schedules/{schedule_id}/runs", params={"limit": 200})
    assert answer.status_code == 200, answer.text
    return list(reversed(answer.json()["items"]))


async def until(stack: Stack, schedule_id: str, enough: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
    async def look() -> list[dict[str, Any]] | None:
        found = await runs(stack, schedule_id)
        return found if enough(found) else None

    return await eventually(look, what=f"runs of {schedule_id}")


async def trigger(stack: Stack, schedule_id: str) -> dict[str, Any]:
    """Trigger the schedule and return the run."""
    answer = await stack.http.post(f"/schedules/{schedule_id}/trigger")
    assert answer.status_code == 202, answer.text
    at = answer.json()["scheduled_at"]
    found = await until(stack, schedule_id, lambda listed: any(run["scheduled_at"] == at for run in listed))
    return next(run for run in found if run["scheduled_at"] == at)


async def fired(stack: Stack, schedule_id: str) -> dict[str, Any]:
    """Trigger the schedule, wait for the end of the session, and return the session's record."""
    run = await trigger(stack, schedule_id)
    assert run["status"] == "fired", run
    return await stack.wait(run["session_id"])


def tick(schedule: dict[str, Any], at: datetime) -> TickCall:
    return TickCall(tenant="default", schedule_id=schedule["id"], at=at)

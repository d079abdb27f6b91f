"""A session whose question cannot be written for a while, neither when it is opened nor when its deadline passes."""

from temporalio.api.enums.v1 import EventType

from tests.behaviour.supervision.people import ask, waiting
from tests.support.locks import locked
from tests.support.stack import Stack, calls, eventually

DEFAULT = "Either of them."


async def queued_activities(stack: Stack, task_id: str) -> list[str]:
    return [
        event.activity_task_scheduled_event_attributes.activity_type.name
        for event in (await stack.session(task_id).fetch_history()).events
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    ]


async def slowly_asked(stack: Stack) -> str:
    async with locked(stack.pool, "input_requests"):
        task_id = await stack.submit(
            calls(ask("Which?", default=DEFAULT)),
            "asker",
            config={"input_timeout": 4_000, "on_input_timeout": "default"},
        )
        await _queued(stack, task_id, "open_request")
    await waiting(stack, task_id)
    async with locked(stack.pool, "input_requests"):
        await _queued(stack, task_id, "settle_request")
    await stack.wait(task_id)
    return task_id


async def _queued(stack: Stack, task_id: str, name: str) -> None:
    async def look() -> bool:
        return name in await queued_activities(stack, task_id)

    await eventually(look, what=f"{name} is queued")

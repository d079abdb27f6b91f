"""A session whose question cannot be written for a while, neither when it is opened nor when its deadline passes."""

from tests.behaviour.supervision.people import ask, waiting
from tests.support.locks import locked
from tests.support.stack import Stack, calls, eventually

DEFAULT = "Either of them."
QUESTION = calls(ask("Which?", default=DEFAULT))


async def scheduled(stack: Stack, task_id: str) -> list[str]:
    """The activities of the session in their order."""
    events = (await stack.session(task_id).fetch_history()).events
    begun = [event.activity_task_scheduled_event_attributes.activity_type.name for event in events]
    return [name for name in begun if name]


async def slowly_asked(stack: Stack) -> str:
    async with locked(stack.pool, "input_requests"):
        task_id = await stack.submit(QUESTION, "asker", config={"input_timeout": 4_000, "on_input_timeout": "default"})
        await _queued(stack, task_id, "open_request")
    await waiting(stack, task_id)
    async with locked(stack.pool, "input_requests"):
        await _queued(stack, task_id, "settle_request")
    await stack.wait(task_id)
    return task_id


async def _queued(stack: Stack, task_id: str, name: str) -> None:
    async def look() -> bool:
        return name in await scheduled(stack, task_id)

    await eventually(look, what=f"{name} is queued")

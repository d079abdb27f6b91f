"""Scenarios of sessions that end within their last workflow task."""

from collections.abc import Awaitable, Callable

from tests.support.locks import ending
from tests.support.stack import Stack, eventually


async def at_once(stack: Stack) -> str:
    task_id: str = (await stack.run("[[script:count n=2]]"))["task_id"]
    return task_id


async def slow_ending(stack: Stack) -> str:
    """An ending that is too slow for a local activity."""
    async with ending(stack, "[[script:say text=x]]") as task_id:
        handle = stack.session(task_id)

        async def queued() -> bool:
            return '"finish_session"' in (await handle.fetch_history()).to_json()

        await eventually(queued)
    return task_id


async def message_at_the_end(stack: Stack) -> str:
    """A message that arrives in the last workflow task, which the server therefore repeats."""
    async with ending(stack, "[[script:say text=x]]") as task_id:
        (await stack.http.post(f"/tasks/{task_id}/steer", json={"message": "And then?"})).raise_for_status()
    await stack.session(task_id).result()
    assert "UNHANDLED_COMMAND" in (await stack.session(task_id).fetch_history()).to_json(), "it came too late"
    return task_id


ENDING_SCENARIOS: dict[str, Callable[[Stack], Awaitable[str]]] = {
    "ends_at_once": at_once,
    "slow_ending": slow_ending,
    "message_at_the_end": message_at_the_end,
}

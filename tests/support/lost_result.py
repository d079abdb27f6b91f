"""A session whose worker is killed after a read has ended in Temporal and before the result of the read is written."""

from typing import Any

from tests.support.locks import locked, waiting_for
from tests.support.stack import Stack, calls, eventually


async def scheduled(stack: Stack, task_id: str) -> list[str]:
    """The activities of the session in their order."""
    events = (await stack.session(task_id).fetch_history()).events
    begun = [event.activity_task_scheduled_event_attributes.activity_type.name for event in events]
    return [name for name in begun if name]


async def with_lost_result(stack: Stack, **config: Any) -> str:
    async with locked(stack.pool, "tool_calls"):
        task_id = await stack.submit(calls(("list_files", {})), config=config)

        async def asked_again() -> bool:
            return (await scheduled(stack, task_id)).count("call_model") == 2

        await eventually(asked_again, what="the read has ended, and the model is asked again")
        await eventually(lambda: waiting_for(stack.pool, "tool_calls"))
        killed = await stack.kill("worker")
        # what the dead worker sent would be written as soon as the lock is gone
        await stack.pool.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE relation = 'tool_calls'::regclass AND NOT granted"
        )
    await stack.back("worker", killed)
    await stack.wait(task_id)
    return task_id

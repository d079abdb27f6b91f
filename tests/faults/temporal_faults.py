"""Faults inside Temporal: lost data, deleted or reset workflows, and signals with unexpected arguments."""

import asyncio
import contextlib
from datetime import timedelta
from random import Random
from typing import Any

from temporalio.client import (
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.service import RPCError

from domain import wire
from domain.ids import new_id
from tests.behaviour.workflows.test_malformed_arguments import UNFIT, handlers
from tests.faults.damage import Damage, delete, reset, temporal_loses_its_data
from tests.support.stack import Stack

WITHIN = timedelta(seconds=5)
SWEEP_SECONDS = 2.0


async def live_sessions(stack: Stack) -> list[str]:
    rows = await stack.pool.fetch("SELECT id FROM sessions WHERE live AND run_id IS NOT NULL ORDER BY id")
    return [row["id"] for row in rows]


async def lose_temporal(stack: Stack, random: Random) -> None:
    async with temporal_loses_its_data(stack):
        pass


async def delete_workflow(stack: Stack, random: Random) -> bool:
    return await _damage(stack, random, delete)


async def reset_workflow(stack: Stack, random: Random) -> bool:
    return await _damage(stack, random, reset)


async def _damage(stack: Stack, random: Random, damage: Damage) -> bool:
    """Damage some sessions; False if none could be damaged because all had just ended."""
    hits = 0
    for task_id in random.sample(live := await live_sessions(stack), min(2, len(live))):
        with contextlib.suppress(RPCError, IndexError):  # the session may have ended, or not started yet
            await damage(stack, task_id)
            hits += 1
    return hits > 0


async def send_nonsense(stack: Stack, random: Random) -> bool:
    """Send signals to some handlers of some sessions and their conversations."""
    for task_id in random.sample(live := await live_sessions(stack), min(3, len(live))):
        for name, workflow_id in ((wire.SESSION, f"session/{task_id}"), (wire.CONVERSATION, f"conversation/{task_id}")):
            every = [one for one in handlers(name) if one[1] not in (wire.TERMINATED, wire.RELOAD, wire.RESEND)]
            for kind, handler in random.sample(every, min(4, len(every))):
                await _send(stack, workflow_id, kind, handler, random.choice(UNFIT))
    return bool(live)


async def _send(stack: Stack, workflow_id: str, kind: str, name: str, arguments: list[Any]) -> None:
    handle = stack.client.get_workflow_handle(workflow_id)
    with contextlib.suppress(
        RPCError, WorkflowUpdateFailedError, WorkflowQueryFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
    ):
        if kind == "signal":
            await handle.signal(name, args=arguments, rpc_timeout=WITHIN)
        elif kind == "update":
            await handle.execute_update(name, args=arguments, id=new_id(), rpc_timeout=WITHIN)
        else:
            await handle.query(name, args=arguments, rpc_timeout=WITHIN)


async def sweep_often(stack: Stack) -> None:
    """Until cancelled, make a sweep check every live session now and not only after minutes without an event."""
    while True:
        await asyncio.sleep(SWEEP_SECONDS)
        with contextlib.suppress(Exception):  # a fault may affect the servers at this moment
            await stack.pool.execute("UPDATE sessions SET updated_at = now() - interval '5 minutes' WHERE live")
            await asyncio.wait_for(stack.sweep(), 10)

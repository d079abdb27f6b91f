"""Kills in moments that are usually short: a lock or a frozen server makes each last until the kill."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random

from domain.ids import new_id
from tests.behaviour.conversations.talk import say
from tests.faults.caller import Caller
from tests.support.stack import Stack, eventually

Moment = Callable[[Caller, Stack, Random], Awaitable[object]]  # returns False if it was missed
STEPS = 3
WITHIN = 10.0  # seconds until the moment is there


async def api_killed_before_its_starts(caller: Caller, stack: Stack, random: Random) -> None:
    """The API has responded and dies before Temporal has taken the starts."""
    with stack.frozen("temporal"):
        await asyncio.gather(*(caller.submit("unstarted", say("Here.")) for _ in range(random.randint(1, 8))))
        killed = await stack.kill("api")
    await stack.back("api", killed)


async def worker_killed_in_a_step(caller: Caller, stack: Stack, random: Random) -> bool:
    """The worker waits for the transaction that begins a step, or for the one that commits it."""
    slow = random.choice(["", f"[[fault:slow delay={random.uniform(0.3, 0.6):.2f} at=2]]"])
    work = f'[[script:count n={STEPS} tool=bash input={{"command": "sleep 0.4"}}]] {slow}'
    task = await caller.submit("steps", work)
    task.steps = STEPS + 1

    async def calling() -> bool:
        query = "SELECT count(*) FROM tool_calls WHERE session_id = $1 AND state = 'started'"
        return bool(await stack.pool.fetchval(query, task.id))

    await eventually(calling, pause=0.02, what="a tool call runs")
    if slow:  # the step has begun, and the model answers soon
        await stack.seen(task.id, "step_started", step=2)
    async with hold_rows(stack, "SELECT 1 FROM sessions WHERE id = $1 FOR NO KEY UPDATE", task.id) as waiting:
        if (writer := await waiting("_step(")) is None:
            return False
        killed = await _kill(stack, random, writer)
    await stack.back("worker", killed)
    return True


async def worker_killed_in_an_ending(caller: Caller, stack: Stack, random: Random) -> bool:
    """The worker is killed while it writes the ending, and a message to the session arrives."""
    task = await caller.submit("endings", f"{say('Done.')} [[fault:slow delay=1]]")

    async def steer() -> None:
        text = f"news-{new_id()}"
        sent = await caller.ask("POST", f"/tasks/{task.id}/steer", {"message": text}, new_id())
        assert sent.status_code in (202, 404, 409), sent.text
        task.messages += [text] if sent.status_code == 202 else []

    await stack.seen(task.id, "step_started")
    async with hold_rows(stack, "SELECT 1 FROM conversations WHERE id = $1 FOR NO KEY UPDATE", task.id) as waiting:
        if (writer := await waiting("finish_session")) is None:
            return False
        steering = asyncio.create_task(steer()) if random.random() < 0.5 else None
        await asyncio.sleep(random.uniform(0, 3))
        killed = await _kill(stack, random, await waiting("finish_session") or writer)
    await stack.back("worker", killed)
    if steering is not None:
        await steering
    return True


@asynccontextmanager
async def hold_rows(stack: Stack, query: str, task_id: str) -> AsyncIterator[Callable[[str], Awaitable[int | None]]]:
    """Lock rows of a task. The given function returns the connection whose query waits for them; None if there is none
    in time."""
    async with stack.pool.acquire() as connection, connection.transaction():
        await connection.execute(query, task_id)
        holder = connection.get_server_pid()

        async def waiting(text: str) -> int | None:
            async def look() -> int | None:
                found: int | None = await stack.pool.fetchval(
                    """SELECT pid FROM pg_stat_activity
                        WHERE $1 = ANY(pg_blocking_pids(pid)) AND query LIKE '%' || $2 || '%'""",
                    holder,
                    text,
                )
                return found

            try:
                return await eventually(look, seconds=WITHIN, pause=0.02)
            except AssertionError:
                return None

        yield waiting


async def _kill(stack: Stack, random: Random, writer: int) -> int:
    """Kill the worker. Usually its statement continues without it; else that is lost too."""
    killed = await stack.kill("worker")
    if random.random() < 0.3:
        await stack.pool.execute("SELECT pg_terminate_backend($1)", writer)
    return killed


MOMENTS: dict[str, Moment] = {
    "API killed before its starts": api_killed_before_its_starts,
    "worker killed in a step": worker_killed_in_a_step,
    "worker killed in an ending": worker_killed_in_an_ending,
}

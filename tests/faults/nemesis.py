"""The faults and their times: a seed determines them, so that a failed run can be repeated."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import asyncpg

from tests.faults.caller import Caller
from tests.support.stack import Stack

MOST_MISSES = 20
Fault = Callable[[Stack, Random], Awaitable[object]]  # returns False if there was nothing to break


def kill(name: str) -> Fault:
    async def act(stack: Stack, random: Random) -> None:
        before = stack.pid(name)
        await stack.kill(name)
        await stack.back(name, before)

    return act


def pause(name: str, *, longest: float = 4.0) -> Fault:
    async def act(stack: Stack, random: Random) -> None:
        pids = [stack.pid(name)]
        for pid in pids:  # the loop appends to this list: PostgreSQL has child processes
            pids += children_of(pid)
        signal_each(pids, signal.SIGSTOP)
        try:
            await asyncio.sleep(random.uniform(1, longest))
        finally:
            signal_each(pids, signal.SIGCONT)

    return act


async def drop_connections(stack: Stack, random: Random) -> None:
    connection = await asyncpg.connect(stack.database_url)
    try:
        await connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    finally:
        await connection.close()


FAULTS: dict[str, Fault] = {
    "worker killed": kill("worker"),
    "worker paused": pause("worker"),
    "API killed": kill("api"),
    "API paused": pause("api"),
    "Temporal killed": kill("temporal"),
    "Temporal paused": pause("temporal"),
    "PostgreSQL killed": kill("postgres"),
    "PostgreSQL paused": pause("postgres"),
    "connections dropped": drop_connections,
}


class Nemesis:
    """Causes its faults in turn until it is stopped; after each, a probe task measures how long recovery took."""

    def __init__(self, stack: Stack, caller: Caller, random: Random, faults: list[Fault]) -> None:
        self._stack, self._caller, self._random = stack, caller, random
        self._faults = random.sample(faults, len(faults))
        self.hits = self.misses = 0
        self.recoveries: list[float] = []

    async def rage(self, stop: asyncio.Event, at_least: int) -> None:
        while self._faults and not (stop.is_set() and self.hits >= at_least):
            await asyncio.sleep(self._random.uniform(0.5, 2))
            if await self._faults[self.hits % len(self._faults)](self._stack, self._random) is False:
                self.misses += 1
                assert self.misses < MOST_MISSES + self.hits, "there is nothing to break"
                await self._caller.submit("victim", "[[script:say words=20 delay=0.2]]")
                continue
            self.hits += 1
            began = time.monotonic()
            probe = await self._caller.submit("probe", "[[script:say text=here]]")
            await self._caller.ended(probe.id)
            self.recoveries.append(time.monotonic() - began)


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def signal_each(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue

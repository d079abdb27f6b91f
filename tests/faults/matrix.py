"""The fault matrix: one workload under each fault, then the checker; one row of figures for each."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.behaviour.conversations.talk import AGENTS
from tests.faults import workload
from tests.faults.caller import Caller
from tests.faults.checker import Violations, check
from tests.faults.nemesis import FAULTS, Fault, Nemesis
from tests.faults.readers import Reader
from tests.support.stack import Stack

ANY = "any of them"
ROWS: dict[str, list[Fault]] = {
    "nothing": [],
    **{name: [fault] for name, fault in FAULTS.items()},
    ANY: list(FAULTS.values()),
}


@dataclass(frozen=True)
class Size:
    rounds: int  # each has every kind of work once
    at_once: int
    faults: int  # at least so many


SHORT = Size(rounds=1, at_once=7, faults=1)
LONG = Size(rounds=8, at_once=20, faults=6)


@dataclass(frozen=True)
class Row:
    name: str
    seed: int
    tasks: int
    hits: int
    requests: int
    connections: int
    recovery: float | None  # seconds from the healed fault to the end of a task submitted then, the slowest
    violations: Violations


async def prepare(stack: Stack) -> None:
    for definition in AGENTS:
        assert (await stack.http.put(f"/agents/{definition['name']}", json=definition)).is_success


async def run(stack: Stack, name: str, seed: int, size: Size, folder: Path) -> Row:
    random = Random(f"{seed}/{name}")
    async with Caller(stack.url) as caller:
        nemesis = Nemesis(stack, caller, Random(random.random()), ROWS[name])
        done = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(nemesis.rage(done, size.faults))
            readers = group.create_task(_readers(stack, caller, Random(random.random()), done))
            await workload.run(caller, random, folder, size.rounds, size.at_once)
            done.set()
        found = await check(stack, caller)
        for reader in readers.result():
            found.add("gaps", f"reader of {reader.task_id}: {reader.seen}", reader.faults)
        return Row(
            name=name,
            seed=seed,
            tasks=len(caller.accepted),
            hits=nemesis.hits,
            requests=caller.asked,
            connections=sum(reader.connections for reader in readers.result()),
            recovery=max(nemesis.recoveries, default=None),
            violations=found,
        )


async def _readers(stack: Stack, caller: Caller, random: Random, done: asyncio.Event) -> list[Reader]:
    """One for every second task, from soon after it was accepted."""
    readers: list[Reader] = []
    async with asyncio.TaskGroup() as group:
        looked = 0
        while not done.is_set():
            fresh = caller.accepted[looked:]
            looked += len(fresh)
            for task in fresh[::2]:
                readers.append(Reader(stack.url, task.id, Random(random.random())))
                group.create_task(readers[-1].read())
            await asyncio.sleep(0.1)
    return readers


async def crowd(stack: Stack, count: int, seed: int, say: Callable[[str], None]) -> Row:
    """So many tasks at the same time, while the worker is killed now and then."""
    random = Random(seed)
    async with Caller(stack.url) as caller:
        nemesis = Nemesis(stack, caller, random, [FAULTS["worker killed"]])
        done = asyncio.Event()
        room = asyncio.Semaphore(50)

        async def one(number: int) -> None:
            async with room:
                await caller.submit("crowd", f"[[script:say text=number-{number}]]")

        async with asyncio.TaskGroup() as group:
            group.create_task(nemesis.rage(done, 3))
            await asyncio.gather(*(one(number) for number in range(count)))
            say(f"{count} tasks accepted")
            ends = [await caller.ended(task.id, 900) for task in list(caller.accepted)]
            say(f"{sum(end is not None for end in ends)} tasks ended")
            done.set()
        found = await check(stack, caller)
        slowest = max(nemesis.recoveries, default=None)
        return Row("crowd", seed, len(caller.accepted), nemesis.hits, caller.asked, 0, slowest, found)

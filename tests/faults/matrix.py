"""The fault matrix: runs one workload under each fault, then the checker; each fault is one row of figures."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from store import keys
from store.keys import Right
from tests.behaviour.conversations.talk import AGENTS, agent
from tests.behaviour.graphs.duet import call, declared_tool, define, prompt
from tests.faults import remote_tasks, temporal_faults, workload
from tests.faults.caller import Caller
from tests.faults.checker import Violations, check
from tests.faults.daemons import DAEMONS
from tests.faults.moments import MOMENTS, Moment
from tests.faults.nemesis import FAULTS, Fault, Nemesis
from tests.faults.readers import Reader
from tests.support.launch import TESTER, second_worker
from tests.support.stack import Stack

ANY = "any of them"


@dataclass(frozen=True)
class Plan:
    """What a row does, and under which conditions."""

    faults: list[Fault]
    kinds: tuple[workload.Action, ...] = workload.KINDS
    forgets: bool = False  # Temporal loses workflows, so a sweep runs often
    tenants: bool = False  # another tenant has tasks at the same time
    workers: bool = False  # a second worker, which shares no directory with the first
    builds: bool = False  # an MCP server answers calls with tasks
    moments: tuple[Moment, ...] = ()  # faults that need tasks of their own


KILLS = [FAULTS[name] for name in ("worker killed", "worker paused")]
ROWS: dict[str, Plan] = {
    "nothing": Plan([]),
    **{name: Plan([fault]) for name, fault in FAULTS.items()},
    ANY: Plan(list(FAULTS.values())),
    "Temporal's data lost": Plan([temporal_faults.lose_temporal], workload.FLAT, forgets=True),
    "workflows deleted": Plan([temporal_faults.delete_workflow], workload.FLAT, forgets=True),
    "workflows reset": Plan([temporal_faults.reset_workflow], workload.FLAT, forgets=True),
    "malformed signals": Plan([temporal_faults.send_nonsense]),
    "two workers": Plan(KILLS, (workload.workspaces, workload.effects, workload.gathers), workers=True),
    "two tenants": Plan(KILLS, workload.FLAT, tenants=True),
    "channels, schedules, triggers, missions": Plan([*KILLS, FAULTS["API killed"]], DAEMONS),
    "two sides": Plan(KILLS, (workload.duets,) * 3),
    "handoff": Plan(KILLS, (workload.handoffs,) * 3),
    "immediate subagents": Plan(KILLS, (workload.immediates,) * 3),
    "raised budgets": Plan([*KILLS, FAULTS["API killed"], FAULTS["Temporal killed"]], (workload.raises,) * 3),
    "removed agents": Plan([*KILLS, FAULTS["API killed"]], (workload.removals,) * 2),
    "messages to subagents": Plan([*KILLS, FAULTS["API killed"]], (workload.instances,) * 3),
    "tasks of MCP servers": Plan([*KILLS, FAULTS["API killed"]], (remote_tasks.remote_tasks,) * 3, builds=True),
    "outages of a vendor": Plan(KILLS, (workload.travels,) * 4),
    "variables of subagents": Plan([*KILLS, FAULTS["API killed"]], (workload.variables,) * 3),
    **{name: Plan([], (workload.messages, workload.effects), moments=(moment,)) for name, moment in MOMENTS.items()},
}


@dataclass(frozen=True)
class Size:
    rounds: int  # each round has every kind of work once
    at_once: int
    faults: int  # the least number of faults


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
    recovery: float | None  # the longest time in seconds from the end of a fault to the end of a task submitted then
    violations: Violations


async def prepare(stack: Stack) -> None:
    await stack.define(*AGENTS)
    approve = declared_tool("approve", "summary")
    approves = prompt("fm_approves", {"calls": [call("approve", summary="Fine.")]}, tools=(approve,))
    ends: dict[str, Any] = {"side_b": {"session_stop": {"name": "approve", "message_property": "summary"}}}
    looks = {"text": "fm three.", "calls": [call("list_files", path=".")]}
    a = prompt("fm_a", "fm one.", looks, "fm four.", tools=("list_files",), delay=0.05)
    b = prompt("fm_b", "fm two.", {"calls": [call("approve", summary="Fine.")]}, tools=(approve,))
    await define(stack, "fm_duet", a, b, **ends, max_session_turns=10)
    exposed: dict[str, Any] = {**ends, "expose_as_tool": True, "max_session_turns": 6}
    for name in ("fm_scout", "fm_guard"):
        await define(stack, name, prompt(f"{name}_a", "Looking.", delay=0.2), approves, **exposed)
    key = {"KEY": {"description": "a key", "kind": "secret", "scoped": True}}
    await define(stack, "fm_keyed", prompt("fm_keyed_a", "Looking."), approves, **exposed, variables=key)
    immediate = [{"name": name, "immediate": True} for name in ("fm_scout", "fm_guard")]
    await stack.define(
        {**TESTER, "name": "fm_traveller", "model": "claude-sonnet-4-5", "fallback_models": ["openai/gpt-4o"]},
        agent("fm_heir", subagent_tools=immediate[:1], expose_as_tool=True),
        agent("fm_desk", handoffs=["fm_heir"]),
        agent("fm_lead", subagent_tools=immediate),
        agent("fm_waiting", subagent_tools=[{"name": "fm_scout", "resumable": True}]),
        agent("fm_sending", subagent_tools=[{"name": "fm_scout", "resumable": True, "blocking": False}]),
        agent("fm_giver", subagent_tools=[{"name": "fm_keyed"}]),
    )


async def run(stack: Stack, name: str, seed: int, size: Size, folder: Path, plan: Plan | None = None) -> Row:
    plan, random = plan or ROWS[name], Random(f"{seed}/{name}")
    async with Caller(stack.url) as caller, _others(stack, plan, folder) as others, AsyncExitStack() as entered:
        server = await entered.enter_async_context(remote_tasks.builds(stack)) if plan.builds else None
        faults: list[Fault] = [*plan.faults, *(partial(moment, caller) for moment in plan.moments)]
        nemesis = Nemesis(stack, caller, Random(random.random()), faults)
        done = asyncio.Event()
        sweeping = asyncio.create_task(temporal_faults.sweep_often(stack)) if plan.forgets else None
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(nemesis.rage(done, size.faults))
                readers = group.create_task(_readers(stack, caller, Random(random.random()), done))
                async with asyncio.TaskGroup() as work:
                    for one in (caller, *others):
                        seeded = Random(random.random())
                        work.create_task(workload.run(one, seeded, folder, size.rounds, size.at_once, plan.kinds))
                done.set()
            found = await check(stack, caller, forgets=plan.forgets)
            if server is not None:
                await remote_tasks.check_builds(stack, caller, server, found)
            for other in others:
                found.merge(await check(stack, other))
                await _apart(caller, other, found)
        finally:
            if sweeping:
                sweeping.cancel()
                await asyncio.gather(sweeping, return_exceptions=True)
        for reader in readers.result():
            found.add("gaps", f"reader of {reader.task_id}: {reader.seen}", reader.faults)
        return Row(
            name=name,
            seed=seed,
            tasks=sum(len(one.accepted) for one in (caller, *others)),
            hits=nemesis.hits,
            requests=caller.asked,
            connections=sum(reader.connections for reader in readers.result()),
            recovery=max(nemesis.recoveries, default=None),
            violations=found,
        )


@asynccontextmanager
async def _others(stack: Stack, plan: Plan, folder: Path) -> AsyncIterator[list[Caller]]:
    """The second worker and the callers of other tenants, if the row has them."""
    async with AsyncExitStack() as entered:
        if plan.workers:
            entered.enter_context(second_worker(stack, folder))
        others = []
        if plan.tenants:
            _, key = await keys.create(stack.pool, "other", "bench", list(Right))
            others.append(await entered.enter_async_context(Caller(stack.url, key)))
            assert (await others[0].ask("PUT", "/agents/tester", TESTER)).is_success
        yield others


async def _apart(one: Caller, other: Caller, found: Violations) -> None:
    for caller, of in ((one, other), (other, one)):
        for task in of.accepted:
            seen = await caller.ask("GET", f"/tasks/{task.id}")
            found.add("foreign", task.id, int(seen.status_code != 404))


async def _readers(stack: Stack, caller: Caller, random: Random, done: asyncio.Event) -> list[Reader]:
    """Start a reader for every second task, soon after the task was accepted."""
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

"""Sessions with inline delegates, subagents, two sides or a handoff, whose workflow is deleted, reset or lost with
Temporal's data: no effect is repeated, and each session has one end.

The workflow of their conversation may be lost too: what waits there is delivered once.
"""

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from tests.behaviour.conversations.talk import Gate, Talk, agent, asked, async_task, chain, gather, say, task
from tests.behaviour.graphs.duet import call, declared_tool, define, prompt
from tests.faults.damage import Damage, delete, lines, once, reset, temporal_loses_its_data
from tests.support.stack import Stack, eventually, of_type, steps

LEAD, HELPER, DESK, CLERK, PAIR = (f"lossy-{name}" for name in ("lead", "helper", "desk", "clerk", "pair"))
APPROVE = declared_tool("approve", "summary")
STOP = {"session_stop": {"name": "approve", "message_property": "summary"}}
LONG = 40.0  # seconds that a call takes which is running when the workflow is damaged


@pytest_asyncio.fixture(scope="module")
async def team(stack: Stack) -> Stack:
    await stack.define(
        agent(HELPER, mode="subagent"),
        agent(LEAD, HELPER),
        agent(CLERK, expose_as_tool=True, prompt="You are the clerk."),
        agent(DESK, handoffs=[CLERK]),
    )
    return stack


@dataclass(frozen=True)
class Scene:
    """A conversation with running work, and the effects that must have happened exactly once in the end."""

    talk: Talk
    ledgers: list[Path]
    gate: Gate

    async def check(self) -> None:
        assert [len(await lines(ledger)) for ledger in self.ledgers] == [1] * len(self.ledgers)
        for row in await self.talk.sessions():
            assert (row.status, row.reason) == ("completed", "goal_reached"), row.error
            ended = of_type(await self.talk.stack.events(row.id), "task_completed", "task_failed", "task_cancelled")
            assert len(ended) == 1
        states = await self.talk.stack.pool.fetch(
            "SELECT state FROM tool_calls WHERE session_id = ANY($1)", [row.id for row in await self.talk.sessions()]
        )
        assert "started" not in {row["state"] for row in states}


def _ledgers(folder: Path, count: int) -> list[Path]:
    folder.mkdir(exist_ok=True)
    return [folder / str(number) for number in range(count)]


async def inline(stack: Stack, folder: Path) -> Scene:
    first, running, later, last = ledgers = _ledgers(folder, 4)
    inner = steps([once(first)], [once(running, LONG)], [once(later)])
    talk = await Talk.begin(stack, chain([("delegate", {"agent": HELPER, "prompt": inner})], [once(last)]), LEAD)
    await eventually(lambda: lines(running), what="the delegate's second call runs")
    return Scene(talk, ledgers, Gate())


async def blocking_child(stack: Stack, folder: Path) -> Scene:
    before, inside, later, last = ledgers = _ledgers(folder, 4)
    gate = Gate()
    part = chain([once(inside)], [gate.call], [once(later)], last="Part.")
    talk = await Talk.begin(stack, chain([once(before)], [task(part, HELPER)], [once(last)]), LEAD)
    await stack.seen((await talk.child()).id, "tool_called", tool="wait_for")
    return Scene(talk, ledgers, gate)


async def gathered_children(stack: Stack, folder: Path) -> Scene:
    one, other, last = ledgers = _ledgers(folder, 3)
    gate = Gate()
    parts = [async_task(chain([once(ledger)], [gate.call], last="Part."), HELPER) for ledger in (one, other)]
    talk = await Talk.begin(stack, chain(parts, [gather("$0", "$1", timeout_s=300)], [once(last)]), LEAD)
    for place in range(2):
        await stack.seen((await talk.child(place)).id, "tool_called", tool="wait_for")
    await stack.seen(talk.id, "tool_called", tool="gather")
    return Scene(talk, ledgers, gate)


async def two_sides(stack: Stack, folder: Path) -> Scene:
    first, running, later = ledgers = _ledgers(folder, 3)
    name = f"{PAIR}-{folder.name}".lower().replace("_", "-")[:60]
    writes, reviews, again = ({"calls": [call(tool, **given)]} for tool, given in map(once, ledgers, (0, LONG, 0)))
    a = prompt(f"{name}-a", writes, "Draft.", "Never asked.", tools=("ledger_once",))
    approves = {"calls": [call("approve", summary="Good.")]}
    b = prompt(f"{name}-b", reviews, again, approves, tools=("ledger_once", APPROVE))
    await define(stack, name, a, b, side_b=STOP, max_session_turns=10)
    talk = await Talk.begin(stack, "Write a draft.", name)
    await eventually(lambda: lines(running), what="the second side's call runs")
    return Scene(talk, ledgers, Gate())


async def handed_over(stack: Stack, folder: Path) -> Scene:
    running, later = ledgers = _ledgers(folder, 2)
    talk = await Talk.begin(stack, chain([(CLERK, {})], [once(running, LONG)], [once(later)]), DESK)
    await eventually(lambda: lines(running), what="the call of the agent that took over runs")
    return Scene(talk, ledgers, Gate())


SCENES = [inline, blocking_child, gathered_children, two_sides, handed_over]


async def _rested(talk: Talk, seconds: float = 90.0) -> None:
    """Sweep repeatedly until every session of the conversation has ended."""

    async def look() -> bool:
        running = [row for row in await talk.sessions() if not row.status.terminal]
        for row in running:
            await talk.stack.age(row.id)
        with contextlib.suppress(Exception):
            await talk.stack.sweep()
        return not running

    await eventually(look, seconds=seconds, pause=1.0, what=f"{talk.id} rests")


@pytest.mark.parametrize("damage", [delete, reset])
async def test_nothing_is_repeated(team: Stack, tmp_path: Path, damage: Damage) -> None:
    """The last of these damages the subagent, which reports once."""
    openings = [*SCENES, blocking_child]
    running = await asyncio.gather(
        *(scene(team, tmp_path / f"{damage.__name__}-{place}") for place, scene in enumerate(openings))
    )
    *damaged, child = running
    await asyncio.gather(*(damage(team, one.talk.id) for one in damaged), damage(team, (await child.talk.child()).id))
    for one in running:
        one.gate.open()
    await asyncio.gather(*(_rested(one.talk) for one in running))
    for one in running:
        await one.check()
    assert (await child.talk.results())[1].count("Part.") == 1
    duet, handed = damaged[-2:]
    assert await duet.talk.output() == "Good."
    row = await handed.talk.session(handed.talk.id)
    assert row.current_agent == CLERK
    assert len(of_type(await team.events(row.id), "handed_over")) == 1
    requests = await asked(team, str(handed.ledgers[-1]))
    assert ["the clerk" in str(request["system"]) for request in requests] == [False, True, True, True]


async def test_nothing_is_repeated_after_temporal_lost_all_of_it(team: Stack, tmp_path: Path) -> None:
    running = await asyncio.gather(*(scene(team, tmp_path / scene.__name__) for scene in SCENES))
    waiting = await Talk.done(team, chain([async_task(say("Early."), HELPER)], last="Off."), LEAD)
    await waiting.posted(1)
    async with temporal_loses_its_data(team):
        for one in running:
            one.gate.open()
    for one in running:
        await _rested(one.talk, seconds=180)
        await one.check()
    fired = await waiting.fire()
    assert (await waiting.prompts(fired.id))[0].count("Early.") == 1


@pytest.mark.parametrize("damage", [delete, reset])
async def test_mail_and_turns_of_a_damaged_conversation_arrive_once(team: Stack, damage: Damage) -> None:
    gate = Gate()
    parts = [async_task(say("Early."), HELPER), async_task(gate.then("Late."), HELPER)]
    talk = await Talk.begin(team, chain(parts, [gate.call], last="Off."), LEAD)
    await team.seen(talk.id, "tool_called", tool="wait_for")
    await talk.posted(1)
    queued = await talk.say(say("Second."), if_busy="queue")
    await damage(team, talk.id, "conversation")
    steered = await team.http.post(f"/tasks/{talk.id}/steer", json={"message": "a word for you"})
    assert steered.status_code == 202, steered.text
    gate.open()
    await _rested(talk)
    await talk.posted(2)
    assert [prompt for prompt in await talk.prompts(talk.id) if "a word for you" in prompt]
    assert (await talk.ended(queued)).output == "Second."
    fired = await talk.fire()
    assert (await talk.prompts(fired.id))[0].count("[completed]") == 2
    assert set(Counter(await talk.delivered_sources()).values()) == {1}
    for row in await talk.sessions():
        assert (row.status, row.reason) == ("completed", "goal_reached"), row.error

"""kill -9 of the worker during conversations, and a terminated conversation workflow: nothing is lost or doubled."""

import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import httpx2
import pytest
import pytest_asyncio

from deploy.postgres import API_ROLE
from deploy.stack import variables
from deploy.temporal import CONNECTION
from domain.ids import new_id
from domain.sessions.session import Status
from tests.behaviour.conversations.talk import Gate, Talk, async_delegate, async_task, chain, gather, say, task
from tests.support.launch import as_role, free_port, process
from tests.support.stack import Stack, eventually, of_type


@dataclass
class Survivors:
    spawning: Talk
    firing: Talk
    fires: list[httpx2.Response | BaseException]
    waiting: Talk
    inside: Talk
    waking: Talk


@pytest_asyncio.fixture(scope="module")
async def survivors(team: Stack) -> Survivors:
    """One kill during several conversations, each at another point."""
    gate = Gate()
    firing = await Talk.done(team, chain([async_task(say(f"Part {n}.")) for n in range(4)], last="Off."))
    await firing.posted(4)
    waits = [task(gate.then(f"Answer {n}."), description=f"question {n}") for n in range(2)]
    waiting = await Talk.begin(team, chain(waits))
    steps = chain([("ledger_again", {"path": f"{gate.path}-ledger"})], [gate.call], last="Inline.")
    inside = await Talk.begin(team, chain([("delegate", {"agent": "helper", "prompt": steps})]))
    waking = await Talk.done(team, chain([async_task(gate.then("Wake.")) for _ in range(3)], last="Off."), "waker")
    await team.seen(inside.id, "tool_called", tool="wait_for")
    await waiting.child(1)
    spawning = await Talk.begin(team, chain([async_task(say(f"Part {n}.")) for n in range(5)], last="Off."))
    await team.seen(spawning.id, "tool_called", tool="async_task")
    worker = team.pid("worker")
    gate.open()  # now children end while a spawn and a fire are being processed
    asked = [asyncio.create_task(firing.try_fire(f"Caller {n}.")) for n in range(3)]
    await asyncio.sleep(0.02)
    await team.kill("worker")
    await team.back("worker", worker)
    fires = await asyncio.gather(*asked, return_exceptions=True)
    return Survivors(spawning, firing, fires, waiting, inside, waking)


async def each_once(talk: Talk) -> None:
    await talk.rest()
    children = await talk.children()
    assert sorted(message.source_session_id for message in await talk.mail()) == sorted(row.id for row in children)
    assert all(count == 1 for count in Counter(await talk.delivered_sources()).values())


@pytest.mark.proves("D4", "S0-35")
async def test_a_spawn_is_neither_lost_nor_repeated(team: Stack, survivors: Survivors) -> None:
    talk = survivors.spawning
    await talk.ended(talk.id)
    await talk.posted(5)
    await each_once(talk)
    assert len(await talk.children()) == 5
    assert len(of_type(await team.events(talk.id), "subagent_started")) == 5
    fired = await talk.fire()
    assert (await talk.prompts(fired.id))[0].count("[completed]") == 5


@pytest.mark.proves("D5", "F-05")
async def test_a_fire_happens_once_or_not_at_all(team: Stack, survivors: Survivors) -> None:
    talk = survivors.firing
    await talk.rest()
    # the worker was killed before the conversation decided, so the fire was refused
    if await talk.mail(pending_only=True):
        await talk.fire()
    await each_once(talk)
    received = await talk.delivered_sources()
    assert len(received) == len(set(received)) == 4
    assert len({message.delivered_to for message in await talk.mail()}) == 1


@pytest.mark.proves("D14", "D11")
async def test_each_waiting_call_gets_its_own_result(team: Stack, survivors: Survivors) -> None:
    texts = await survivors.waiting.results()
    assert ["Answer 0." in texts[0], "Answer 1." in texts[1]] == [True, True]
    assert len(await survivors.waiting.children()) == 2


@pytest.mark.proves("S0-05")
@pytest.mark.exactly_once
async def test_inline_delegate_continues_in_the_middle(team: Stack, survivors: Survivors) -> None:
    talk = survivors.inside
    assert await talk.results() == ["Inline."]
    calls = [event["tool"] for event in of_type(await team.events(talk.id), "tool_called")]
    assert sorted(calls) == ["delegate", "ledger_again", "wait_for"]


@pytest.mark.proves("F-01", "F-06")
async def test_a_wake_up_comes_once(team: Stack, survivors: Survivors) -> None:
    talk = survivors.waking

    async def delivered() -> bool:
        mail = await talk.mail()
        return len(mail) == 3 and all(message.delivered_to for message in mail)

    await eventually(delivered, what="all three are delivered")
    await each_once(talk)
    assert len(await talk.delivered_sources()) == 3


@pytest.mark.proves("S0-20")
async def test_a_conversation_ended_from_outside_is_taken_up_again(team: Stack) -> None:
    """The next run loads everything from the rows: live sessions, pending outcomes, sessions to wake, and names."""
    gate = Gate()
    held = await Talk.done(team, chain([async_delegate("helper", gate.then("Held."))], last="Off."))
    woken = await Talk.done(team, chain([async_task(gate.then("Woken."))], last="Off."), "waker")
    waits = await Talk.begin(team, chain([task(gate.then("Waited for."))]))
    child = await waits.child()
    await team.seen(child.id, "tool_called")
    for talk in (held, woken, waits):
        await team.client.get_workflow_handle(f"conversation/{talk.id}").terminate("from outside")
    gate.open()
    await held.posted(1)
    await woken.posted(1)
    await waits.ended(child.id)
    for talk in (woken, waits):
        await team.pool.execute(
            "UPDATE inbox SET created_at = now() - interval '5 minutes' WHERE conversation_id = $1", talk.id
        )
        await team.pool.execute(
            """UPDATE sessions SET ended_at = ended_at - interval '5 minutes',
                                   updated_at = updated_at - interval '1 hour'
                WHERE conversation_id = $1""",
            talk.id,
        )
    await team.sweep()
    assert "Waited for." in (await waits.results())[0]
    assert (await held.fire()).status is Status.COMPLETED
    again = await held.say(chain([async_delegate("helper", say("By name."))], [gather("$0")]))
    assert "By name." in (await held.results(again))[1]
    assert len({row.thread_id for row in await held.children()}) == 1
    await eventually(lambda: _delivered(woken), what="the wake-up")
    for talk in (held, woken, waits):
        await each_once(talk)


async def _delivered(talk: Talk) -> bool:
    return all(message.delivered_to for message in await talk.mail())


@pytest.mark.proves("S0-B22", "D4")
async def test_a_lost_subagent_still_has_an_outcome(team: Stack) -> None:
    once = f"[[script:say words=30]] [[fault:hang after=6]] {new_id()}"
    talk = await Talk.done(team, chain([async_task(once)], last="Off."))
    child = await talk.child()
    await talk.speaking(child.id)
    await team.session(child.id).terminate("from outside")

    async def swept() -> bool:
        await team.age(child.id)
        await team.sweep()
        return bool(await talk.mail())

    await eventually(swept, pause=0.5, what="its outcome")
    [message] = await talk.mail()
    assert (message.source_type, message.source_session_id) == ("subagent_failed", child.id)
    fired = await talk.fire()
    prompt = (await talk.prompts(fired.id))[0]
    assert prompt.startswith(f"Async subagent 'helper' (session: {child.id}) failed:\n")
    again = await talk.say(chain([task("Go on.", task_id=child.id)]))  # the id of the lost subagent can still be used
    assert (await talk.ended(again)).status is Status.COMPLETED


@asynccontextmanager
async def second_api(stack: Stack, log: Path) -> AsyncIterator[str]:
    """Start another API process of the same stack."""
    settings = replace(
        stack.settings,
        database_url=as_role(stack, stack.database_url, API_ROLE),
        temporal_address=stack.temporal_address,
        port=free_port(),
    )
    url = f"http://127.0.0.1:{settings.port}"

    async def answers() -> bool:
        with contextlib.suppress(httpx2.TransportError):
            return (await stack.http.get(f"{url}/healthz")).is_success
        return False

    with process([sys.executable, "-m", "api"], log, variables(settings) | CONNECTION):
        await eventually(answers, what="the second API answers")
        yield url


async def test_messages_that_are_repeated_while_no_worker_answers_are_read_once(team: Stack, tmp_path: Path) -> None:
    """Callers time out and repeat the request with the same key, to the same API process or another one, while their
    first requests are still being processed. Every repeat is answered soon."""
    texts = {new_id(): f"word {new_id()}" for _ in range(4)}

    async def send(url: str, key: str, seconds: float) -> int | None:
        body = {"conversation_id": talk.id, "input": texts[key], "transport": "stream", "if_busy": "steer"}
        try:
            headers = {"Idempotency-Key": key}
            answer = await team.http.post(f"{url}/conversations/run", json=body, headers=headers, timeout=seconds)
            return answer.status_code
        except httpx2.TimeoutException:
            return None

    async def accepted(key: str) -> bool:
        code = await send(team.url, key, 40)
        assert code in (202, 503), "503: the request before it is still handled"
        return code == 202

    async with second_api(team, tmp_path / "api.log") as other:
        talk = await Talk.begin(team, '[[script:count n=4 tool=bash input={"command": "sleep 0.3"}]]')
        await team.seen(talk.id, "tool_called")
        with team.frozen("worker"):
            assert set(await asyncio.gather(*(send(team.url, key, 1) for key in texts))) == {None}
            again = await asyncio.gather(*(send(url, key, 10) for url in (team.url, other) for key in texts))
            assert set(again) in ({503}, {202, 503}), "neither process handles a request that is being handled"
        for key in texts:
            await eventually(partial(accepted, key), what="the repeat is accepted")
        assert {await send(other, key, 40) for key in texts} == {202}
    await talk.rest()
    prompts = [prompt for row in await talk.sessions() for prompt in await talk.prompts(row.id)]
    assert {text: sum(prompt.count(text) for prompt in prompts) for text in texts.values()} == dict.fromkeys(
        texts.values(), 1
    )
    assert {row.status for row in await talk.sessions()} == {Status.COMPLETED}

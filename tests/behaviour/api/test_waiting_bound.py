"""New tasks are refused while too many wait for a worker, of tenants with their share; nothing else is refused."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx2
import pytest_asyncio

from deploy.postgres import API_ROLE
from settings import Settings
from store import agents, database, sessions
from store.database import Pool
from store.migrate import migrate
from tests.behaviour.api.conftest import end, key_for, problem, run, serving, submitted
from tests.behaviour.api.test_unstarted import HANGS, accepted
from tests.behaviour.conversations.talk import Talk, say
from tests.support.launch import as_role, empty_database
from tests.support.stack import Stack

SPEC = {"agent": "assistant", "input": "x"}


@pytest_asyncio.fixture
async def empty(stack: Stack, pool: Pool) -> AsyncIterator[tuple[str, Pool]]:
    """A separate database, in which nothing waits; no worker looks at it."""
    shipped = await agents.get_current(pool, "default", "assistant")
    assert shipped is not None
    async with empty_database(stack.database_url) as url:
        await migrate(url)
        own = await database.connect(url)
        await agents.put(own, agents.SHIPPED, shipped[1])
        yield as_role(stack, url, API_ROLE), own
        own.terminate()


@asynccontextmanager
async def bounded(settings: Settings, url: str, most: int) -> AsyncIterator[httpx2.AsyncClient]:
    own = replace(settings, database_url=url, waiting_tasks=most)
    async with serving(own) as address, httpx2.AsyncClient(base_url=address, timeout=60) as client:
        yield client


async def test_tasks_are_refused_while_too_many_wait(settings: Settings, empty: tuple[str, Pool]) -> None:
    """500 tasks of 60 clients at once, of several tenants, while no worker begins any of them."""
    url, pool = empty
    senders = [await key_for(pool, f"crowd-{number}") for number in range(5)]
    async with bounded(settings, url, 20) as client:

        async def send(number: int) -> list[httpx2.Response]:
            headers = senders[number % len(senders)]
            return [await client.post("/tasks", json=SPEC, headers=headers) for _ in range(500 // 60 + 1)]

        answers = [one for sent in await asyncio.gather(*map(send, range(60))) for one in sent]
        accepted = [answer.json()["task_id"] for answer in answers if answer.status_code == 202]
        assert 20 <= len(accepted) < 20 + 60  # those that were being written while the rows were counted come on top
        refused = next(answer for answer in answers if answer.status_code != 202)
        problem(refused, 503, "overloaded")
        assert int(refused.headers["retry-after"]) > 0
        assert (await sessions.count_waiting(pool, "")).total == len(accepted)  # a refusal changes nothing
        await pool.execute("UPDATE sessions SET status = 'working'")  # as when a worker begins them
        assert await submitted(client, senders[0])


async def test_tenant_over_its_share_does_not_block_other_tenants(settings: Settings, empty: tuple[str, Pool]) -> None:
    url, pool = empty
    greedy, modest = await key_for(pool, "greedy"), await key_for(pool, "modest")
    async with bounded(settings, url, 10) as client:
        for _ in range(10):
            await submitted(client, greedy)
        problem(await client.post("/tasks", json=SPEC, headers=greedy), 503, "overloaded")
        for _ in range(5):  # two tenants wait, so each has half
            await submitted(client, modest)
        problem(await client.post("/tasks", json=SPEC, headers=modest), 503, "overloaded")
        assert await submitted(client, await key_for(pool, "third"))


async def test_repetition_gets_its_first_response_and_only_new_tasks_count(
    settings: Settings, empty: tuple[str, Pool]
) -> None:
    url, pool = empty
    async with bounded(settings, url, 4) as client:
        first, parent = await submitted(client), await submitted(client)
        await end(pool, first)
        await end(pool, parent, head="x")
        await pool.execute("UPDATE sessions SET committed = true")
        further = {"conversation_id": first, "input": "x", "transport": "stream"}
        requests = [
            ("/tasks", SPEC),
            ("/conversations/run", {**SPEC, "transport": "stream"}),
            ("/conversations/run", further),
            ("/conversations/run", {"fork_from": parent, "input": "x", "transport": "stream"}),
        ]

        async def send() -> list[tuple[int, str]]:
            answers = [
                await client.post(path, json=body, headers={"Idempotency-Key": str(place)})
                for place, (path, body) in enumerate(requests)
            ]
            return [(answer.status_code, answer.text) for answer in answers]

        responses = await send()
        assert [status for status, _ in responses] == [202] * 4, responses
        problem(await client.post("/tasks", json=SPEC), 503, "overloaded")
        assert await send() == responses
        await pool.execute("UPDATE sessions SET status = 'working' WHERE status = 'submitted'")
        assert await send() == responses
        for _ in range(4):
            problem(await client.post("/conversations/run", json=further), 409, "conversation-busy")
        for _ in range(4):
            await run(client)


@asynccontextmanager
async def overloaded(stack: Stack) -> AsyncIterator[httpx2.AsyncClient]:
    """Another API process of the stack, at whose bound the tasks are that wait."""
    own = replace(stack.settings, database_url=as_role(stack, stack.database_url, API_ROLE), waiting_tasks=1)
    waits = await accepted(stack, say())
    # no worker looks for tasks of the future
    await stack.pool.execute("UPDATE sessions SET updated_at = now() + interval '1 hour' WHERE id = $1", waits)
    async with serving(own, stack.temporal_address) as url, httpx2.AsyncClient(base_url=url, timeout=60) as client:
        problem(await client.post("/tasks", json={"agent": "tester", "input": "x"}), 503, "overloaded")
        yield client
    await stack.cancel(waits)
    await stack.wait(waits)


async def test_running_session_takes_messages_while_too_many_tasks_wait(stack: Stack) -> None:
    talk = await Talk.begin(stack, HANGS, "tester")
    await talk.speaking(talk.id)
    body = {"conversation_id": talk.id, "input": "Stop that.", "transport": "stream"}
    async with overloaded(stack) as client:
        problem(await client.post("/conversations/run", json=body), 409, "conversation-busy")
        answer = await client.post("/conversations/run", json=body | {"if_busy": "steer"})
        assert (answer.status_code, answer.json().get("steered")) == (202, True), answer.text
    await stack.cancel(talk.id)

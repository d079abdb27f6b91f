"""Which commands have a network: the agent's definition and the operator's setting must both allow it, and a task can
only remove it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.launch import TESTER
from tests.support.stack import Stack, calls

PAGE = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nREACHED"


class Listed:
    """The only private address that the tests' platform lists in ERRAND_ALLOW_PRIVATE_HOSTS."""

    def __init__(self, address: str) -> None:
        self.port = int(address.partition(":")[2])
        self.requests = 0

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.requests += 1
        writer.write(PAGE)
        writer.close()

    def calls(self) -> str:
        return calls(("bash", {"command": f"curl -sS --max-time 5 --noproxy '' http://127.0.0.1:{self.port}/"}))


@pytest.fixture
async def listed(stack: Stack) -> AsyncIterator[Listed]:
    found = Listed(stack.settings.allow_private_hosts[0])
    server = await asyncio.start_server(found.accept, "127.0.0.1", found.port)
    yield found
    server.close()


async def define(stack: Stack, name: str, **changes: Any) -> None:
    answer = await stack.http.put(f"/agents/{name}", json=TESTER | {"name": name} | changes)
    assert answer.is_success, answer.text


async def shown(stack: Stack, task_id: str) -> str:
    """Return the results of its calls that the model was shown."""
    return str((await stack.asked(task_id))[-1]["body"]["messages"][-1])


@pytest.mark.parametrize("mode", [None, "networked"])
async def test_agent_with_a_network_reaches_a_listed_host(stack: Stack, listed: Listed, mode: str | None) -> None:
    await define(stack, "networked", network=True)
    record = await stack.run(listed.calls(), agent="networked", config={"sandbox": mode} if mode else {})
    assert "REACHED" in await shown(stack, record["task_id"])
    assert listed.requests == 1


async def test_task_cuts_the_network_of_an_agent_that_has_one(stack: Stack, listed: Listed) -> None:
    await define(stack, "networked", network=True)
    criteria = [{"kind": "command", "run": f"! curl -sS --noproxy '' http://127.0.0.1:{listed.port}/"}]
    record = await stack.run(
        listed.calls(), agent="networked", config={"sandbox": "isolated"}, acceptance_criteria=criteria
    )
    assert record["reason"] == "goal_reached"
    assert "REACHED" not in str(await stack.asked(record["task_id"]))
    assert listed.requests == 0


@pytest.mark.parametrize(
    ("spec", "reached"),
    [
        ({}, True),
        ({"config": {"sandbox": "isolated"}}, False),
        ({"boundary": {"tools": ["task", "bash"], "hosts": ["packages.example"]}}, False),
    ],
    ids=["nothing", "sandbox", "hosts"],
)
async def test_task_cuts_the_network_of_its_subagents(
    stack: Stack, listed: Listed, spec: dict[str, Any], reached: bool
) -> None:
    """The parent has neither tools nor a network; the subagent's definition has both."""
    await define(stack, "networked", network=True)
    await define(stack, "networks-lead", tools=[], subagents=["networked"])
    given = {"agent": "networked", "prompt": listed.calls(), "description": "fetch it"}
    record = await stack.run(calls(("task", given)), agent="networks-lead", **spec)
    assert record["reason"] == "goal_reached"
    assert listed.requests == reached


async def test_task_cannot_give_a_network(stack: Stack, listed: Listed) -> None:
    body = {"agent": "tester", "input": listed.calls(), "config": {"sandbox": "networked"}}
    answer = await stack.http.post("/tasks", json=body)
    assert answer.status_code == 422
    [found] = answer.json()["errors"]
    assert (found["pointer"], found["message"]) == ("/config/sandbox", "the agent tester has no network")
    assert listed.requests == 0


@pytest.mark.parametrize(
    ("definition", "spec"),
    [
        ({"network_hosts": ["*.packages.example"]}, {}),
        ({}, {"boundary": {"tools": ["bash"], "hosts": ["packages.example"]}}),
        ({"permissions": [{"permission": "fetch_url", "action": "deny"}]}, {}),
    ],
    ids=["agent", "boundary", "rule"],
)
async def test_hosts_of_agent_and_task_bind_commands(
    stack: Stack, listed: Listed, definition: dict[str, Any], spec: dict[str, Any]
) -> None:
    await define(stack, "bound", network=True, **definition)
    record = await stack.run(listed.calls(), agent="bound", **spec)
    assert "127.0.0.1 is not among the hosts that this agent and this task may reach" in await shown(
        stack, record["task_id"]
    )
    assert listed.requests == 0


async def test_running_platform_is_out_of_reach_of_a_networked_command(stack: Stack) -> None:
    """The API, Temporal and PostgreSQL: otherwise a session could approve its own calls."""
    await define(stack, "networked", network=True)
    addresses = [stack.url.partition("//")[2], stack.temporal_address]
    addresses.append(stack.database_url.rpartition("@")[2].partition("/")[0])
    ways = [
        f"curl -sS --max-time 5 --noproxy '{direct}' http://{address}/ || echo FAILED"
        for address in addresses
        for direct in ("", "*")
    ]
    ways.append(f"curl -sS --max-time 5 --noproxy '' -p http://{addresses[0]}/healthz || echo FAILED")
    record = await stack.run(calls(("bash", {"command": "; ".join(ways)})), agent="networked")
    text = await shown(stack, record["task_id"])
    assert text.count("FAILED") + text.count("Refused by the network of the sandbox") == len(ways), text
    assert "127.0.0.1 is refused" in text

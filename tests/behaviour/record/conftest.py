"""The agents of these tests, and a helper that waits for a sweep."""

from typing import Any

import pytest_asyncio

from tests.support.launch import TESTER
from tests.support.stack import Stack, eventually

SCHEMA = {"type": "object", "properties": {"port": {"type": "integer"}}, "required": ["port"]}


def agent(name: str, **more: Any) -> dict[str, Any]:
    tools = [*TESTER["tools"], "fetch_url"]
    return {"name": name, "description": f"The {name}.", "prompt": "You are tested.", "tools": tools, **more}


AGENTS = [
    agent("typed", output_schema=SCHEMA),
    agent("record-helper", mode="subagent"),
    agent("record-lead", subagents=["record-helper"]),
    agent("denied", permissions=[{"permission": "bash", "action": "deny"}]),
]


@pytest_asyncio.fixture(scope="session")
async def recorded(stack: Stack) -> Stack:
    for definition in AGENTS:
        said = await stack.http.put(f"/agents/{definition['name']}", json=definition)
        assert said.is_success, said.text
    return stack


async def swept(stack: Stack, task_id: str) -> dict[str, Any]:
    """Return the task's record, once its content was removed."""

    async def look() -> dict[str, Any] | None:
        await stack.sweep()
        record = await stack.record(task_id)
        return record if record["content_removed_at"] else None

    return await eventually(look, pause=0.3, what=f"the content of {task_id} is removed")

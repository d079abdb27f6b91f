"""Helpers of these tests: open requests and answers to them."""

from typing import Any

import httpx2

from store import keys
from store.keys import Right
from tests.support.launch import TESTER
from tests.support.stack import Stack, eventually

TOOLS = [*TESTER["tools"], "fetch_url", "edit_file"]


def agent(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": f"The {name}.", "prompt": "You are tested.", "tools": TOOLS, **more}


AGENTS = [
    agent("asker", may_ask=True),
    agent("mute-helper", mode="subagent"),
    agent("asking-helper", mode="subagent", may_ask=True),
    agent(
        "asking-lead",
        may_ask=True,
        subagents=["mute-helper", {"agent": "asking-helper", "may_ask": True}],
        permissions=[{"permission": "bash", "pattern": "danger*", "action": "ask"}],
    ),
    agent("bare", may_ask=True, tools=["list_files"], subagents=["mute-helper"]),
    agent("conductor", tools=[], subagents=["mute-helper"], permissions=[{"permission": "explode", "action": "deny"}]),
    agent("gated", permissions=[{"permission": "bash", "action": "ask"}]),
    agent(
        "careful",
        may_ask=True,
        permissions=[
            {"permission": "bash", "action": "deny"},
            {"permission": "bash", "pattern": "echo *", "action": "allow"},
            {"permission": "bash", "pattern": "touch *", "action": "ask"},
        ],
    ),
]


def ask(question: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "ask_user", {"question": question, **more}


def plan(*titles: str) -> tuple[str, dict[str, Any]]:
    return "update_plan", {"steps": [{"title": title} for title in titles]}


def bash(command: str) -> tuple[str, dict[str, Any]]:
    return "bash", {"command": command}


async def waiting(stack: Stack, task_id: str, count: int = 1) -> list[dict[str, Any]]:
    """Return the open requests of a task, oldest first, once there are this many."""

    async def look() -> list[dict[str, Any]] | None:
        listed = (await stack.http.get(f"/tasks/{task_id}/input-requests")).json()["items"]
        found = [one for one in listed if one["status"] == "open"]
        return sorted(found, key=lambda one: str(one["question"])) if len(found) == count else None

    return await eventually(look, what=f"{count} open requests of {task_id}")


async def answer(stack: Stack, task_id: str, request_id: str, value: Any, **headers: str) -> httpx2.Response:
    body = {"response_to": request_id, "input": value}
    return await stack.http.post(f"/tasks/{task_id}/input", json=body, headers=headers)


async def answered(stack: Stack, task_id: str, value: Any) -> dict[str, Any]:
    """Answer the only open request and wait for the end of the task."""
    [request] = await waiting(stack, task_id)
    said = await answer(stack, task_id, request["id"], value)
    assert said.status_code == 202, said.text
    return await stack.wait(task_id)


async def output(stack: Stack, task_id: str) -> str:
    return str((await stack.result(task_id))["output"])


async def bearer(stack: Stack, *rights: Right) -> dict[str, str]:
    _, secret = await keys.create(stack.pool, "default", "-".join(rights), list(rights))
    return {"Authorization": f"Bearer {secret}"}

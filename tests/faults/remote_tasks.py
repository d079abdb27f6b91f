"""Calls to an MCP server that answers with tasks: none is made twice, and each that is recorded as done happened."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

from domain.ids import new_id
from tests.faults.caller import Caller
from tests.faults.checker import Violations
from tests.support.mcp_server import Context, TaskParams, TaskServer, serving
from tests.support.stack import Stack, steps

POLLS = 4  # a task is done after so many polls
AGENT = "fm_remote"


class SlowBuilds(TaskServer):
    """A server whose builds end after a few polls. No fault stops it, so its list shows what really happened."""

    async def _get(self, context: Context, params: TaskParams) -> dict[str, Any]:
        if self.polls.count(params.task_id) >= POLLS:
            self.done.add(params.task_id)
        return await super()._get(context, params)


@asynccontextmanager
async def builds(stack: Stack) -> AsyncIterator[SlowBuilds]:
    port = int(stack.settings.allow_private_hosts[0].partition(":")[2])
    async with serving(SlowBuilds(port)) as server:
        body = {"name": AGENT, "description": "Builds.", "prompt": "Build."}
        answer = await stack.http.put(f"/agents/{AGENT}", json={**body, "mcp_servers": {"builds": {"url": server.url}}})
        assert answer.is_success, answer.text
        yield server


async def remote_tasks(caller: Caller, random: Random, folder: Path) -> None:
    targets = [new_id() for _ in range(2)]
    task = await caller.submit(
        "remote tasks", steps([("mcp__builds__build", {"target": one}) for one in targets]), agent=AGENT
    )
    task.targets = targets


async def check_builds(stack: Stack, caller: Caller, server: SlowBuilds, found: Violations) -> None:
    made = Counter(given["target"] for _, given in server.calls)
    for task in caller.accepted:
        for index, target in enumerate(task.targets):
            row = await stack.pool.fetchrow(
                "SELECT state, remote FROM tool_calls WHERE session_id = $1 AND call_index = $2", task.id, index
            )
            state, held = (row["state"], row["remote"]) if row else (None, None)
            wrong = made[target] > 1 or (state == "ok" and made[target] != 1)
            # the outcome of a call whose handle was stored must be known
            wrong |= state == "unknown" and held is not None
            found.add("effects", f"{task.id}: {target} is {state}, built {made[target]} times", int(wrong))

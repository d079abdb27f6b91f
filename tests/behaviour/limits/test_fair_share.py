"""A tenant that runs many long commands does not delay another one."""

import asyncio
from pathlib import Path
from typing import Any

from tests.behaviour.api.conftest import key_for
from tests.support.launch import TESTER
from tests.support.own_worker import platform
from tests.support.stack import Stack, calls, eventually

SLEEPERS, SLOTS = 70, {"max_model_calls": 6, "max_tool_calls": 6}


async def submit_command(stack: Stack, headers: dict[str, str], command: str) -> str:
    spec = {"agent": "tester", "input": calls(("bash", {"command": command, "timeout_s": 600}))}
    answer = await stack.http.post("/tasks", json=spec, headers=headers)
    assert answer.status_code == 202, answer.text
    task_id: str = answer.json()["task_id"]
    return task_id


async def test_sleeping_commands_of_one_tenant_leave_room_for_another(stack: Stack, tmp_path: Path) -> None:
    """More commands than the worker has slots, of one key, sleep for much longer than anybody waits."""
    async with platform(stack, tmp_path, {}, **SLOTS) as own:
        flood, other = await key_for(own.pool, "flood"), await key_for(own.pool, "other")
        for headers in (flood, other):
            assert (await own.http.put("/agents/tester", json=TESTER, headers=headers)).is_success
        for _ in range(SLEEPERS // 10):  # not all at once: a busy machine would refuse some
            await asyncio.gather(*(submit_command(own, flood, "sleep 500") for _ in range(10)))

        async def settled() -> bool:  # each of them waits for its command, or all slots are taken
            row = await own.pool.fetchrow(
                "SELECT (SELECT count(*) FROM messages WHERE tenant = 'flood' AND kind = 'assistant'),"
                " (SELECT count(*) FROM tool_calls WHERE tenant = 'flood')"
            )
            assert row is not None
            return bool(row[0] == SLEEPERS or row[1] == sum(SLOTS.values()))

        await eventually(settled, seconds=180, what="the flood sleeps")
        task_id = await submit_command(own, other, "echo hello")

        async def ended() -> dict[str, Any] | None:
            record: dict[str, Any] = (await own.http.get(f"/tasks/{task_id}", headers=other)).json()
            return record if record["status"] == "completed" else None

        await eventually(ended, what="the command of the other tenant")
        running = await own.pool.fetchval("SELECT count(*) FROM tool_calls WHERE tenant = 'flood'")
        assert running == SLOTS["max_tool_calls"] // 2  # and none that was put back was claimed

"""The tool loop of openai-agents against /v1/responses."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

from tests.behaviour.faces import tool_loop
from tests.behaviour.faces.test_responses import bodies, look_up
from tests.support.stack import Stack, of_type, steps

FORMS = ("history", "stream")


async def test_tool_loop_runs_through_kills_of_api_and_worker(stack: Stack, own_key: str, tmp_path: Path) -> None:
    """Its calls are answered once, in one task, whether the client sends its history or names the previous response.
    The task that called the handoff ends, and the other agent's task is a fork that knows the conversation, with
    instructions of its own."""
    orders = [[look_up(1), look_up(2)], [("bash", {"command": "echo own"}), look_up(3)]]
    script = steps(*orders, [("transfer_to_expert", {})])
    env = {"PATH": os.environ["PATH"], "OPENAI_BASE_URL": f"{stack.url}/v1", "OPENAI_API_KEY": own_key}
    expert = '[[script:say text="The expert answers."]]'
    go = tmp_path / "go"
    loops: list[asyncio.subprocess.Process] = []
    try:
        for form in FORMS:
            # -P and another directory, because the repository's own `agents` would be imported otherwise
            command = [sys.executable, "-P", tool_loop.__file__, f"loop of {form} {script}", form, str(go), expert]
            loops.append(await asyncio.create_subprocess_exec(*command, stdout=PIPE, cwd=tmp_path, env=env))
        for loop in loops:
            assert loop.stdout
            called = [(await asyncio.wait_for(loop.stdout.readline(), 60)).decode().strip() for _ in range(2)]
            assert sorted(called) == ["look_up 1", "look_up 2"]
        await stack.kill("api")
        await stack.kill("worker")
        go.touch()
        rests = [(await asyncio.wait_for(loop.communicate(), 90))[0].decode() for loop in loops]
    finally:
        for loop in loops:
            if loop.returncode is None:
                loop.kill()
    for form, loop, rest in zip(FORMS, loops, rests, strict=True):
        assert loop.returncode == 0 and rest.splitlines() == ["look_up 3", "final expert: The expert answers."]
        first = (await stack.http.get("/tasks", params={"text": f"loop of {form}"})).json()["items"][-1]
        assert (await stack.wait(first["task_id"]))["reason"] == "caller_cancel"
        called = [one["tool"] for one in of_type(await stack.events(first["task_id"]), "tool_called")]
        assert (called.count("look_up"), called.count("bash")) == (3, 1)
        sent = [one for one in await bodies(stack, f"loop of {form}") if "The expert answers." in str(one["system"])]
        texts = str(sent[-1]["messages"])
        assert all(f"order {order} is on its way" in texts for order in (1, 2, 3)), texts
        assert "(Result of transfer_to_expert:" in texts
        assert "Answer questions about orders." not in str(sent[-1]["system"])

"""The tool loop of openai-agents against /v1/responses."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.behaviour.faces import tool_loop
from tests.behaviour.faces.test_responses import bodies, look_up
from tests.support.stack import Stack, steps

FORMS = ("history", "stream")


async def test_tool_loop_runs_through_kills_of_api_and_worker(stack: Stack, own_key: str, tmp_path: Path) -> None:
    """Its calls are answered once, in one task, whether the client sends its history or names the previous response."""
    script = steps([look_up(1), look_up(2)], [("bash", {"command": "echo own"}), look_up(3)])
    env = {"PATH": os.environ["PATH"], "OPENAI_BASE_URL": f"{stack.url}/v1", "OPENAI_API_KEY": own_key}
    go = tmp_path / "go"
    loops: list[asyncio.subprocess.Process] = []
    try:
        for form in FORMS:
            # -P and another directory, because the repository's own `agents` would be imported otherwise
            command = [sys.executable, "-P", tool_loop.__file__, f"loop of {form} {script}", form, str(go)]
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
        third, _, final = rest.partition("\n")
        assert loop.returncode == 0 and third == "look_up 3" and final.startswith("final clerk: ")
        assert all(f"order {order} is on its way" in final for order in (1, 2, 3)), final
        [task] = (await stack.http.get("/tasks", params={"text": f"loop of {form}"})).json()["items"]
        assert task["status"] == "completed"


@pytest.mark.parametrize("form", FORMS)
async def test_handoff_of_the_client_continues_in_a_fork_that_knows_the_conversation(
    stack: Stack, own_key: str, tmp_path: Path, form: str
) -> None:
    """The task that called the handoff ends, and the other agent's task has its history and its own instructions."""
    script = steps([look_up(1)], [("transfer_to_expert", {})])
    env = {"PATH": os.environ["PATH"], "OPENAI_BASE_URL": f"{stack.url}/v1", "OPENAI_API_KEY": own_key}
    go = tmp_path / "go"
    go.touch()
    expert = '[[script:say text="The expert answers."]]'
    command = [sys.executable, "-P", tool_loop.__file__, f"handoff of {form} {script}", form, str(go), expert]
    loop = await asyncio.create_subprocess_exec(*command, stdout=PIPE, cwd=tmp_path, env=env)
    written = (await asyncio.wait_for(loop.communicate(), 90))[0].decode().splitlines()
    assert loop.returncode == 0
    assert (written[0], written[1]) == ("look_up 1", "final expert: The expert answers.")
    first = (await stack.http.get("/tasks", params={"text": f"handoff of {form}"})).json()["items"][-1]
    await stack.wait(first["task_id"])
    assert (await stack.record(first["task_id"]))["reason"] == "caller_cancel"
    [sent] = [one for one in await bodies(stack, f"handoff of {form}") if "The expert answers." in str(one["system"])]
    texts = str(sent["messages"])
    assert "order 1 is on its way" in texts and "(Result of transfer_to_expert:" in texts
    assert "Answer questions about orders." not in str(sent["system"])

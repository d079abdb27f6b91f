"""The tool loop of openai-agents against /v1/responses."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.behaviour.faces import tool_loop
from tests.behaviour.faces.test_responses import look_up
from tests.support.stack import Stack, steps


@pytest.mark.parametrize("form", ["history", "stream"])
async def test_tool_loop_runs_through_kills_of_api_and_worker(
    stack: Stack, own_key: str, tmp_path: Path, form: str
) -> None:
    """Its calls are answered once, in one task, whether the client sends its history or names the previous response."""
    script = steps([look_up(1), look_up(2)], [("bash", {"command": "echo own"}), look_up(3)])
    env = {"PATH": os.environ["PATH"], "OPENAI_BASE_URL": f"{stack.url}/v1", "OPENAI_API_KEY": own_key}
    # -P and another directory, because the repository's own `agents` would be imported otherwise
    go = tmp_path / "go"
    command = [sys.executable, "-P", tool_loop.__file__, f"loop of {form} {script}", form, str(go)]
    loop = await asyncio.create_subprocess_exec(*command, stdout=PIPE, cwd=tmp_path, env=env)
    assert loop.stdout
    try:
        called = [(await asyncio.wait_for(loop.stdout.readline(), 60)).decode().strip() for _ in range(2)]
        await stack.kill("api")
        await stack.kill("worker")
        go.touch()
        rest = (await asyncio.wait_for(loop.communicate(), 90))[0].decode()
    finally:
        if loop.returncode is None:
            loop.kill()
    assert loop.returncode == 0 and sorted(called) == ["look_up 1", "look_up 2"]
    third, _, final = rest.partition("\n")
    assert third == "look_up 3" and final.startswith("final ")
    assert all(f"order {order} is on its way" in final for order in (1, 2, 3)), final
    [task] = (await stack.http.get("/tasks", params={"text": f"loop of {form}"})).json()["items"]
    assert task["status"] == "completed"

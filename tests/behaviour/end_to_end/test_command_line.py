"""The command line on the real stack: detach, reattach from another process, get the result."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE

import pytest

from settings import ROOT
from tests.support.command import cli
from tests.support.stack import Stack


async def output(stack: Stack, *args: str) -> tuple[int, str]:
    said = await cli(stack, *args)
    return said.exit_code, said.output


@pytest.mark.proves("F-08", "S1-03", "S1-08")
async def test_caller_disconnects_and_another_process_reattaches(stack: Stack) -> None:
    script = "[[script:say words=60 delay=0.1]]"
    watching = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli", "run", "tester", script),
        cwd=ROOT,
        env=os.environ | stack.env,
        stdout=PIPE,
        stderr=PIPE,
    )
    assert watching.stdout is not None
    first = await watching.stdout.readline()
    assert first
    watching.send_signal(signal.SIGINT)
    out, err = await watching.communicate()
    assert watching.returncode == 130
    printed = (first + out + err).decode()
    assert "attach" in printed
    code, listed = await output(stack, "tasks", "--limit", "1", "--json")
    task_id = json.loads(listed)["items"][0]["task_id"]
    assert code == 0 and task_id in printed  # it prints the command with which to reattach

    code, shown = await output(stack, "attach", task_id, "--json")
    events = [json.loads(line) for line in shown.splitlines()]
    assert code == 0 and events[0]["seq"] == 1 and events[-1]["type"] == "task_completed"
    code, result = await output(stack, "result", task_id)
    assert code == 0 and "word1 word2" in result


@pytest.mark.proves("F-08")
async def test_script_waits_for_the_end_of_a_task(stack: Stack) -> None:
    code, handle = await output(stack, "run", "tester", "wait for it [[fault:auth times=always]]", "--detach", "--json")
    task_id = json.loads(handle)["task_id"]
    assert code == 0
    code, _ = await output(stack, "result", task_id, "--wait")
    assert code == 1  # the exit code of a failed task

"""The commands on the real stack: chat through a pipe, firing an outcome, forking, steering an answer."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from settings import ROOT
from tests.support.command import cli
from tests.support.stack import Stack, calls


async def errand(stack: Stack, *args: str, code: int = 0) -> str:
    said = await cli(stack, *args)
    assert said.exit_code == code, said.output[-2_000:]
    return said.stdout


async def chat(stack: Stack, *args: str, typed: str, code: int = 0) -> str:
    """Return the stdout of a chat, which runs in another process because it takes Ctrl-C."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli", "chat", *args),
        cwd=ROOT,
        env={**os.environ, **stack.env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        stdout, stderr = await asyncio.wait_for(process.communicate(typed.encode()), 90)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == code, stdout.decode()[-2_000:] + stderr.decode()[-2_000:]
    return stdout.decode()


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.proves("S0-12", "S0-31", "S0-36")
async def test_piped_chat_starts_a_subagent_and_fires_its_outcome(stack: Stack) -> None:
    typed = "Ask the researcher to look for lighthouses\n/mailbox\n/wait\n/mailbox\n/fire And now?\n/mailbox\n"
    text = await chat(stack, typed=typed)
    assert "Task dispatched to 'researcher' (session: " in text
    assert '  | researcher: completed. On "look for lighthouses" the sources say:' in text
    mail, fired = text.index("waiting"), text.index("This has come back:")
    assert text.index("| researcher: completed") < mail < fired
    assert "Async subagent 'researcher' (session: " in text[fired:] and 'You added: "And now?"' in text[fired:]
    assert text.count("waiting") == 1  # only the second /mailbox shows an outcome


async def test_script_can_continue_with_the_json_of_each_command(stack: Stack) -> None:
    events = objects(await chat(stack, "--json", typed="Ask the researcher to look for lighthouses\n"))
    assert {event["type"] for event in events} >= {"message_delta", "message", "tool_called", "task_completed"}
    numbers = [event["conv_seq"] for event in events]
    assert numbers == list(range(1, len(numbers) + 1))
    conversation = events[0]["session_id"]
    await chat(stack, "--conversation", conversation, typed="/wait\n")
    for options in ([], ["--live"]):
        [message] = objects(await errand(stack, "mailbox", conversation, "--json", *options))[0]["items"]
        assert message["subagent_name"] == "researcher" and message["delivered_to"] is None
    [fired] = objects(await errand(stack, "fire", conversation, "--detach", "--json"))
    assert "This has come back" in await errand(stack, "result", fired["session_id"], "--wait")
    [message] = objects(await errand(stack, "mailbox", conversation, "--all", "--json"))[0]["items"]
    assert message["delivered_to"] == fired["session_id"]
    await errand(stack, "fire", conversation, code=5)
    [forked] = objects(await errand(stack, "fork", fired["session_id"], "--json"))
    assert "My last answer" not in await chat(stack, "--conversation", forked["conversation_id"], typed="hi\n")
    [found] = objects(await errand(stack, "tree", conversation, "--json"))
    assert [len(one["children"]) for one in found["sessions"]] == [1, 0]
    shown = (await errand(stack, "tree", conversation)).splitlines()
    assert [line.split("  ")[0] for line in shown[1:4]] == ["├─ assistant", "│", "└─ assistant"]
    await errand(stack, "terminate", conversation, "--yes")
    await chat(stack, "--conversation", conversation, typed="hi\n", code=5)


async def test_files_go_with_the_first_message_and_limits_with_each(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "a.txt").write_text("a")
    (tmp_path / "b.txt").write_text("b")
    options = ["--agent", "tester", "--dir", str(tmp_path / "tree"), "--file", str(tmp_path / "b.txt"), "--ttl", "1h"]
    typed = f"{calls(('list_files', {}))}\n[[script:say text=Later.]]\n"
    text = await chat(stack, *options, "--max-cost", "2", "--permission", "bash=deny", typed=typed)
    assert "a.txt" in text and "b.txt" in text and text.index("b.txt") < text.index("Later.")
    [conversation] = (await stack.http.get("/conversations", params={"limit": 1})).json()["items"]
    turns = (await stack.http.get(f"/conversations/{conversation['conversation_id']}/turns")).json()["items"]
    for turn in turns:
        limits = (await stack.record(turn["session_id"]))["limits"]
        assert (limits["ttl_ms"], limits["cost_usd"]) == (3_600_000, 2)
    assert len(turns) == 2


async def test_answer_is_steered_and_interrupted_and_the_next_one_still_comes(stack: Stack) -> None:
    typed = "[[script:say words=500]] [[fault:slow]]\n/interrupt\nAnd what now?\n"
    text = await chat(stack, "--agent", "tester", typed=typed)
    _, second = text.split("cancelled (interrupted)")
    assert "And what now?" in second  # the answer quotes it
    slow = await stack.submit("[[script:count n=30]] [[fault:slow]]")
    await stack.seen(slow, "tool_called")
    await errand(stack, "steer", slow, "mind the gap")
    await errand(stack, "cancel", slow, "--tree", "--reason", "enough")
    assert (await stack.wait(slow))["status"] == "cancelled"
    await errand(stack, "steer", slow, "too late", code=4)

"""`errand replay` and `errand export`: same decisions, the first event that differs, and a bundle without a server."""

import asyncio
import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from errand.models import ChainedEntry

from domain.audit import link
from settings import ROOT
from tests.support.stack import Stack
from workflows.client import WorkflowClient
from workflows.replay import recent, with_conversation


async def errand(*arguments: str, env: dict[str, str]) -> tuple[int, str, str]:
    def run() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "cli", *arguments]
        return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)

    done = await asyncio.to_thread(run)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.proves("S1-80")
async def test_session_replays_from_the_server_and_from_its_bundle(stack: Stack, tmp_path: Path) -> None:
    task_id = (await stack.run("[[script:count n=3 tool=bash]]"))["task_id"]
    code, out, _ = await errand("replay", task_id, "--json", env=stack.env)
    verdict = json.loads(out)["verdicts"][0]
    assert (code, verdict["same"], verdict["workflow_id"]) == (0, True, f"session/{task_id}")

    bundle = tmp_path / "case.json"
    code, _, err = await errand("export", task_id, "-o", str(bundle), env=stack.env)
    assert code == 0, err
    written: dict[str, Any] = json.loads(await asyncio.to_thread(bundle.read_text))
    seqs = [event["seq"] for event in written["events"]]
    assert seqs == sorted({*seqs}) and seqs[0] == 1  # with gaps: pieces of texts are removed after the end
    assert [history["workflow_id"] for history in written["histories"]] == [f"session/{task_id}"]
    log = [ChainedEntry.model_validate(entry) for entry in written["audit"]]
    assert log[0].action == "submit" and {entry.session_id for entry in log} == {task_id}
    assert all(entry.hash == link(entry) for entry in log)  # anybody with the bundle can verify the chain
    nowhere = {**stack.env, "TEMPORAL_ADDRESS": "127.0.0.1:1", "ERRAND_URL": "http://127.0.0.1:1"}
    code, out, err = await errand("replay", str(bundle), "--json", env=nowhere)
    assert out, err
    assert (code, json.loads(out)["parted"]) == (0, 0)

    # change the bundle as if the code had called the tool before the model: swap two activities
    history = written["histories"][0]["history"]
    scheduled = [event for event in history["events"] if "activityTaskScheduledEventAttributes" in event]
    first, second = (event["activityTaskScheduledEventAttributes"]["activityType"] for event in scheduled[:2])
    first["name"], second["name"] = second["name"], first["name"]
    await asyncio.to_thread(bundle.write_text, json.dumps(written))
    code, out, err = await errand("replay", str(bundle), "--json", env=nowhere)
    assert out, err
    parted = json.loads(out)["verdicts"][0]
    assert (code, parted["same"], parted["event_id"]) == (1, False, int(scheduled[0]["eventId"]))


async def test_conversation_replays_with_its_session(stack: Stack, tmp_path: Path) -> None:
    """The replay includes the first session, which the conversation did not start."""
    first = (await stack.run("[[script:say text=x]]"))["task_id"]
    answer = await stack.http.post(f"/conversations/{first}/messages", json={"input": "[[script:say text=y]]"})
    await stack.wait(second := answer.json()["session_id"])
    bundle = tmp_path / "first.json"
    assert (await errand("export", first, "-o", str(bundle), env=stack.env))[0] == 0
    for task_id, source in ((first, str(bundle)), (second, second)):
        code, out, _ = await errand("replay", source, "--json", env=stack.env)
        replayed = [verdict["workflow_id"] for verdict in json.loads(out)["verdicts"]]
        assert (code, replayed) == (0, [f"session/{task_id}", f"conversation/{first}"])


async def test_release_gate_replays_running_workflows_however_old(stack: Stack) -> None:
    ended = (await stack.run("[[script:say text=x]]"))["task_id"]
    await stack.session(ended).result()
    running = await stack.submit("[[script:say words=30]] [[fault:hang after=6 times=always]]")
    await stack.seen(running, "message_delta")
    await WorkflowClient(stack.client, stack.settings.task_queue).reopen("default", running)
    assert await gate(stack, timedelta(hours=1)) >= {f"session/{ended}", f"session/{running}"}
    now = await gate(stack, timedelta(hours=-1))  # nothing started or ended since then
    assert {f"session/{running}", f"conversation/{running}"} <= now and f"session/{ended}" not in now
    await stack.cancel(running)
    await stack.wait(running)
    bundled = await with_conversation(stack.client, running)
    assert [history.workflow_id for history in bundled] == [f"session/{running}", f"conversation/{running}"]


async def gate(stack: Stack, since: timedelta) -> set[str]:
    return {history.workflow_id async for history in recent(stack.client, since)}

"""The audit log, effects and retention from the command line."""

import json

from tests.behaviour.record.conftest import swept
from tests.behaviour.supervision.test_command_line import cli
from tests.support.stack import Stack, calls

WRITE = ("write_file", {"path": "a.txt", "content": "one\n"})


async def test_the_log_is_shown_and_verified(recorded: Stack) -> None:
    record = await recorded.run(calls(WRITE))
    shown = await cli(recorded, "audit", record["task_id"])
    lines = shown.stdout.splitlines()
    assert [line.split()[1] for line in lines[1:2]] == ["anonymous"]
    assert "submit" in lines[1] and "agent tester" in lines[2] and "completed goal_reached" in lines[-1]
    assert "older entries" in (await cli(recorded, "audit", "--limit", "1")).stderr
    whole = await cli(recorded, "audit", "verify")
    assert whole.exit_code == 0 and whole.stdout.startswith("intact: ")
    head = json.loads((await cli(recorded, "audit", "verify", "--json")).stdout)["head"]
    assert (await cli(recorded, "audit", "verify", "--head", head)).exit_code == 0
    broken = await cli(recorded, "audit", "verify", "--head", "f" * 64)
    assert broken.exit_code == 1 and broken.stdout.startswith("BROKEN: the tenant's own chain, entry 1")
    assert (await cli(recorded, "audit", "no-such-task")).exit_code == 4


async def test_result_shows_effects_and_when_its_content_is_removed(recorded: Stack) -> None:
    dry = await cli(recorded, "run", "tester", calls(WRITE), "--dry-run", "--detach")
    task_id = dry.stdout.split()[0]
    shown = await cli(recorded, "result", task_id, "--wait")
    assert "would_have: write a.txt (4 characters)" in shown.stderr
    gone = await recorded.run("Hello.", config={"retention": 1_000})
    await swept(recorded, gone["task_id"])
    refused = await cli(recorded, "result", gone["task_id"])
    assert refused.exit_code == 5 and "410 content-removed" in refused.stderr
    assert (await cli(recorded, "show", gone["task_id"])).exit_code == 0

"""What commands send and print on the real stack: output for people, JSON for scripts, exit codes."""

import json
from pathlib import Path

from tests.support.command import cli
from tests.support.stack import Stack, of_type, steps

UNKNOWN = "01m00000000000000000000000"


async def test_run_sends_every_option(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_bytes(b"a,b\n\xff")
    options = ["--ttl", "1h30m", "--max-steps", "9", "--max-tokens", "100000", "--max-cost", "0.5", "--title", "ü"]
    options += ["--max-tool-calls", "7", "--check", "true", "--permission", "bash=ask", "--permission", "bash:ls=allow"]
    options += ["--file", str(tmp_path / "data.csv"), "--sandbox", "isolated"]
    script = steps([("list_files", {}), ("bash", {"command": "ls"})])
    said = await cli(stack, "run", "tester", "-", *options, "--detach", input=script)
    task_id = said.stdout.strip()
    assert said.exit_code == 0 and all(f"{one} {task_id}" in said.stderr for one in ("attach", "result", "cancel"))
    task = await stack.wait(task_id)
    limits = {name: task["limits"][name] for name in ("ttl_ms", "steps", "tokens", "cost_usd", "tool_calls")}
    assert limits == {"ttl_ms": 5_400_000, "steps": 9, "tokens": 100_000, "cost_usd": 0.5, "tool_calls": 7}
    assert (task["title"], task["reason"]) == ("ü", "goal_reached")  # the second rule allows the command
    assert all("data.csv" in event["preview"] for event in of_type(await stack.events(task_id), "tool_returned"))
    shown = await cli(stack, "result", task_id)
    assert shown.exit_code == 0 and "  met: this command succeeds" in shown.stderr
    listed = json.loads((await cli(stack, "tasks", "--status", "completed", "--text", "ü", "--json")).stdout)
    assert task_id in {one["task_id"] for one in listed["items"]}


async def test_results_and_artifacts_are_printed_and_saved(stack: Stack, tmp_path: Path) -> None:
    old, new = ("bash", {"command": "echo old > r.md"}), ("bash", {"command": "printf '# R\\n\\377' > r.md"})
    save = ("save_artifact", {"path": "r.md"})
    elsewhere = ("save_artifact", {"url": "https://code.example.org/pull/7", "name": "7", "type": "pull_request"})
    task_id = (await stack.run(steps([old], [save], [new], [save], [elsewhere])))["task_id"]
    said = await cli(stack, "result", task_id)
    assert f"./errand result {task_id} --artifact r.md -o FILE" in said.stderr
    assert "artifact: https://code.example.org/pull/7" in said.stderr
    # of one name the last; an address is only printed, because our key must not be sent to another server
    target = tmp_path / "out"
    assert (await cli(stack, "result", task_id, "--artifact", "r.md", "-o", str(target))).exit_code == 0
    assert (
        target.read_bytes() == (await cli(stack, "result", task_id, "--artifact", "r.md")).stdout_bytes == b"# R\n\xff"
    )
    assert (await cli(stack, "result", task_id, "--artifact", "7")).stdout == "https://code.example.org/pull/7\n"
    missing = await cli(stack, "result", task_id, "--artifact", "x")
    assert missing.exit_code == 4 and "it has: 7, r.md" in missing.stderr
    events = [json.loads(line) for line in (await cli(stack, "attach", task_id, "--json")).stdout.splitlines()]
    seen = await cli(stack, "attach", task_id, "--after", str(events[-1]["seq"]))
    assert (seen.exit_code, seen.stdout) == (0, "") and "the task is completed" in seen.stderr


async def test_unfinished_task_is_shown_steered_and_cancelled(stack: Stack) -> None:
    task_id = await stack.submit("[[script:count n=30]] [[fault:slow]]", title="Slow")
    early = await cli(stack, "result", task_id)
    assert (early.exit_code, early.stdout) == (7, "") and "With --wait this command waits" in early.stderr
    assert json.loads((await cli(stack, "result", task_id, "--json")).stderr)["exit_code"] == 7
    shown = (await cli(stack, "show", task_id)).stdout
    assert "Slow" in shown and "working" in shown or "submitted" in shown
    assert (await cli(stack, "steer", task_id, "-", input="two\nlines\n")).exit_code == 0
    refused = await cli(stack, "promote", task_id)
    assert refused.exit_code == 5, refused.output
    cancelled = await cli(stack, "cancel", task_id, "--reason", "wrong branch")
    assert cancelled.exit_code == 0 and "cancel requested; the task is still" in cancelled.stdout
    await stack.wait(task_id)
    assert (await cli(stack, "cancel", task_id)).stdout == "the task has ended already: cancelled\n"
    assert (await cli(stack, "attach", task_id)).exit_code == 3
    assert (await cli(stack, "terminate", task_id, input="n\n")).exit_code == 1
    once = ["run", "tester", "[[script:say words=3]]", "--detach", "--json", "--idempotency-key", f"cli-{task_id}"]
    [said] = {(await cli(stack, *once)).stdout for _ in range(2)}
    ended = json.loads(said)["task_id"]
    await stack.wait(ended)
    forked = await cli(stack, "fork", ended, "--input", "[[script:say words=3]]", "--agent", "tester")
    assert forked.exit_code == 0 and "completed (goal_reached)" in forked.stdout, forked.output


async def test_refusals_name_the_field_and_what_is_allowed(stack: Stack) -> None:
    refused = await cli(stack, "run", "nobody", "hello")
    assert (refused.exit_code, refused.stdout) == (5, "")
    assert "422 unknown-agent" in refused.stderr and "/agent: " in refused.stderr and "assistant" in refused.stderr
    body = json.loads((await cli(stack, "run", "nobody", "hello", "--json")).stderr)
    assert body["exit_code"] == 5 and body["errors"][0]["pointer"] == "/agent"
    stranger = await cli(stack, "tasks", "--key", "ek_wrong")
    assert stranger.exit_code == 5 and "ERRAND_API_KEY" in stranger.stderr
    for command in (["show"], ["attach"], ["result", "--wait"], ["cancel", "--json"]):
        for task_id in (UNKNOWN, "../x y"):
            said = await cli(stack, *command, task_id)
            assert (said.exit_code, said.stdout) == (4, ""), said.output
    assert (await cli(stack, "agents", "nobody")).exit_code == 4
    assert "assistant" in (await cli(stack, "agents")).stdout
    one = (await cli(stack, "agents", "code-reviewer")).stdout
    assert "limits: " in one and "permissions: " in one and "None" not in one

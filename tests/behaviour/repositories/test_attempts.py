"""Attempts: several sessions do one task from the same commit, and one result becomes the task's."""

import asyncio
from datetime import datetime
from typing import Any

import pytest

from settings import ROOT
from tests.behaviour.repositories.conftest import Origin, artifact, define
from tests.behaviour.repositories.test_commands import errand
from tests.behaviour.supervision.people import answer, answered, waiting
from tests.faults.moments import hold_rows
from tests.support.git_server import git
from tests.support.stack import Stack, eventually, of_type, steps

Call = tuple[str, dict[str, Any]]


async def prepare(stack: Stack, origin: Origin, setup: str | None = None) -> str:
    return await define(stack, origin.url, network="allowlist", hosts=["127.0.0.1"], setup=setup)


def differ(origin: Origin, *commands: str) -> list[list[Call]]:
    """Every attempt runs another one of the commands: the server of the repository counts who asks."""
    listed = " ".join(f"'{one}'" for one in commands)
    count = f"curl -s --noproxy '' {origin.place}/api/count | grep -o '[0-9]*}}' | tr -d '}}'"
    return [[("bash", {"command": f'set -- {listed}; shift $(( $({count}) - 1 )); eval "$1"'})]]


async def attempts_of(stack: Stack, task_id: str) -> dict[str, Any]:
    answer = await stack.http.get(f"/tasks/{task_id}/attempts")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_the_attempt_that_meets_the_criteria_becomes_the_result(stack: Stack, origin: Origin) -> None:
    """They begin at one commit, with what the setup made; the others keep their patches; later turns use it."""
    environment = await prepare(stack, origin, setup="echo prepared > ignored.txt")
    good = "echo good > result.txt; git add -A; git commit -qm Good"
    work = differ(origin, "echo bad > result.txt", good, "rm old.txt")
    record = await stack.run(
        steps(*work, [("bash", {"command": "cat ignored.txt; git log --format=%s"})]),
        acceptance_criteria=[{"kind": "command", "run": "grep -q good result.txt && test -e ignored.txt"}],
        config={"environment": environment, "attempts": 3, "max_cost_usd": 2.0},
    )
    assert record["status"] == "completed", record
    task_id = record["task_id"]
    compared = await attempts_of(stack, task_id)
    assert compared["chosen_by"] == "criteria" and [one["number"] for one in compared["items"]] == [1, 2, 3]
    [chosen] = [one for one in compared["items"] if one["chosen"]]
    losers = [one for one in compared["items"] if not one["chosen"]]
    assert chosen["passed"] and [one["passed"] for one in losers] == [False, False]
    assert "1 file changed, 1 insertion(+)" in chosen["changes"]
    patches = [(await stack.http.get(one["patch"]["url"])).text for one in losers]
    assert sorted("+bad" in one for one in patches) == [False, True]
    assert "+good" in (await artifact(stack, task_id, "changes.patch")).decode()
    assert await artifact(stack, task_id, "commits.bundle")
    commits = {
        of_type(await stack.events(one), "tree_prepared")[0]["commit"]
        for one in (task_id, *(other["task_id"] for other in compared["items"]))
    }
    assert commits == {git(origin.folder, "rev-parse", "HEAD")}
    [event] = of_type(await stack.events(task_id), "attempt_chosen")
    assert event["child_session_id"] == chosen["task_id"]
    assert (await stack.result(task_id))["output"] == (await stack.result(chosen["task_id"]))["output"]
    # one budget, which all of them used
    lines = (await stack.http.get(f"/tasks/{task_id}/budget")).json()["tree"]["budgets"]
    [cost] = [one for one in lines if one["budget"] == "cost_usd"]
    used = sum(one["usage"]["cost_usd"] for one in compared["items"])
    assert cost["limit"] == 2.0 and cost["used"] == pytest.approx(used) and used > 0
    look = steps([("bash", {"command": "cat result.txt ignored.txt; git log -1 --format=%s; git status --short"})])
    answer = await stack.http.post(f"/conversations/{record['conversation_id']}/messages", json={"input": look})
    turn = await stack.wait(answer.json()["session_id"])
    seen = (await stack.result(turn["task_id"]))["output"]
    assert "good\nprepared\nGood" in seen and "bad" not in seen


async def test_a_judge_chooses_among_those_that_pass(stack: Stack, origin: Origin) -> None:
    record = await stack.run(
        steps(*differ(origin, "seq 50 > numbers.txt", "seq 5 > numbers.txt", "seq 90 > numbers.txt")),
        acceptance_criteria=[{"kind": "command", "run": "test -s numbers.txt"}],
        config={"environment": await prepare(stack, origin), "attempts": 3},
    )
    compared = await attempts_of(stack, record["task_id"])
    assert compared["chosen_by"] == "judge" and "smallest" in compared["why"]
    assert (await artifact(stack, record["task_id"], "changes.patch")).decode().count("\n+") == 6
    assert record["usage"]["output_tokens"] > 0  # of the judge
    code, said = await errand(stack, ROOT, "attempts", record["task_id"])
    marked = [line.split() for line in said.splitlines() if line.startswith("*")]
    assert code == 0 and "chosen by judge" in said and marked[0][2:6] == ["completed", "1", "of", "1"], said


async def test_people_choose_what_the_judge_cannot(stack: Stack, origin: Origin, committer: str) -> None:
    config = {"environment": await prepare(stack, origin), "attempts": 2}
    work = steps(*differ(origin, "echo a > new.txt", "echo b > new.txt"))
    task_id = await stack.submit(work, agent=committer, config=config)
    [request] = await waiting(stack, task_id)
    assert [option[:9] for option in request["details"]["options"]] == ["attempt 1", "attempt 2"]
    for unclear in ("Attempt 2", "not attempt 1, attempt 2"):
        assert (await answer(stack, task_id, request["id"], unclear)).status_code == 422
    await answered(stack, task_id, request["details"]["options"][1])
    record = await stack.wait(task_id)
    compared = await attempts_of(stack, task_id)
    assert record["status"] == "completed" and compared["chosen_by"] == "person"
    [chosen] = [one for one in compared["items"] if one["chosen"]]
    assert chosen["number"] == 2
    assert await artifact(stack, task_id, "changes.patch") == (await stack.http.get(chosen["patch"]["url"])).content


async def test_a_task_fails_if_no_attempt_completes(stack: Stack, origin: Origin) -> None:
    record = await stack.run(
        steps([("bash", {"command": "echo x > x.txt"})]),
        acceptance_criteria=[{"kind": "command", "run": "false"}],
        config={"environment": await prepare(stack, origin), "attempts": 2},
    )
    assert (record["status"], record["error"]["type"]) == ("failed", "no_attempt")
    compared = await attempts_of(stack, record["task_id"])
    assert compared["chosen_by"] is None and all(one["patch"] for one in compared["items"])
    assert (await stack.result(record["task_id"]))["artifacts"] == []


async def test_attempts_publish_nothing(stack: Stack, origin: Origin, committer: str) -> None:
    """Only the task itself may, once one is chosen: with the next turn."""
    record = await stack.run(
        steps([("push_branch", {})]),
        agent=committer,
        config={"environment": await prepare(stack, origin), "attempts": 2},
        permissions=[{"permission": "push_branch", "action": "allow"}],
    )
    assert record["status"] == "completed"
    assert not [one for one in origin.branches() if one.startswith("errand/")]
    asked = await stack.asked(record["task_id"])
    assert len(asked) == 4 and "push_branch" not in {tool["name"] for tool in asked[0]["body"]["tools"]}


async def test_the_judge_is_shown_the_beginning_of_large_patches(stack: Stack, origin: Origin) -> None:
    """What it is shown does not take longer the larger they are, and the smallest of them is known all the same."""
    large, larger = (f"yes ä | head -c {size} > big.txt" for size in (6_000_000, 7_000_000))
    record = await stack.run(
        steps(*differ(origin, larger, large)), config={"environment": await prepare(stack, origin), "attempts": 2}
    )
    compared = await attempts_of(stack, record["task_id"])
    assert record["status"] == "completed" and compared["chosen_by"] == "size", compared
    happened = await stack.events(record["task_id"])
    [chosen], ended = of_type(happened, "attempt_chosen"), of_type(happened, "subagent_ended")
    took = datetime.fromisoformat(chosen["at"]) - datetime.fromisoformat(ended[-1]["at"])
    assert took.total_seconds() < 5
    [winner] = [one for one in compared["items"] if one["chosen"]]
    assert winner["patch"]["size"] == min(one["patch"]["size"] for one in compared["items"])
    [case] = [one["body"] for one in await stack.asked(record["task_id"]) if "choose_attempt" in str(one["body"])]
    assert len(str(case)) < 100_000 and "more bytes]" in str(case)


async def test_a_kill_while_attempts_run_loses_and_doubles_none(stack: Stack, origin: Origin) -> None:
    task_id = await stack.submit(
        steps([("bash", {"command": "echo begun > begun.txt; sleep 4; date +%N >> begun.txt"})]),
        config={"environment": await prepare(stack, origin), "attempts": 2},
    )

    async def begun() -> bool:
        found = await attempts_of(stack, task_id)
        paths = [stack.workspace(one["task_id"]) / "begun.txt" for one in found["items"]]
        return len(paths) == 2 and await asyncio.to_thread(lambda: all(path.exists() for path in paths))

    await eventually(begun)
    await stack.back("worker", await stack.kill("worker"))
    record = await stack.wait(task_id, seconds=120)
    compared = await attempts_of(stack, task_id)
    assert record["status"] == "completed" and len(compared["items"]) == 2
    assert [one["status"] for one in compared["items"]] == ["completed"] * 2
    assert sum(one["chosen"] for one in compared["items"]) == 1
    assert len(of_type(await stack.events(task_id), "attempt_chosen")) == 1


async def test_a_task_that_cannot_have_attempts_is_refused(stack: Stack, origin: Origin) -> None:
    environment = await define(stack, origin.url)
    history = {"history": [{"role": "user", "content": "x"}]}
    for config, more in (
        ({"attempts": 3}, {}),
        ({"attempts": 9, "environment": environment}, {}),
        ({"attempts": 2, "environment": environment, "approval_required": True}, {"agent": "assistant"}),
        ({"attempts": 2, "environment": environment}, {"context": history}),
        ({"attempts": 2, "environment": environment, "max_steps": 2}, {}),
        ({"attempts": 2, "environment": environment, "max_tool_calls": 2}, {}),
    ):
        task = {"agent": "tester", "input": "x", "config": config, **more}
        answer = await stack.http.post("/tasks", json=task)
        assert answer.status_code == 422, answer.text
        assert answer.json()["errors"][0]["pointer"] == "/config/attempts", answer.text


async def test_a_kill_between_the_choice_and_its_reply_makes_no_second_choice(stack: Stack, origin: Origin) -> None:
    """The judge's patch makes its reply slow; then the commit of the reply waits for a lock, and the worker dies."""
    slow = 'seq 5 > n.txt; printf "\\133\\133%s:slow delay=4\\135\\135" fault >> n.txt'
    config = {"environment": await prepare(stack, origin), "attempts": 2}
    task_id = await stack.submit(steps(*differ(origin, "seq 90 > n.txt", slow)), config=config)

    async def judged() -> int:
        return len([one for one in await stack.asked(task_id) if "choose_attempt" in str(one["body"])])

    await eventually(judged)
    async with hold_rows(stack, "SELECT 1 FROM budgets WHERE conversation_id = $1 FOR UPDATE", task_id) as waiting_for:
        writer = await waiting_for("commit_step(")
        assert writer is not None
        assert len(of_type(await stack.events(task_id), "attempt_chosen")) == 1
        assert (await stack.record(task_id))["status"] == "working"
        killed = await stack.kill("worker")
        await stack.pool.execute("SELECT pg_terminate_backend($1)", writer)
    await stack.back("worker", killed)
    record = await stack.wait(task_id, seconds=120)
    compared = await attempts_of(stack, task_id)
    [chosen] = [one for one in compared["items"] if one["chosen"]]
    assert (record["status"], compared["chosen_by"]) == ("completed", "judge"), record
    assert len(of_type(await stack.events(task_id), "attempt_chosen")) == await judged() == 1
    assert await artifact(stack, task_id, "changes.patch") == (await stack.http.get(chosen["patch"]["url"])).content

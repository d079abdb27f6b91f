"""Pull requests: pushed and opened once, also after a kill; comments on them continue the task."""

from typing import Any

import pytest

from tests.behaviour.repositories.conftest import Origin, artifact, define, store_credential
from tests.behaviour.supervision.people import answered
from tests.behaviour.triggers.sender import Sender
from tests.support.git_server import git
from tests.support.stack import Stack, eventually, steps

COMMIT: list[tuple[str, dict[str, Any]]] = [("bash", {"command": "echo more >> app.py; git commit -qam More"})]
PUSH: list[tuple[str, dict[str, Any]]] = [("push_branch", {})]
OPEN: list[tuple[str, dict[str, Any]]] = [("open_pull_request", {"title": "More lines", "body": "They were missing."})]
ALLOWED = [{"permission": one, "action": "allow"} for one in ("push_branch", "open_pull_request")]


async def prepare(stack: Stack, origin: Origin, forge: str = "gitea", **more: object) -> str:
    credential = await store_credential(stack, origin, access="write")
    return await define(stack, origin.url, {"credential": credential, "forge": forge}, **more)


def branches(origin: Origin) -> list[str]:
    return [one for one in origin.branches() if one.startswith("errand/")]


@pytest.mark.parametrize("forge", ["gitea", "gitlab"])
async def test_a_branch_is_pushed_and_has_one_pull_request(
    stack: Stack, origin: Origin, committer: str, forge: str
) -> None:
    record = await stack.run(
        steps(PUSH, COMMIT, PUSH, OPEN, OPEN),
        agent=committer,
        title="Füge mehr Zeilen an!",
        config={"environment": await prepare(stack, origin, forge)},
        permissions=ALLOWED,
    )
    early, _, pushed, opened, again = (
        str(one["body"]["messages"][-1]) for one in (await stack.asked(record["task_id"]))[1:6]
    )
    assert "there is no new commit" in early
    [branch] = branches(origin)
    assert branch.startswith("errand/f-ge-mehr-zeilen-an-") and branch in pushed
    assert git(origin.folder, "log", "-1", "--format=%s", branch) == "More"
    [pull] = origin.forge.pulls
    assert (pull["given"]["title"], pull["head"]["ref"]) == ("More lines", branch)
    assert (pull["given"].get("base") or pull["given"]["target_branch"]) == "main"
    assert pull["html_url"] in opened and "There is already" in again
    saved = [one for one in (await stack.result(record["task_id"]))["artifacts"] if one["type"] == "pull_request"]
    assert {one["url"] for one in saved} == {pull["html_url"]}


async def test_people_approve_a_push_unless_a_rule_allows_it(stack: Stack, origin: Origin, committer: str) -> None:
    environment = await prepare(stack, origin)
    for approved in (False, True):
        task_id = await stack.submit(steps(COMMIT, PUSH), agent=committer, config={"environment": environment})
        await answered(stack, task_id, {"approved": approved})
        assert len(branches(origin)) == approved


async def test_a_push_that_would_lose_commits_of_others_is_refused(
    stack: Stack, origin: Origin, committer: str
) -> None:
    """And the configuration of the workspace leads the push nowhere else."""
    environment = await prepare(stack, origin)
    elsewhere = "git config url.http://example.org/.insteadOf http://; git config remote.origin.pushurl http://x/"
    hook = "mkdir -p .git/hooks; printf '#!/bin/sh\\nexit 1\\n' > .git/hooks/pre-push; chmod +x .git/hooks/pre-push"
    amend = [("bash", {"command": f"{elsewhere}; {hook}; git commit -q --amend -m Amended"})]
    record = await stack.run(
        steps(COMMIT, PUSH, amend, PUSH), agent=committer, config={"environment": environment}, permissions=ALLOWED
    )
    [branch] = branches(origin)
    assert git(origin.folder, "log", "-1", "--format=%s", branch) == "More"
    assert "rejected" in str((await stack.asked(record["task_id"]))[4]["body"]["messages"][-1])


async def kill(stack: Stack) -> None:
    await stack.back("worker", await stack.kill("worker"))


async def test_a_kill_between_push_and_pull_request_leaves_one_branch_and_one_pull_request(
    stack: Stack, origin: Origin, committer: str
) -> None:
    """The second kill comes when the pull request is made, and nobody here knows it yet."""
    origin.forge.slow = 4.0
    waits = [("bash", {"command": "sleep 3"})]
    task_id = await stack.submit(
        steps(COMMIT, PUSH, waits, OPEN, OPEN),
        agent=committer,
        config={"environment": await prepare(stack, origin)},
        permissions=ALLOWED,
    )

    async def pushed() -> bool:
        return bool(branches(origin))

    async def made() -> bool:
        return bool(origin.forge.pulls)

    await eventually(pushed)
    await kill(stack)
    await eventually(made)
    await kill(stack)
    record = await stack.wait(task_id, seconds=120)
    assert record["status"] == "completed" and len(branches(origin)) == len(origin.forge.pulls) == 1
    lost, found = (str(one["body"]["messages"][-1]) for one in (await stack.asked(task_id))[-2:])
    assert "unknown" in lost.lower() and "There is already the pull request 1" in found


async def test_a_comment_on_its_pull_request_is_the_next_turn_of_the_task(
    stack: Stack, origin: Origin, committer: str
) -> None:
    task = {"agent": committer, "input": "An answer is due.", "permissions": ALLOWED}
    sender = await Sender.new(stack, "github", task=task)
    environment = await prepare(stack, origin, triggers=[sender.name])
    more = [("bash", {"command": "cat app.py; echo again >> app.py; git commit -qam Again; git log --format=%s"})]
    rules = {
        "signature": "github",
        "secret": sender.secret,
        "context": "per_key",
        "correlation": "pull:{{payload.repository.full_name}}#{{payload.issue.number}}",
        "task": {**task, "input": steps(more, PUSH), "config": {"environment": environment}},
    }
    assert (await stack.http.put(f"/triggers/{sender.name}", json=rules)).is_success
    first = await stack.run(
        steps(COMMIT, PUSH, OPEN), agent=committer, config={"environment": environment}, permissions=ALLOWED
    )
    comment = {"repository": {"full_name": "shop"}, "comment": {"body": "one more, please"}}
    accepted = await sender.accepted({**comment, "issue": {"number": 1}}, event="issue_comment")
    assert accepted["conversation_id"] == first["conversation_id"]
    second = await stack.wait(accepted["session_id"])
    assert second["status"] == "completed", second
    [branch] = branches(origin)
    assert git(origin.folder, "log", "--format=%s", branch).splitlines()[:2] == ["Again", "More"]
    assert b"again" in await artifact(stack, second["task_id"], "changes.patch")
    other = await sender.accepted({**comment, "issue": {"number": 2}}, event="issue_comment")
    assert other["conversation_id"] != first["conversation_id"]

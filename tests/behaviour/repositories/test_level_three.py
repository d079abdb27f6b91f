"""A mission that a failed check wakes: it looks, mends, opens a pull request and reports to Slack. Nobody is asked."""

from typing import Any

from tests.behaviour.missions.test_missions import create, show
from tests.behaviour.notifications.receivers import http_receiver
from tests.behaviour.notifications.subscribers import Subscribers
from tests.behaviour.repositories.conftest import Origin
from tests.behaviour.repositories.test_pull_requests import ALLOWED, branches, prepare
from tests.behaviour.triggers.sender import Sender
from tests.support.git_server import git
from tests.support.stack import Stack, of_type, steps

PRICES = "def total(prices):\n    return {}\n"
TEST = "import unittest\nfrom prices import total\n\nclass Totals(unittest.TestCase):\n"
TEST += "    def test_total(self):\n        self.assertEqual(total([1, 2]), 3)\n"


def bash(command: str) -> list[tuple[str, dict[str, Any]]]:
    return [("bash", {"command": command})]


async def test_a_failed_check_becomes_a_pull_request_and_a_report(stack: Stack, origin: Origin, committer: str) -> None:
    (origin.folder / "prices.py").write_text(PRICES.format("max(prices)"))
    (origin.folder / "test_prices.py").write_text(TEST)
    git(origin.folder, "add", "-A")
    git(origin.folder, "commit", "-qm", "Prices")
    commit = git(origin.folder, "rev-parse", "HEAD")
    environment = await prepare(stack, origin, "github")
    async with http_receiver() as slack:
        subscribed = await Subscribers(stack).subscribe(f"{slack.url}/services/T/B/x", "slack", every_task=False)
        config = {"environment": environment, "notify": [subscribed["name"]]}
        mission = await create(stack, task={"agent": committer, "input": "Keep the tests passing.", "config": config})
        work = steps(
            bash("git log -1 --format=%H; python3 -m unittest -q 2>&1 || true"),
            [("write_file", {"path": "prices.py", "content": PRICES.format("sum(prices)")})],
            bash("python3 -m unittest -q 2>&1 && git add prices.py && git commit -qm 'Add the prices up'"),
            [("push_branch", {})],
            [("open_pull_request", {"title": "Add the prices up", "body": "The largest was returned."})],
        )
        sender = await Sender.new(
            stack,
            "github",
            conversation_id=mission["conversation_id"],
            filter=[{"path": "payload.check_run.conclusion", "equals": "failure"}],
            template="{{payload.check_run.name}} failed for {{payload.check_run.head_sha}}",
            task={"agent": committer, "input": work, "config": config, "permissions": ALLOWED, "title": "Mend main"},
        )
        check = {"name": "tests", "head_sha": commit, "conclusion": "success"}
        passed = await sender.accepted({"check_run": check}, event="check_run")
        assert passed["outcome"] == "filtered"
        event = await sender.accepted({"check_run": {**check, "conclusion": "failure"}}, event="check_run")
        record = await stack.wait(event["session_id"])
        assert record["status"] == "completed" and event["conversation_id"] == mission["conversation_id"]
        [said] = await slack.got("/services/T/B/x")
        assert said.json["text"].startswith("*Completed: Mend main*")
    [branch], [pull] = branches(origin), origin.forge.pulls
    assert pull["given"]["title"] == "Add the prices up"
    assert "sum(prices)" in git(origin.folder, "show", f"{branch}:prices.py")
    events = await stack.events(record["task_id"])
    assert of_type(events, "input_required") == []
    [saved] = of_type(events, "artifact_saved")[:1]
    assert saved["url"] == pull["html_url"]
    [prepared] = of_type(events, "tree_prepared")
    assert prepared["commit"] == commit
    shown = await show(stack, mission)
    assert (shown["status"], shown["total"]["runs"]) == ("working", 1)

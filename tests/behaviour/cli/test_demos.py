"""`errand demo NAME`: each demo as a user sees it in a terminal."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from cli.commands.demo import DEMOS
from tests.support.stack import Stack
from tests.support.terminal import Terminal


def look(shown: Terminal) -> None:
    shown.expect("./errand run assistant 'Look around the workspace and write a short report' --dir ")
    shown.expect("report.py")  # the workspace has a file
    shown.expect("completed (goal_reached)")


def ask(shown: Terminal) -> None:
    shown.expect("Your answer")
    shown.type("5")
    shown.expect("2, 3, 5, 7, 11")
    shown.expect("completed (goal_reached)")


def approve(shown: Terminal) -> None:
    shown.expect("Approve?")
    shown.type("a")
    shown.expect("command: python3 primes.py")  # not the command that is always allowed now
    shown.expect("Approve?")
    shown.type("y")
    shown.expect("2, 3, 5, 7, 11, 13, 17")
    shown.expect("completed (goal_reached)")


def fan_out(shown: Terminal) -> None:
    shown.expect("researcher")
    shown.expect("lighthouse")
    shown.expect("completed (goal_reached)")


def trouble(shown: Terminal) -> None:
    shown.expect("529")
    shown.expect("2, 3, 5, 7, 11, 13, 17")
    shown.expect("completed (goal_reached)")


def slow(shown: Terminal) -> None:
    """Run the demo detached; its end is tested in test_everything_killed.py."""
    shown.expect("Submitted; the task continues without you.")


def research(shown: Terminal) -> None:
    shown.expect("May this plan be carried out?")
    shown.type("y")
    shown.expect("The report is saved")
    shown.expect("first lens for a lighthouse was lit in the tower of Cordouan in 1823. [http://127.0.0.1:")
    shown.expect("completed (goal_reached)")


STORIES: dict[str, Callable[[Terminal], None]] = {
    "look": look,
    "slow": slow,
    "ask": ask,
    "approve": approve,
    "fan-out": fan_out,
    "research": research,
    "trouble": trouble,
}


async def test_every_demo_shows_its_feature(stack: Stack, tmp_path: Path) -> None:
    assert {*STORIES, "fix"} == set(DEMOS)  # its patch is applied in tests/behaviour/repositories/test_commands.py

    def run(name: str) -> int:
        environment = {**stack.env, "XDG_STATE_HOME": str(tmp_path / name), "NO_COLOR": "1"}
        with Terminal("demo", name, *["--detach"] * (name == "slow"), env=environment) as shown:
            STORIES[name](shown)
            return shown.exit_code()

    codes = await asyncio.gather(*(asyncio.to_thread(run, name) for name in STORIES))
    assert codes == [0] * len(STORIES)
    [task] = (await stack.http.get("/tasks", params={"text": "A slow log book"})).json()["items"]
    assert await stack.seen(task["task_id"], "tool_called")
    await stack.cancel(task["task_id"])

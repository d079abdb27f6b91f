"""An approval applies only to what the person saw: the command, and the files that it runs."""

import asyncio
import hashlib
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.tools.builtin.bash import TOOL as BASH
from activities.tools.run_tool import RunTool
from domain.ids import new_id
from domain.sessions.session import AgentRef, SessionRef, ToolRequest
from tests.behaviour.supervision.people import answer, answered, bash, waiting
from tests.support.stack import Stack, calls, eventually, steps

pytestmark = pytest.mark.together

GATE = [{"permission": "bash", "pattern": "sh *", "action": "ask"}]
GOOD, BAD = "touch good\n", "touch bad\n"


def write(content: str) -> tuple[str, dict[str, str]]:
    return "write_file", {"path": "deploy.sh", "content": content}


async def output(stack: Stack, task_id: str) -> str:
    return str((await stack.asked(task_id))[-1]["body"]["messages"])


async def made(stack: Stack, task_id: str) -> list[str]:
    row = await stack.pool.fetchval("SELECT manifest FROM workspaces WHERE id = $1", task_id)
    return [name for name in ("good", "bad") if f'"{name}"' in str(row)]


async def touched(file: Path) -> bool:
    """Make the file as soon as its folder exists."""
    if await asyncio.to_thread(file.parent.is_dir):
        await asyncio.to_thread(file.touch)
    return await asyncio.to_thread(file.exists)


@pytest.mark.parametrize("before", [[write(GOOD)], []], ids=["changed", "new"])
async def test_approval_is_void_when_a_file_was_changed_since(people: Stack, before: list[Any]) -> None:
    """A second call of the same reply replaces the file while the person looks at the first call, and not earlier: a
    file that is replaced before the request is opened is the one that the person sees."""
    first = [before] if before else []
    script = steps(
        *first, [bash("sh deploy.sh"), bash(f"until [ -e seen ]; do sleep 0.05; done; echo {BAD.strip()} > deploy.sh")]
    )
    task_id = await people.submit(script, "asker", permissions=GATE)
    [request] = await waiting(people, task_id)
    await eventually(partial(touched, people.workspace(task_id) / "seen"), what="the second call may go on")

    async def exchanged() -> bool:
        row = await people.pool.fetchval("SELECT manifest FROM workspaces WHERE id = $1", task_id)
        return hashlib.sha256(BAD.encode()).hexdigest() in str(row)

    await eventually(exchanged, what="the file is exchanged")
    await answer(people, task_id, request["id"], {"approved": True})
    record = await people.wait(task_id)
    assert record["reason"] == "goal_reached"
    assert await made(people, task_id) == []
    assert "was approved with other content of files that it names: deploy.sh. It was not run" in await output(
        people, task_id
    )


@pytest.mark.parametrize("exchanged", ["deploy.sh", "many/59/deploy.sh", "run", None])
async def test_approval_holds_for_links_and_for_more_files_than_are_shown(people: Stack, exchanged: str | None) -> None:
    """A folder of that name is not a file of the command; a file at the top is shown even if others share its name."""
    make = "for i in $(seq 60); do mkdir -p many/$i run.d; cp deploy.sh many/$i/; done; ln -s deploy.sh run"
    change = f"rm -f {exchanged}; echo touch bad > {exchanged}" if exchanged else "true"
    script = steps([write(GOOD)], [bash(make)], [bash("sh ./run run.d"), bash(change)], [bash("sh run")])
    task_id = await people.submit(script, "asker", permissions=GATE)
    [request] = await waiting(people, task_id)
    shown = request["details"]["files"]
    assert [one["path"] for one in shown[:3]] == ["deploy.sh", "run", "many/1/deploy.sh"]
    assert (shown[1]["text"], len(shown), request["details"]["more_files"]["count"]) == ("a link to deploy.sh", 50, 12)

    async def changed() -> bool:
        version = await people.pool.fetchval("SELECT version FROM workspaces WHERE id = $1", task_id)
        return bool(version >= 3) or exchanged is None

    await eventually(changed, what="the file is exchanged")
    await answer(people, task_id, request["id"], {"approved": True})
    [again] = await waiting(people, task_id)
    await answer(people, task_id, again["id"], {"approved": False})
    await people.wait(task_id)
    assert await made(people, task_id) == ([] if exchanged else ["good"])


async def test_approved_command_waits_for_calls_that_could_exchange_its_files(people: Stack) -> None:
    """A second command keeps writing the bad script, and restores the good one at its end."""
    swap = "for i in $(seq 60); do echo touch bad > deploy.sh; sleep 0.05; done; echo touch good > deploy.sh"
    script = steps([write(GOOD)], [bash("sh deploy.sh"), bash(swap)])
    task_id = await people.submit(script, "asker", permissions=GATE)
    [request] = await waiting(people, task_id)
    await asyncio.sleep(0.3)
    await answer(people, task_id, request["id"], {"approved": True})
    record = await people.wait(task_id)
    assert record["reason"] == "goal_reached"
    assert await made(people, task_id) == ["good"]


async def test_approval_of_another_call_is_refused_where_the_call_is_made(people: Stack) -> None:
    """The activity itself checks this: an approval for one call runs no other call, for any caller."""
    task_id = await people.submit(calls(bash("sh -c true")), "asker", permissions=GATE)
    [request] = await waiting(people, task_id)
    await answered(people, task_id, {"approved": True})
    unused: Any = None  # the call is refused before any of these is used
    runner = RunTool(people.pool, {"bash": BASH}, *[unused] * 9)
    other = ToolRequest(
        ref=SessionRef(tenant="default", session_id=task_id, conversation_id=task_id),
        agent=AgentRef(name="asker", owner="default", version=1),
        step=1,
        node=new_id(),
        index=0,
        name="bash",
        effect=BASH.effect,
        workspace_id=task_id,
        approval=request["id"],
    )
    with pytest.raises(ApplicationError, match="This call was not approved"):
        await runner._load_call(other, unused, BASH, unused, {})

"""Records one history per scenario (`python -m tests.histories.record`), which changed workflows must still replay.

With names it records only those scenarios, and leaves the others as they are.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from temporalio.client import Client, WorkflowHistory

from domain.agents.hook import HookPoint
from tests.behaviour.conversations.talk import AGENTS as TEAM
from tests.behaviour.graphs.duet import call, declared_tool, define, prompt
from tests.behaviour.supervision.people import answer, waiting
from tests.histories.mcp_scenarios import MCP_SCENARIOS
from tests.histories.tree_scenarios import TREE_SCENARIOS, renewed
from tests.support.launch import TESTER, embedded
from tests.support.locks import ending, locked
from tests.support.own_worker import platform
from tests.support.stack import Stack, calls, eventually, steps

FOLDER = Path(__file__).parent
SUGGEST = {"limit.historyCount.suggestContinueAsNew": "60"}
LOOK = ("list_files", {"path": "."})
MENDS = '[[script:tools json=[{"name": "write_file", "input": {"path": "x", "content": "x"}}]]]'
HANGS = "[[script:say words=30]] [[fault:hang after=6]]"
PLANS = (
    [("update_plan", {"steps": [{"title": "look", "status": "in_progress"}]})],
    [("update_plan", {"steps": [{"title": "build", "status": "in_progress"}], "reason": "it was broken"})],
)


async def _run(stack: Stack, text: str, agent: str = "tester", **config: Any) -> str:
    task_id: str = (await stack.run(text, agent, config=config))["task_id"]
    await stack.session(task_id).result()  # its row has ended before its workflow
    return task_id


async def _hooked(stack: Stack) -> str:
    """Hooks at every point; one of them refuses a call."""
    hooks = [*(f"notes.{point}" for point in HookPoint), "guards", "adds_note"]
    definition = {**TESTER, "name": "hooked", "hooks": hooks}
    (await stack.http.put("/agents/hooked", json=definition)).raise_for_status()
    return await _run(stack, calls(LOOK, ("list_files", {"path": "forbidden"})), "hooked")


async def _judged(stack: Stack, criteria: list[Any]) -> str:
    task_id: str = (await stack.run("[[script:say text=done]]", acceptance_criteria=criteria))["task_id"]
    return task_id


async def _cancelled_waiting(stack: Stack) -> str:
    """A session that is stopped while none of its activities runs."""
    task_id = await stack.submit(calls(LOOK), permissions=[{"permission": "list_files", "action": "ask"}])
    await waiting(stack, task_id)
    await stack.cancel(task_id)
    await stack.wait(task_id)
    return task_id


async def _message_at_the_end(stack: Stack) -> str:
    """A message that arrives while the ending is written."""
    async with ending(stack, "[[script:say text=x]]") as task_id:
        (await stack.http.post(f"/tasks/{task_id}/steer", json={"message": "And then?"})).raise_for_status()
    return task_id


async def _cancelled(stack: Stack, text: str, seen: str, **how: str) -> str:
    task_id = await stack.submit(text)
    await stack.seen(task_id, seen)
    await stack.cancel(task_id, **how)
    await stack.wait(task_id)
    return task_id


async def _answered(stack: Stack, text: str, agent: str, answers: dict[str, list[Any]], **spec: Any) -> str:
    """Answer each open request, in the order of its kind."""
    return await _answer_all(stack, await stack.submit(text, agent, **spec), answers)


async def _answer_all(stack: Stack, task_id: str, answers: dict[str, list[Any]]) -> str:
    while not (await stack.record(task_id))["ended_at"]:
        for request in reversed((await stack.http.get(f"/tasks/{task_id}/input-requests")).json()["items"]):
            if request["status"] == "open":
                body = {"response_to": request["id"], "input": answers[request["kind"]].pop(0)}
                (await stack.http.post(f"/tasks/{task_id}/input", json=body)).raise_for_status()
    return task_id


async def _questions(stack: Stack) -> str:
    """A plan, a question and two gated calls, one of them denied."""
    script = steps(
        [("update_plan", {"steps": [{"title": "look"}]})],
        [("ask_user", {"question": "Which?"}), ("bash", {"command": "echo a"}), ("bash", {"command": "echo b"})],
    )
    answers: dict[str, list[Any]] = {
        "plan_approval": [{"approved": True}],
        "clarification": ["this one"],
        "tool_approval": [{"approved": True}, {"approved": False, "notes": "no"}],
    }
    gated = [{"permission": "bash", "action": "ask"}]
    return await _answered(stack, script, "asker", answers, permissions=gated, config={"approval_required": True})


async def _raised(stack: Stack) -> str:
    """A question at the last step of the limit; then the limits of steps and time are raised."""
    config = {"max_steps": 1, "ttl": 60_000}
    task_id = await stack.submit(steps([("ask_user", {"question": "Which?"})], [LOOK]), "asker", config=config)
    [request] = await waiting(stack, task_id)
    more = {"max_steps": 5, "ttl": 90_000}
    (await stack.http.post(f"/tasks/{task_id}/budget", json=more)).raise_for_status()
    (await answer(stack, task_id, request["id"], "this one")).raise_for_status()
    await stack.wait(task_id)
    return task_id


async def _external(stack: Stack) -> str:
    """A variable that is missing at first, then two calls of an external tool, one of which fails."""
    tool = {"name": "look_up", "description": "Looks up.", "input_schema": {"type": "object"}}
    script = calls(("look_up", {"n": 1}), ("look_up", {"n": 2}), LOOK)
    answers = {
        "missing_variables": [{"city": "Oslo"}],
        "external_result": [{"result": "found"}, {"error": "not found"}],
    }
    return await _answered(stack, script, "guide", answers, config={"external_tools": [tool]})


async def _event(stack: Stack) -> str:
    """A wait that an event of another agent ends, and one that expires."""
    waits = steps([("wait_for_event", {"key": "a:b"})], [("wait_for_event", {"key": "x", "timeout_s": 1})])
    task_id = await stack.submit(waits, "listener")

    async def waiting() -> bool:
        listed = (await stack.http.get(f"/tasks/{task_id}/input-requests")).json()["items"]
        return any(one["status"] == "open" for one in listed)

    await eventually(waiting)
    await stack.run(calls(("emit_event", {"name": "a:b"})), "listener")
    await stack.wait(task_id)
    return task_id


async def _slow(stack: Stack) -> str:
    """Bookkeeping that is too slow for a local activity."""
    async with locked(stack.pool, "tool_calls"):
        task_id = await stack.submit(calls(("report_progress", {"message": "x"})))
        await stack.seen(task_id, "step_started")
        handle = stack.session(task_id)

        async def queued() -> bool:
            return "tool.report_progress" in (await handle.fetch_history()).to_json()

        await eventually(queued)
    await stack.wait(task_id)
    return task_id


async def _duet(stack: Stack, name: str, most_turns: int) -> str:
    """Two sides that answer each other until the turn limit."""
    a, b = prompt(f"{name}-a", "Ping."), prompt(f"{name}-b", "Pong.")
    return await define(stack, name, a, b, max_session_turns=most_turns)


async def _turn_limit(stack: Stack) -> str:
    return await _run(stack, "Play.", await _duet(stack, "ping-pong", 3))


async def _with_immediate(stack: Stack) -> None:
    """An agent with an immediate subagent, and an agent that hands over to it."""
    approve = declared_tool("approve", "summary")
    reviewer = prompt("scout-b", {"calls": [call("approve", summary="Seen.")]}, tools=(approve,))
    stop = {"session_stop": {"name": "approve", "message_property": "summary"}}
    await define(stack, "scout", prompt("scout-a", "Looking."), reviewer, side_b=stop, expose_as_tool=True)
    starts = {"subagent_tools": [{"name": "scout", "immediate": True}], "expose_as_tool": True}
    agents: list[dict[str, Any]] = [
        {**TESTER, "name": "starter", **starts},
        {**TESTER, "name": "desk", "handoffs": ["starter"]},
    ]
    await stack.define(*agents)


async def _immediate(stack: Stack) -> str:
    await _with_immediate(stack)
    return await _run(stack, "[[script:say text=x]]", "starter")


async def _immediate_after_handoff(stack: Stack) -> str:
    await _with_immediate(stack)
    return await _run(stack, calls(("starter", {})), "desk")


AGENTS: list[dict[str, Any]] = [
    {**TESTER, "name": "asker", "may_ask": True},
    {**TESTER, "name": "listener", "tools": ["wait_for_event", "emit_event"]},
    {**TESTER, "name": "guide", "may_ask": True, "variables": {"city": "where to look"}},
]
SCENARIOS: dict[str, Callable[[Stack], Awaitable[str]]] = {
    "tool_loop": lambda stack: _run(stack, "[[script:count n=2]]"),
    "message_at_the_end": _message_at_the_end,
    "hooked": _hooked,
    "queued_tool": lambda stack: _run(stack, "[[script:count n=2 tool=bash]]"),
    "slow_bookkeeping": _slow,
    "parallel_tools": lambda stack: _run(stack, calls(LOOK, LOOK, ("report_progress", {"message": "x"}))),
    "replanning": lambda stack: _run(stack, steps(*PLANS)),
    "step_limit": lambda stack: _run(stack, "[[script:forever]]", max_steps=2),
    "ttl": lambda stack: _run(stack, HANGS, ttl=2_000),
    "cancel_model": lambda stack: _cancelled(stack, HANGS, "message_delta"),
    "cancel_tools": lambda stack: _cancelled(stack, calls(("bash", {"command": "sleep 60"}), LOOK), "tool_called"),
    "cancel_waiting": _cancelled_waiting,
    "fallback": lambda stack: _run(stack, "[[script:say text=x]] [[fault:404]]", "assistant"),
    "compaction": lambda stack: _run(stack, "[[script:count n=3]] [[fault:413 at=2]]"),
    "acceptance": lambda stack: _judged(stack, [{"kind": "command", "run": f"test -f x # {MENDS}"}, "it is good"]),
    "loop": lambda stack: _run(stack, '[[script:repeat json=[[{"name": "list_files"}]]]]'),
    "graceful": lambda stack: _cancelled(
        stack, calls(("bash", {"command": "sleep 2"}), LOOK), "tool_called", mode="graceful"
    ),
    "error": lambda stack: _run(stack, "[[fault:auth]]"),
    "input_requests": _questions,
    "raised_limits": _raised,
    "external_results": _external,
    "event_wait": _event,
    "dual": lambda stack: _run(stack, "Oak tree", "asset_subagent"),
    "dual_turn_limit": _turn_limit,
    "handlers": lambda stack: _run(stack, "Should we?", "panel"),
    "immediate": _immediate,
    "immediate_after_handoff": _immediate_after_handoff,
}
CONTINUED = "continue_as_new"
DUAL_CONTINUED = "dual_continue_as_new"
RENEWED = "renewed"
CHAINS = (CONTINUED, DUAL_CONTINUED, RENEWED)


async def record(names: list[str]) -> None:
    for old in FOLDER.glob("*.json"):
        name = old.stem.partition(".")[0]
        if not names or name in names:
            old.unlink()
    async with embedded() as stack:
        await stack.define(*AGENTS, *TEAM)
        for name, scenario in SCENARIOS.items():
            if not names or name in names:
                task_id = await scenario(stack)
                await stack.session(task_id).result()
                await _save(name, stack.client, f"session/{task_id}")
        for name, tree_scenario in (TREE_SCENARIOS | MCP_SCENARIOS).items():
            if not names or name in names:
                await _save(name, stack.client, await tree_scenario(stack))
        if not names or set(CHAINS) & set(names):
            await _continued(stack, names or list(CHAINS))


async def _continued(stack: Stack, names: list[str]) -> None:
    """Histories that soon become long: a session's, and a conversation's."""
    with TemporaryDirectory() as folder:
        async with platform(stack, Path(folder), SUGGEST) as own:
            if CONTINUED in names:
                await _save_chain(CONTINUED, own.client, f"session/{await _run(own, '[[script:count n=18]]')}")
            if DUAL_CONTINUED in names:
                duet = await _run(own, "Play.", await _duet(own, "long-game", 16))
                await _save_chain(DUAL_CONTINUED, own.client, f"session/{duet}")
            if RENEWED in names:
                await own.define(*TEAM)
                await _save_chain(RENEWED, own.client, await renewed(own))


async def _save_chain(name: str, client: Client, workflow_id: str) -> None:
    """Each run of the chain is a separate history."""
    described = await client.get_workflow_handle(workflow_id).describe()
    run_id, number = described.raw_description.workflow_execution_info.first_run_id, 0
    while run_id:
        number += 1
        history = await _save(f"{name}.{number}", client, workflow_id, run_id)
        last = history.events[-1]
        run_id = last.workflow_execution_continued_as_new_event_attributes.new_execution_run_id


async def _save(name: str, client: Client, workflow_id: str, run_id: str | None = None) -> WorkflowHistory:
    history = await client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history()
    content = _without_machine(json.loads(history.to_json()))
    (FOLDER / f"{name}.json").write_text(json.dumps({"id": workflow_id, "history": content}, indent=1) + "\n")
    click.echo(f"{name}: {len(history.events)} events")
    return history


def _without_machine(value: Any) -> Any:
    """Remove the machine's name and the path of the code there."""
    if isinstance(value, list):
        return [_without_machine(item) for item in value]
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if key != "stackTrace"}
        return {key: "worker" if key == "identity" else _without_machine(item) for key, item in kept.items()}
    return value


if __name__ == "__main__":
    asyncio.run(record(sys.argv[1:]))

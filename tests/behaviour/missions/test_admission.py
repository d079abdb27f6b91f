"""A mission that may not run now is not woken by anything, and turns of callers in its conversation are runs of it."""

from typing import Any

import pytest
import pytest_asyncio

from domain.conversations.requests import InboxKind, Steer
from domain.ids import new_id
from domain.sessions.writes import ThreadMessage
from store import conversations
from tests.behaviour.conversations.talk import ALLOWED, Gate, agent, async_task, chain, say
from tests.behaviour.missions.test_missions import create, finished, show
from tests.behaviour.schedules.clock import create as schedule
from tests.behaviour.schedules.clock import trigger
from tests.behaviour.supervision.people import answer, waiting
from tests.support.stack import Stack, calls, eventually
from workflows.client import WorkflowClient

BACKGROUND = ["start_background_agent", "wait_for"]
TOOLS = ["subscribe_events", "emit_event", "send_agent_message", "ask_agent", "async_task", "bash", *BACKGROUND]
PROBLEM = "urn:errand:problem:"


@pytest_asyncio.fixture
async def agents(stack: Stack) -> Stack:
    for definition in (
        agent("helper", mode="subagent", tools=TOOLS),
        agent("mate", "helper", tools=TOOLS),
        agent("digger", "helper", mode="subagent", tools=TOOLS, permissions=[ALLOWED]),
        agent("foreman", "digger", tools=TOOLS, max_depth=3),
    ):
        assert (await stack.http.put(f"/agents/{definition['name']}", json=definition)).is_success
    return stack


async def results(stack: Stack, text: str) -> list[str]:
    """Return the results of the calls of an agent outside of any mission."""
    task = await stack.run(text, agent="mate")
    nodes = await stack.nodes(task["task_id"])
    return [one["text"] for node in nodes if node["kind"] == "tool_results" for one in node["body"]["results"]]


def reach(agent_id: str, event: str) -> str:
    """Return a script with every way in which an agent can reach another."""
    return chain(
        [("emit_event", {"name": event, "data": {}})],
        [("send_agent_message", {"agent_id": agent_id, "message": "hello"})],
        [("ask_agent", {"agent_id": agent_id, "prompt": "hello"})],
        last="ok",
    )


async def turn(stack: Stack, conversation_id: str, text: str) -> Any:
    body = {"conversation_id": conversation_id, "input": text, "transport": "stream"}
    return await stack.http.post("/conversations/run", json=body)


async def sessions_of(stack: Stack, conversation_id: str) -> list[str]:
    rows = await stack.pool.fetch(
        "SELECT id FROM sessions WHERE conversation_id = $1 AND spawned_by IS NULL ORDER BY created_at", conversation_id
    )
    return [row["id"] for row in rows]


async def test_nothing_wakes_a_mission_with_a_spent_budget_and_its_next_run_reads_the_messages(agents: Stack) -> None:
    mark = new_id()
    listen = chain([("subscribe_events", {"pattern": f"b:{mark}"})], [async_task(say("Part."))], last="Off.")
    made = await create(agents, per_day={"runs": 1, "tokens": 100_000}, task={"agent": "mate", "input": listen})
    own = made["conversation_id"]
    await finished(agents, made)
    emitted, *refused = await results(agents, reach(own, f"b:{mark}"))
    assert emitted == f"Emitted b:{mark}. It reached 1 agent."
    spent = "Nothing was sent, as that agent does not run now: the day's budget of runs is used up."
    assert refused == [spent, spent]
    # a message that was sent while the last run could still have read it
    left = ThreadMessage(
        id=new_id(), conversation_id=own, thread_id=own, text=f"left {mark}", kind=InboxKind.SYSTEM, author=new_id()
    )
    await conversations.add_message(agents.pool, "default", left)
    steer = Steer(request_id=left.id, thread=own, message=left.id, wake=True)
    await WorkflowClient(agents.client, agents.settings.task_queue).steer("default", own, steer)
    late = await turn(agents, own, "more")
    assert (late.status_code, late.json()["type"]) == (409, f"{PROBLEM}mission-budget-spent"), late.text
    fired = f"/conversations/{own}/fire"

    async def held() -> bool:
        answer = await agents.http.post(fired, json={"transport": "stream"})
        assert answer.status_code in (409, 422), answer.text  # 422 until the outcome has arrived
        return bool(answer.json()["type"] == f"{PROBLEM}mission-budget-spent")

    await eventually(held)
    assert len(await sessions_of(agents, own)) == 1 and (await show(agents, made))["total"]["runs"] == 1
    yesterday = "UPDATE sessions SET created_at = created_at - interval '1 day' WHERE conversation_id = $1"
    await agents.pool.execute(yesterday, own)
    answer = await agents.http.post(fired, json={"transport": "stream"})
    assert answer.status_code == 202, answer.text
    second = await agents.wait(answer.json()["session_id"])
    read = str(await agents.nodes(second["task_id"]))
    assert f'type="b:{mark}"' in read and f"left {mark}" in read
    rules = await agents.pool.fetchval("SELECT rules FROM sessions WHERE id = $1", second["task_id"])
    assert made["id"] in rules and (await show(agents, made))["today"]["runs"] == 1
    await agents.pool.execute(yesterday, own)
    # the limit that an earlier run left
    await agents.pool.execute("UPDATE budgets SET max_tokens = 1 WHERE conversation_id = $1", own)
    [sent] = await results(agents, chain([("ask_agent", {"agent_id": own, "prompt": say("I am back")})]))
    assert sent == "I am back" and (await show(agents, made))["today"]["runs"] == 1


@pytest.mark.proves("S2-19")
async def test_background_agents_are_listed_running_queued_and_idle_and_wait_while_their_mission_is_paused(
    agents: Stack,
) -> None:
    """The digger is woken by its background agent, which reports while the mission is paused."""
    gate = Gate()

    def background(prompt: str, **more: str) -> tuple[str, dict[str, str]]:
        return "start_background_agent", {"prompt": prompt, **more}

    def send(message: str) -> tuple[str, dict[str, str]]:
        return "send_agent_message", {"message": say(message)}

    deep = chain([gate.call], [send("It was read.")], last="Sent.")
    dig = chain([background(deep, name="deep")], [send("Noted.")], last="Begun.")
    made = await create(
        agents, task={"agent": "foreman", "input": chain([background(dig, name="digger")], last="Off.")}
    )
    own = made["conversation_id"]
    await finished(agents, made)

    async def listed(state: str, pending: int, name: str = "digger") -> dict[str, Any]:
        async def look() -> dict[str, Any] | None:
            threads = (await agents.http.get(f"/conversations/{own}")).json()["threads"]
            found = [one for one in threads if one["name"] == name]
            return next((one for one in found if (one["state"], one["pending"]) == (state, pending)), None)

        return await eventually(look, what=f"{name} {state}")

    deeper = await listed("running", 0, "deep")
    idle = await listed("idle", 0)
    assert idle["parent_thread_id"] == own and deeper["parent_thread_id"] == idle["thread_id"]
    assert deeper["updated_at"] >= deeper["created_at"] >= idle["created_at"]
    await agents.http.post(f"/schedules/{made['id']}/pause", json={"reason": "holiday"})
    gate.open()
    await listed("idle", 0, "deep")
    assert await listed("queued", 1) == {**idle, "state": "queued", "pending": 1}
    await WorkflowClient(agents.client, agents.settings.task_queue).reopen("default", own, reload=True)
    assert (await agents.http.post(f"/schedules/{made['id']}/resume")).json()["paused"] is False
    woken = await listed("idle", 0)
    assert woken["updated_at"] > idle["updated_at"]
    rows = await agents.pool.fetch(
        "SELECT output FROM sessions WHERE thread_id = $1 ORDER BY created_at", idle["thread_id"]
    )
    assert [row["output"] for row in rows][:2] == ["Begun.", "It was read."]


async def test_turns_of_callers_and_other_schedules_in_a_mission_are_runs_of_it(stack: Stack) -> None:
    made = await create(stack, risks=[{"tool": "bash", "argument": "*push*"}], total={"runs": 4, "tokens": 100_000})
    await finished(stack, made)
    own, push = made["conversation_id"], calls(("bash", {"command": "echo push"}))
    other = await schedule(stack, push, conversation_id=own)
    accepted = (await turn(stack, own, push)).json()
    for session_id in (accepted["session_id"], None):
        session_id = session_id or (await trigger(stack, other["id"]))["session_id"]
        [request] = await waiting(stack, session_id)
        assert request["details"]["risk"]["argument"] == "*push*"
        shown = await show(stack, made)
        assert shown["paused"] and shown["pause_reason"].startswith("risk: ")
        refused = await turn(stack, own, "more")
        assert refused.status_code == 409, refused.text
        await answer(stack, session_id, request["id"], {"approved": True})
        assert (await stack.wait(session_id))["status"] == "completed"
    await stack.http.post(f"/schedules/{made['id']}/pause", json={"reason": "holiday"})
    held = await trigger(stack, other["id"])
    assert (held["status"], held["reason"]) == ("skipped", "the mission is paused: holiday")
    await stack.http.post(f"/schedules/{made['id']}/resume")
    tree = {"max_tokens": 900_000, "max_cost_usd": 0.5, "max_tool_calls": 7}
    wide = {"input": say("last"), "transport": "stream", "config": {"tree": tree}}
    last = await stack.http.post(f"/conversations/{own}/messages", json=wide)
    assert last.status_code == 202, last.text
    limits = dict(await stack.pool.fetchrow("SELECT * FROM budgets WHERE conversation_id = $1", own) or {})
    # a caller lowers the limits of the mission and cannot raise them
    assert {name: limits[name] for name in tree} == {**tree, "max_tokens": 100_000}
    await stack.wait(last.json()["session_id"])

    async def ended() -> bool:
        return bool((await show(stack, made))["reason"] == "its budget of runs is used up")

    await eventually(ended)

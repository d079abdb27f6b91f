"""What starts work on a thread: a user's message, a queued message, a queued tool, a scheduled effect. While the thread
is running, each of them waits in order."""

from typing import Any

import pytest
import pytest_asyncio

from store.sessions import SessionRow
from tests.behaviour.conversations.talk import Gate, Talk, agent, asked, chain, say
from tests.behaviour.schedules.clock import create, trigger
from tests.support.stack import Stack, eventually

MESSAGE = "Subagent (reference: "


@pytest_asyncio.fixture(scope="module", autouse=True)
async def family(stack: Stack) -> None:
    sides: dict[str, Any] = {"side_a": {"label": "Worker"}, "side_b": {"handler": "hand_in"}, "expose_as_tool": True}
    tools = ["list_files", "wait_for", "defer"]
    for one in (
        agent("be_child", **sides),
        agent("be_lead", subagent_tools=[{"name": "be_child", "blocking": False}], tools=tools),
        agent("be_later", hooks=["queues_once"], tools=tools),
    ):
        answer = await stack.http.put(f"/agents/{one['name']}", json=one)
        assert answer.is_success, answer.text


async def of_root(talk: Talk, count: int) -> list[SessionRow]:
    """Return the sessions of the main thread, once there are this many and all have ended."""

    async def look() -> list[SessionRow] | None:
        # sort by time: the id of a woken session derives from the session that woke it, and may sort before it
        found = [row for row in await talk.sessions() if row.thread_id == talk.id]
        rows = sorted(found, key=lambda row: row.created_at)
        return rows if len(rows) >= count and all(row.status.terminal for row in rows) else None

    return await eventually(look, what=f"{count} sessions of {talk.id}")


async def calls(stack: Stack, session_id: str) -> list[tuple[bool, list[str]]]:
    """Return for each reply whether it is the platform's, and the tools that it calls."""
    replies = [node["body"] for node in await stack.nodes(session_id) if node["kind"] == "assistant"]
    return [
        (bool(body.get("immediate")), [one["name"] for one in body["content"] if "name" in one]) for body in replies
    ]


@pytest.mark.proves("S4-B02")
async def test_four_triggers_begin_work_on_an_idle_thread_and_wait_for_a_busy_one(stack: Stack) -> None:
    gate, late = Gate(), Gate()
    child = ("be_child", {"message": late.then("Found.")})
    busy = chain([child, gate.call], [("defer", {"tool": "list_files"})], last="Off.")
    talk = await Talk.begin(stack, busy, "be_lead")  # a user's message starts work
    await stack.seen(talk.id, "tool_called", tool="wait_for")
    waiting = await talk.say(say("Second."), if_busy="queue")  # another message waits
    assert (await talk.session(waiting)).status == "submitted"
    [worker] = await eventually(talk.children)  # it begins beside the call that was seen
    late.open()
    await talk.ended(worker.id)
    gate.open()
    first, second = await of_root(talk, 2)
    assert (second.id, second.output) == (waiting, "Second.")
    assert first.ended_at is not None and second.started_at is not None and second.started_at >= first.ended_at
    # the queued message entered the running session, and the queued tool ran before its next model step
    assert [one[: len(MESSAGE)] for one in await talk.prompts(first.id)][1:] == [MESSAGE]
    platform = [tools for own, tools in await calls(stack, first.id) if own]
    assert platform == [["list_files"]]
    [ref] = [line for line in (await talk.prompts(first.id))[0].splitlines() if line.startswith("ref ")]
    assert "queued_" not in str(await asked(stack, ref))  # the model is shown the result as text

    # a queued message starts a turn on an idle thread
    again = Gate()
    await talk.ended(await talk.say(chain([("be_child", {"message": again.then("More.")})], last="Off.")))
    again.open()
    *_, woken = await of_root(talk, 4)
    assert [one[: len(MESSAGE)] for one in await talk.prompts(woken.id)] == [MESSAGE]

    # so does a queued tool: the model is shown its result first
    later = await Talk.done(stack, say("Off."), "be_later")
    _, turn = await of_root(later, 2)
    assert (await calls(stack, turn.id))[0] == (True, ["list_files"]) and turn.status == "completed"
    assert await later.prompts(turn.id) == []

    # a scheduled effect starts a session; the next one waits until that session has ended
    hold = Gate()
    made = await create(stack, hold.then("By the clock."), agent="be_lead", context="continue", overlap="queue")
    one, two = await trigger(stack, made["id"]), await trigger(stack, made["id"])
    await stack.seen(one["session_id"], "tool_called", tool="wait_for")
    assert (await talk.session(two["session_id"])).status == "submitted"
    hold.open()
    for run in (one, two):
        assert (await stack.wait(run["session_id"]))["status"] == "completed"

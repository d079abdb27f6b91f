"""The modes of a subagent; its thread, workspace and status; the side that receives its messages; how each begins."""

import json
from typing import Any

import pytest
import pytest_asyncio

from store.sessions import SessionRow
from tests.behaviour.conversations.talk import Gate, Talk, agent, asked, chain, say
from tests.behaviour.graphs.duet import call, declared_tool, define, prompt
from tests.behaviour.schedules.clock import create, trigger
from tests.support.stack import Stack, eventually, of_type

STOP = {"name": "approve", "message_property": "summary"}
STATUS = {"name": "status", "message_property": "text"}


@pytest_asyncio.fixture(scope="module", autouse=True)
async def family(stack: Stack) -> None:
    approve = declared_tool("approve", "summary")
    approver = {"calls": [call("approve", summary="Fine.")]}
    worker = prompt("mo_worker", "A draft.")
    reviewer = prompt("mo_reviewer", approver, tools=(approve,))
    sides: dict[str, Any] = {"side_b": {"session_stop": STOP}, "expose_as_tool": True, "max_session_turns": 6}
    await define(stack, "mo_pair", worker, reviewer, **sides)
    for blocking in (True, False):
        for resumable in (True, False):
            name = f"mo_{'waits' if blocking else 'goes'}_{'keeps' if resumable else 'drops'}"
            config = [{"name": "mo_pair", "blocking": blocking, "resumable": resumable}]
            assert (await stack.http.put(f"/agents/{name}", json=agent(name, subagent_tools=config))).is_success


@pytest.mark.proves("S4-15")
@pytest.mark.parametrize("blocking", ["waits", "goes"])
@pytest.mark.parametrize("resumable", ["keeps", "drops"])
async def test_each_mode_waits_or_not_and_persists_or_not(stack: Stack, blocking: str, resumable: str) -> None:
    tool: Any = ("mo_pair", {"message": "Draft it."})
    if resumable == "keeps":
        tool = ("subagent_create", {"agent": "mo_pair", "name": "ann", "message": "Draft it."})
    again: Any = ("subagent_message", {"target": "ann", "message": "Once more."})
    last = "Off." if blocking == "goes" else ""
    talk = await Talk.done(stack, chain([tool], last=last), f"mo_{blocking}_{resumable}")
    await talk.rest()
    [child] = await talk.children()
    # it has its own thread, workspace and registry entry
    parent = await talk.session(talk.id)
    assert child.thread_id != parent.thread_id and child.workspace_id != parent.workspace_id
    [entry] = (await talk.shown())["children"]
    assert (entry["reference"], entry["blocking"], entry["resumable"]) == (
        child.thread_id,
        blocking == "waits",
        resumable == "keeps",
    )
    if blocking == "waits":
        assert "has returned the following result" in (await talk.results())[0]  # the result of the call itself
    else:

        async def delivered() -> bool:
            """Return whether the result arrived, in a separate turn or at the next step of a running one."""
            own = [row.id for row in await talk.sessions() if row.thread_id == talk.id]
            nodes = [node for id in own for node in await stack.nodes(id)]
            return any("has returned the following result" in str(node["body"]) for node in nodes)

        await eventually(delivered, what="the result came later")
        await talk.rest()
    # the first of two messages of one step begins the instance's next session, and the second is for that one too
    second = await talk.say(chain([again, ("subagent_message", {**again[1], "message": "And more."})], last=last))
    await talk.ended(second)
    await talk.rest()

    async def count_read() -> tuple[int, int]:
        read = [prompt for row in await talk.children() for prompt in await talk.prompts(row.id)]
        return str(read).count("Once more."), str(read).count("And more.")

    if resumable == "keeps":

        async def read() -> bool:
            return 0 not in await count_read()

        await eventually(read, what="both are read")
        await talk.rest()
    sessions = await talk.children()
    assert len({row.thread_id for row in sessions}) == 1
    assert (len(sessions) > 1, await count_read()) == ((True, (1, 1)) if resumable == "keeps" else (False, (0, 0)))


@pytest.mark.proves("S4-15", "S4-27")  # the parent has ended while the child is running
async def test_status_of_a_child_is_in_its_parents_registry_while_it_works(stack: Stack) -> None:
    gate = Gate()
    approve, status = declared_tool("approve", "summary"), declared_tool("status", "text")
    waits = prompt(
        "mo_waits",
        {"calls": [call("status", text="half done")]},
        {"calls": [call("wait_for", path=str(gate.path))]},
        "A draft.",
        tools=(status, "wait_for"),
    )
    reviewer = prompt("mo_final", {"calls": [call("approve", summary="Fine.")]}, tools=(approve,))
    fields: dict[str, Any] = {"side_a": {"session_status": STATUS}, "side_b": {"session_stop": STOP}}
    await define(stack, "mo_status", waits, reviewer, **fields, expose_as_tool=True, max_session_turns=6)
    lead = agent("mo_lead", subagent_tools=[{"name": "mo_status", "blocking": False}])
    assert (await stack.http.put("/agents/mo_lead", json=lead)).is_success
    talk = await Talk.done(stack, chain([("mo_status", {"message": "Go."})], last="Off."), "mo_lead")

    async def half_done() -> bool:
        [entry] = (await talk.shown())["children"]
        return bool(entry["status"] == "half done")

    await eventually(half_done, what="the status in the registry")
    [child] = await talk.children()
    assert not child.status.terminal  # the status ended nothing
    gate.open()
    await talk.rest()
    [entry] = (await talk.shown())["children"]
    assert entry["status"] == "completed"


@pytest.mark.proves("S4-14")
async def test_child_has_two_ai_sides_and_messages_files_a_queue_and_a_life_of_its_own(stack: Stack) -> None:
    gate = Gate()
    approve = declared_tool("approve", "summary")
    writes = {"calls": [call("write_file", path="theirs.txt", content="x"), call("list_files", path=".")]}
    waits = {"calls": [call("wait_for", path=str(gate.path))]}
    worker = prompt("mo_apart", waits, writes, "A draft.", tools=("wait_for", "write_file", "list_files"))
    reviewer = prompt("mo_apart_b", {"calls": [call("approve", summary="Fine.")]}, tools=(approve,))
    await define(stack, "mo_own", worker, reviewer, side_b={"session_stop": STOP}, expose_as_tool=True)
    tools = ["write_file", "list_files"]  # not all that its child has
    lead = agent("mo_owner", subagent_tools=[{"name": "mo_own", "blocking": False, "resumable": True}])
    assert (await stack.http.put("/agents/mo_owner", json={**lead, "tools": tools})).is_success
    steps: list[Any] = [
        ("write_file", {"path": "mine.txt", "content": "x"}),
        ("subagent_create", {"agent": "mo_own", "name": "ann", "message": "Draft it."}),
        ("subagent_message", {"target": "ann", "message": "Queued for ann."}),
    ]
    talk = await Talk.done(stack, chain(*[[one] for one in steps], last="Off."), "mo_owner")
    child = await talk.child()
    # the parent has ended and takes another turn, while the child is running and its queue waits
    second = await talk.say(chain([("list_files", {"path": "."})]))
    listed = (await talk.results(second))[0]
    assert "mine.txt" in listed and not (await talk.session(child.id)).status.terminal
    gate.open()
    await talk.rest()
    parent = await talk.session(talk.id)
    assert child.thread_id != parent.thread_id and child.spawned_by == parent.id
    began = of_type(await stack.events(child.id), "step_started")
    assert {event["description"].partition(":")[0] for event in began} == {"Worker", "Reviewer"}
    human = {**lead, "name": "mo_wrong", "subagent_tools": [{"name": "mo_owner"}]}
    refused = await stack.http.put("/agents/mo_wrong", json=human)
    assert refused.status_code == 422 and "has a human side, so it cannot be a subagent" in refused.text
    assert await talk.prompts(child.id) == ["Draft it.", "Queued for ann."]
    own = [one for row in await talk.sessions() if row.thread_id == talk.id for one in await talk.prompts(row.id)]
    assert not [one for one in own if one in ("Draft it.", "Queued for ann.")]
    seen = [str(node["body"]) for node in await stack.nodes(child.id) if node["kind"] == "tool_results"]
    assert any("theirs.txt" in one for one in seen) and not any("mine.txt" in one for one in seen)
    third = await talk.say_when_idle(chain([("list_files", {"path": "."})]))  # the report may just be read
    assert "theirs.txt" not in (await talk.results(third))[0]
    [entry] = (await talk.shown())["children"]
    assert (entry["reference"], entry["name"], entry["status"]) == (child.thread_id, "ann", "completed")


@pytest.mark.proves("S4-B06")
@pytest.mark.parametrize(("side", "role"), [("side_a", "user"), ("side_b", "assistant")])
async def test_parents_message_arrives_for_the_side_that_receives_it(stack: Stack, side: str, role: str) -> None:
    config = [{"name": "mo_pair", "resumable": {"receives_messages": side}}]
    name = f"mo_to_{side}"
    assert (await stack.http.put(f"/agents/{name}", json=agent(name, subagent_tools=config))).is_success
    text = f"Draft it. mo-{side}"
    await Talk.done(stack, chain([("subagent_create", {"agent": "mo_pair", "name": "ann", "message": text})]), name)
    first = next(one for one in await asked(stack, text) if "[[script:turns" in json.dumps(one["system"]))
    roles = [one["role"] for one in first["messages"] if text in json.dumps(one["content"])]
    assert roles == [role]


MESSAGE = "Subagent (reference: "


@pytest_asyncio.fixture(scope="module", autouse=True)
async def family_beginnings(stack: Stack) -> None:
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

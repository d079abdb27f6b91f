"""Hooks: a user's functions at set points of a session. They have a state object and a time limit; a failing hook does
not fail the session."""

import json
from typing import Any

import pytest
import pytest_asyncio

from domain.agents.hook import HookPoint
from domain.ids import new_id
from store import workspaces
from store.files import get_blobs
from store.sessions import SessionRow
from tests.behaviour.conversations.talk import Gate, Talk, agent, asked, chain
from tests.behaviour.graphs.duet import define, prompt
from tests.support.secrets import secrets_found
from tests.support.stack import Stack, calls, of_type, steps

pytestmark = pytest.mark.together

NOTES = [f"notes.{point}" for point in HookPoint]
FAILS = [f"fails.{point}" for point in HookPoint]
SHAPES = ["forgets", "shortens", "rewrites", "welcomes", "introduces", "instructs", "signs"]
SECRET = {"variables": {"TOKEN": {"description": "a key", "kind": "secret"}}}
MODEL = ["BeforeModel", "FilterMessages", "SystemMessage", "BeforeReply", "AfterModel"]
LOOK = ("list_files", {"path": "."})
CHILD = [{"name": "hk_child"}]


@pytest_asyncio.fixture(scope="module", autouse=True)
async def family(stack: Stack) -> None:
    own = prompt("hk_own", "A draft.")
    reports = {"side_a": {"label": "Worker"}, "side_b": {"handler": "hand_in"}, "expose_as_tool": True}
    definitions: list[dict[str, Any]] = [
        agent("hk_watched", hooks=NOTES),
        agent("hk_guarded", hooks=["guards", "adds_note", "publishes"]),
        agent("hk_broken", hooks=[*FAILS, "sleeps", "dozes", "leaves"], **SECRET),
        agent("hk_blocked", hooks=["blocks"]),
        agent("hk_secret", hooks=["adds_note", "instructs"], **SECRET),
        agent("hk_child", hooks=["reports"], prompt="[[script:say text=Done.]]", **reports),
        agent("hk_lead", subagent_tools=[{"name": "hk_child", "blocking": False}]),
        agent("hk_shaped", hooks=SHAPES, subagent_tools=CHILD),
        agent("hk_failing", hooks=[one for one in FAILS if one != "fails.before_tool"], subagent_tools=CHILD),
        agent("hk_gone", hooks=["guards"]),
        agent("hk_inline", hooks=NOTES, mode="subagent"),
        agent("hk_caller", "hk_inline"),
    ]
    for one in definitions:
        answer = await stack.http.put(f"/agents/{one['name']}", json=one)
        assert answer.is_success, answer.text
    sides: dict[str, Any] = {"hooks": ["notes.before_model"], "max_session_turns": 2}
    await define(stack, "hk_both", {**own, "hooks": ["notes.after_model"]}, {**own, "name": "hk_b"}, **sides)


async def noted(stack: Stack, row: SessionRow) -> list[dict[str, Any]]:
    _, manifest = await workspaces.get(stack.pool, row.tenant, row.workspace_id)
    [content] = (await get_blobs(stack.pool, row.tenant, [manifest["hooks.jsonl"]["sha256"]])).values()
    return [json.loads(line) for line in content.decode().splitlines()]


async def test_hooks_run_at_their_points_in_order_with_their_arguments(stack: Stack) -> None:
    talk = await Talk.done(stack, steps([LOOK]), "hk_watched")
    seen = await noted(stack, await talk.session(talk.id))
    order = ["ThreadCreated", "OnMessage", *MODEL, "BeforeTool", "BeforeResult", "AfterTool", *MODEL, "OnEnd"]
    assert [one["at"] for one in seen] == order
    made, message, _, filtering, system, given, replied, before, result, after, *_, ended = seen
    assert "You are tested." in system["text"] and given["calls"] == replied["calls"]
    assert made["thread_id"] == talk.id and "script:steps" in message["text"]
    assert [one["kind"] for one in filtering["messages"]] == ["user"]
    assert before["tool"] == "list_files" and before["arguments"]["path"] == "."
    assert (after["state"], result["result"], ended["reason"]) == ("ok", after["result"], "goal_reached")
    assert replied["calls"][0]["tool"] == "list_files"
    assert len({one["key"] for one in seen}) == len(seen)


async def test_hook_refuses_a_call_adds_notes_and_publishes_a_status(stack: Stack) -> None:
    script = calls(LOOK, ("list_files", {"path": "forbidden"}))
    record = await stack.run(script, "hk_guarded")
    events = await stack.events(record["task_id"])
    refused = [one for one in of_type(events, "tool_returned") if one["preview"] == "Not on my watch."]
    assert record["status"] == "completed" and len(refused) == 1
    assert "list_files was ok" in [one["message"] for one in of_type(events, "progress")]
    first, second = [str(one["body"]["messages"]) for one in await stack.asked(record["task_id"])]
    assert "Remember the milk." in first and "list_files done." in second


@pytest.mark.proves("S4-B12")  # further tests below: failing hooks, whose hooks run, and that hooks act once
async def test_hooks_filter_and_change_what_a_model_is_shown(stack: Stack) -> None:
    script = chain([LOOK], [("hk_child", {"message": "Go."})], [("bash", {"command": "echo x"})], last="Off.")
    mark = new_id()
    talk = await Talk.done(stack, f"{mark}: look into the vault. {script}", "hk_shaped")
    requests = await asked(stack, mark)
    first, second, third, _ = [str(one["messages"]) for one in requests]
    assert all("Sign with a smile." in str(one["system"]) for one in requests)
    # the reply and the output are stored as the hook changed them; the calls of the reply stay
    assert (await stack.http.get(f"/tasks/{talk.id}/result")).json()["output"] == "Off. Yours."
    # the message was changed before it entered the context, and is stored as it was sent
    assert "look into [place]." in first and "the vault" not in first
    query = "SELECT parts, changed FROM inbox WHERE conversation_id = $1 ORDER BY number"
    row = await stack.pool.fetchrow(query, talk.id)
    assert row is not None and "the vault" in row["parts"] and "[place]" in row["changed"]
    assert "list_files returned something." in second and "'name': 'list_files'" in second
    [child] = await talk.children()
    assert f"hk_child of hk_child is {child.thread_id}." in third
    events = await stack.events(talk.id)
    assert f"{talk.id} is new" in [one["message"] for one in of_type(events, "progress")]

    later = await talk.say("Forget it. [[script:say text=Off.]]")
    await talk.ended(later)
    [*_, request] = [str(one["messages"]) for one in await asked(stack, mark)]
    assert "Forget it." in request
    # a call and its result are hidden together but stay in the tree; other calls are shown
    assert "'name': 'list_files'" not in request and "list_files returned something." not in request
    assert "'name': 'bash'" in request and "bash returned something." in request
    results = [one["text"] for node in await stack.nodes(talk.id) for one in node["body"].get("results", [])]
    assert "list_files returned something." in results
    assert of_type(await stack.events(later), "progress") == []  # the thread is not new any more


@pytest.mark.exactly_once
async def test_hooks_of_an_inline_delegate_run_and_a_recorded_rerun_repeats_none(stack: Stack) -> None:
    inline = ("delegate", {"agent": "hk_inline", "prompt": steps([LOOK])})
    talk = await Talk.done(stack, chain([inline], last="Off."), "hk_caller")
    row = await talk.session(talk.id)
    seen = await noted(stack, row)
    assert {one["agent"] for one in seen} == {"hk_inline"}
    order = ["OnMessage", *MODEL, "BeforeTool", "BeforeResult", "AfterTool", *MODEL, "OnEnd"]
    assert [one["at"] for one in seen] == order
    assert seen[0]["text"] == inline[1]["prompt"] and seen[-1]["reason"] == "goal_reached"
    answer = await stack.http.post(f"/tasks/{talk.id}/rerun", json={"recorded": True})
    assert answer.status_code == 202, answer.text
    again = await talk.ended(answer.json()["task_id"])
    history = (await stack.session(again.id).fetch_history()).to_json()
    assert again.status == "completed" and '"run_hooks"' not in history and len(await noted(stack, row)) == len(seen)


@pytest.mark.proves("S4-B12")  # failing hooks; the effects of hooks are tested above
async def test_failing_hooks_are_reported_and_cost_the_session_nothing(stack: Stack) -> None:
    token = "canary-of-a-failing-hook"
    talk = await Talk.done(stack, chain([LOOK], [("hk_child", {"message": "Go."})], last="Off."), "hk_failing")
    record = await stack.run(steps([LOOK]), "hk_broken", context={"variables": {"TOKEN": token}})
    assert record["status"] == "completed"
    events = await stack.events(record["task_id"])
    failed = {(one["hook"], one["point"]) for one in of_type(events, "hook_failed")}
    reached = [point for point in HookPoint if point is not HookPoint.AFTER_SUBAGENT_CREATED]
    reached = [point for point in reached if point is not HookPoint.BEFORE_RESULT]  # the call was not run
    others = {("sleeps", "on_message"), ("dozes", "before_model"), ("leaves", "after_model")}
    assert failed == {*((f"fails.{point}", point) for point in reached), *others}
    assert "It failed (UserCodeError)" in str(
        [one for one in of_type(events, "hook_failed") if one["hook"] == "leaves"]
    )
    # hooks at the two other points fail too
    passed = await stack.events(talk.id)
    every = {(f"fails.{point}", point) for point in HookPoint if point is not HookPoint.BEFORE_TOOL}
    assert {(one["hook"], one["point"]) for one in of_type(passed, "hook_failed")} == every
    assert (await talk.session(talk.id)).status == "completed" and await talk.output() == "Off."
    assert [one["state"] for one in of_type(passed, "tool_returned")] == ["ok", "ok"]
    # hooks that take too long are abandoned in time, even if they block
    slow = [one for one in of_type(events, "hook_failed") if one["hook"] in ("sleeps", "dozes")]
    assert {one["error"] for one in slow} == {"It did not finish within 0.3 seconds."}
    # a failing hook that may be a guard does not let the call pass
    [returned] = of_type(events, "tool_returned")
    assert returned["preview"] == "This was not run: the hook 'fails.before_tool' failed."
    assert await secrets_found(stack, [token.encode()]) == []


async def test_hook_cannot_show_a_secret_to_the_model(stack: Stack) -> None:
    token = "canary-of-a-note-for-the-model"
    record = await stack.run(steps([LOOK]), "hk_secret", context={"variables": {"TOKEN": token}})
    requests = str(await stack.asked(record["task_id"]))
    assert "Remember [redacted]." in requests and "Sign with [redacted]." in requests
    assert await asked(stack, token) == [] and await secrets_found(stack, [token.encode()]) == []


async def test_hook_that_blocks_does_not_stall_other_sessions(stack: Stack) -> None:
    gate = Gate()
    task_id = await stack.submit(f"Wait for {gate.path}", "hk_blocked")
    await stack.seen(task_id, "progress", message="blocked")
    other = await stack.run(steps([LOOK]), "hk_watched")  # this agent has its own hooks
    assert other["status"] == "completed" and (await stack.record(task_id))["status"] == "submitted"
    gate.open()
    assert (await stack.wait(task_id))["status"] == "completed"
    assert [one["message"] for one in of_type(await stack.events(task_id), "progress")] == ["blocked", "free"]
    [request] = await stack.asked(task_id)
    assert "Go on." in str(request) and of_type(await stack.events(task_id), "hook_failed", "model_retry") == []


async def test_hooks_of_a_prompt_replace_those_of_the_agent(stack: Stack) -> None:
    talk = await Talk.done(stack, "Go.", "hk_both")
    seen = await noted(stack, await talk.session(talk.id))
    # side A has hooks; side B has none, so the agent's hooks run there
    assert [(one["at"], one["step"]) for one in seen] == [("AfterModel", 1), ("BeforeModel", 2)]


@pytest.mark.together(False)
async def test_hooks_survive_a_killed_worker_and_act_once(stack: Stack) -> None:
    script = steps([LOOK], [("bash", {"command": "sleep 4"})], [LOOK])
    task_id = await stack.submit(script, "hk_watched")
    await stack.seen(task_id, "tool_called", tool="bash")
    pid = await stack.kill("worker")
    await stack.back("worker", pid)
    assert (await stack.wait(task_id))["status"] == "completed"
    seen = await noted(stack, await Talk(stack, task_id).session(task_id))
    assert [one["at"] for one in seen].count("AfterTool") == 3 and [one["at"] for one in seen].count("OnEnd") == 1


async def test_no_tool_runs_if_a_hook_that_may_guard_it_is_absent(stack: Stack) -> None:
    """As after the worker was started without the module that defines it."""
    query = (
        "UPDATE agent_versions SET definition = replace(definition, '\"guards\"', '\"gone\"') WHERE name = 'hk_gone'"
    )
    await stack.pool.execute(query)
    record = await stack.run(steps([LOOK]), "hk_gone")
    events = await stack.events(record["task_id"])
    [returned] = of_type(events, "tool_returned")
    assert returned["preview"] == "This was not run: this worker has no hook 'gone'."
    assert {(one["hook"], one["point"]) for one in of_type(events, "hook_failed")} == {
        ("gone", "before_model"),
        ("gone", "before_tool"),
    }

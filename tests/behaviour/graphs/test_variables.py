"""Variables of a graph: who inherits which, what a subagent waits for, and secrets that only tools receive."""

import asyncio
import json
import signal
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from domain.conversations.requests import InboxKind, Steer
from domain.ids import new_id
from domain.sessions.writes import ThreadMessage
from store import conversations
from tests.behaviour.conversations.talk import Talk, agent, asked, chain, say
from tests.behaviour.graphs.duet import call, declared_tool, define, prompt
from tests.behaviour.schedules.clock import create, trigger
from tests.support.secrets import secrets_found
from tests.support.stack import Stack, eventually, of_type
from workflows.client import WorkflowClient

STOP = {"name": "approve", "message_property": "summary"}
SCOPED = {"description": "a key of its own", "kind": "secret", "scoped": True}
LEVELS = [f"LEVEL_{number}" for number in range(1, 6)]  # the deployment has values for all but the first two
CREATE = ("subagent_create", {"agent": "vt_pair", "name": "ann", "message": "Draft it."})


def needs(**variables: Any) -> dict[str, Any]:
    return {"variables": variables}


@pytest_asyncio.fixture(scope="module", autouse=True)
async def family(stack: Stack) -> None:
    approve = declared_tool("approve", "summary")
    approver = prompt("vt_approver", *[{"calls": [call("approve", summary="Fine.")]}] * 4, tools=(approve,))
    sides: dict[str, Any] = {"side_b": {"session_stop": STOP}, "expose_as_tool": True, "max_session_turns": 8}

    async def pair(name: str, *names: str, how: str = "text", below: tuple[str, ...] = (), **more: Any) -> None:
        shows: list[Any] = [{"calls": [call("reveal", names=list(names), how=how)]}, "A draft."]
        subagents = [{"name": one} for one in below]
        worker = prompt(f"{name}_worker", *shows * 3, tools=("reveal",), subagent_tools=subagents)
        await define(stack, name, worker, approver, **sides, **more)

    region = {"description": "where", "required": False}
    await pair("vt_deep", "DEEP_KEY", **needs(DEEP_KEY=SCOPED))
    await pair(
        "vt_pair",
        "TOKEN",
        "REGION",
        **needs(TOKEN=SCOPED, REGION=region),
        below=("vt_deep",),
        env={"REGION": "north"},
    )
    await pair("vt_handed", "TOKEN", "NOTE", **needs(TOKEN=SCOPED, NOTE={"description": "a note", "scoped": True}))
    for how in ("raise", "status", "parent", "long"):
        await pair(f"vt_{how}", "TOKEN", how=how, **needs(TOKEN={"description": "a key", "kind": "secret"}))
    town = {"TOWN": {"description": "where", "required": False}, "SALT": {**SCOPED, "required": False}}
    await pair("vt_local", "TOWN", "KEY", "SALT", **needs(**town, KEY={"description": "a key", "kind": "secret"}))
    defaults = {name: {"description": name, "default": "prompt"} for name in LEVELS}
    token = {"LEVEL_TOKEN": {"description": "a key"}}
    await pair("vt_level_child", "LEVEL_KEY", **needs(LEVEL_KEY=SCOPED))
    env, below = dict.fromkeys(LEVELS[1:], "agent"), [{"name": "vt_level_child"}]
    levels = agent("vt_levels", env=env, subagent_tools=below, **needs(**defaults, **token))
    plain = needs(TOKEN={"description": "a key", "kind": "secret", "required": False}, REGION=region)
    agents = [
        levels,
        agent("vt_lead", subagent_tools=[{"name": "vt_pair", "resumable": {"max_instances": 1}}], **plain),
        agent("vt_once", subagent_tools=[{"name": "vt_pair"}]),
        agent("vt_hands", subagent_tools=[{"name": "vt_handed", "scoped_env": ["TOKEN", "NOTE"]}]),
        agent("vt_careless", subagent_tools=[{"name": f"vt_{how}"} for how in ("raise", "status", "parent", "long")]),
        agent("vt_guide", subagent_tools=[{"name": "vt_local", "resumable": True}], **needs(**town)),
    ]
    for one in reversed(agents):
        one["tools"] = [*one["tools"], "reveal", "assign"]
        answer = await stack.http.put(f"/agents/{one['name']}", json=one)
        assert answer.is_success, answer.text


async def waiting(stack: Stack, talk: Talk) -> dict[str, Any]:
    """Return the structured error of the one call that could not start its subagent."""
    [error, *more] = await refusals(stack, talk)
    assert error["error"] == "subagent_env_required" and not more
    return error


async def refusals(stack: Stack, talk: Talk) -> list[dict[str, Any]]:
    rows = await stack.pool.fetch(
        "SELECT result FROM tool_calls WHERE session_id = $1 AND result LIKE '{%' ORDER BY started_at", talk.id
    )
    return [json.loads(row["result"]) for row in rows]


async def give(stack: Stack, error: dict[str, Any], **values: str) -> httpx2.Response:
    return await stack.http.post(error["endpoint"], json={"variables": values})


async def revealed(stack: Stack, session_id: str) -> list[str]:
    rows = await stack.pool.fetch("SELECT result FROM tool_calls WHERE session_id = $1 AND tool = 'reveal'", session_id)
    return [row["result"] for row in rows]


@pytest.mark.proves("S4-22")
async def test_values_boot_the_deferred_subagent_with_the_original_call_exactly_once(stack: Stack) -> None:
    talk = await Talk.done(stack, chain([CREATE], last="Off."), "vt_lead")
    error = await waiting(stack, talk)
    assert [one["name"] for one in error["missing"]] == ["TOKEN", "DEEP_KEY"] and not await talk.children()
    [event] = of_type(await stack.events(talk.id), "variables_required")
    assert event["request_id"] == error["request_id"] and event["missing"] == ["TOKEN", "DEEP_KEY"]

    shown = (await stack.http.get(error["endpoint"])).json()
    assert (shown["status"], shown["missing"], shown["reference"]) == ("open", ["TOKEN", "DEEP_KEY"], None)
    assert {(one["agent"], one["name"], one["missing"]) for one in shown["required"]} == {
        ("vt_pair", "TOKEN", True),
        ("vt_deep", "DEEP_KEY", True),
    }
    token, deep = f"canary-token-{new_id()}", f"canary-deep-{new_id()}"
    answers = await asyncio.gather(*(give(stack, error, TOKEN=token, DEEP_KEY=deep) for _ in range(4)))
    assert [answer.status_code for answer in answers] == [200] * 4
    [child] = await talk.children()
    await talk.ended(child.id)
    await talk.rest()
    assert await talk.prompts(child.id) == ["Draft it."] and child.subagent_name == "ann"
    assert {answer.json()["reference"] for answer in answers} == {child.thread_id}
    assert await revealed(stack, child.id) == [f"Values: [redacted] north; lengths: {len(token)} 5"]
    # the value for the subagent's own subagent is stored under that one's name
    assert sorted(child.variables) == ["TOKEN", "vt_deep:DEEP_KEY"]
    # the parent had ended, and receives the result like any other

    async def results() -> list[str]:
        sent = [one for row in await talk.sessions() for one in await talk.prompts(row.id)]
        return [one for one in sent if one.startswith("Subagent (")]

    [result] = await eventually(results, what="the result reached the parent")
    assert result.startswith(f"Subagent (reference: {child.thread_id}) has returned the following result:\n\nFine.")

    again = await give(stack, error, TOKEN=token, DEEP_KEY=deep)
    assert (again.status_code, again.json()["status"]) == (200, "started")
    other = await give(stack, error, TOKEN="another-value", DEEP_KEY=deep)
    assert (other.status_code, other.json()["type"]) == (409, "urn:errand:problem:request-settled")
    assert [row.id for row in await talk.children()] == [child.id]
    assert await secrets_found(stack, [token.encode(), deep.encode()]) == []


async def test_subagent_starts_although_every_process_died_when_its_values_were_given(stack: Stack) -> None:
    talk = await Talk.done(stack, chain([("vt_pair", {"message": "Draft it."})], last="Off."), "vt_once")
    error = await waiting(stack, talk)
    stack.signal("worker", signal.SIGSTOP)  # no worker answers for the conversation
    answering = asyncio.create_task(give(stack, error, TOKEN="value-1", DEEP_KEY="value-2"))

    async def stored() -> bool:
        row = await stack.pool.fetchrow("SELECT status FROM variable_requests WHERE id = $1", error["request_id"])
        return bool(row and row["status"] == "answered")

    await eventually(stored, what="the values are stored")
    api, worker = await stack.kill("api"), await stack.kill("worker")
    await asyncio.gather(answering, return_exceptions=True)
    await stack.back("api", api)
    await stack.back("worker", worker)

    async def started() -> bool:
        return len(await talk.children()) == 1

    await eventually(started, what="the subagent was started")
    [child] = await talk.children()
    await talk.ended(child.id)
    assert await talk.prompts(child.id) == ["Draft it."]

    again = await give(stack, error, TOKEN="value-1", DEEP_KEY="value-2")
    assert again.json()["status"] == "started" and len(await talk.children()) == 1


async def test_scoped_values_are_handed_over_by_name_and_reach_no_model(stack: Stack) -> None:
    token, note = f"canary-handed-{new_id()}", f"canary-note-{new_id()}"
    given = {"TOKEN": token, "NOTE": note}
    script = chain([("vt_handed", {"message": "Draft it."})])
    task_id = await stack.submit(script, "vt_hands", context={"variables": given})
    record = await stack.wait(task_id)
    assert record["status"] == "completed", record
    [child] = await Talk(stack, task_id).children()
    assert child.variables["NOTE"] == note
    assert await revealed(stack, child.id) == [f"Values: [redacted] [redacted]; lengths: {len(token)} {len(note)}"]
    assert await asked(stack, note) == [] and await asked(stack, token) == []
    assert len(await asked(stack, "Draft it.")) > 2  # the values would be visible in these requests
    assert await secrets_found(stack, [token.encode()]) == []


async def test_careless_tool_cannot_leak_a_secret(stack: Stack) -> None:
    token = f"canary/careless+{new_id()}=="
    names = ("vt_raise", "vt_status", "vt_parent", "vt_long")
    script = chain(*[[(name, {"message": "Draft it."})] for name in names], last="Off.")
    task_id = await stack.submit(script, "vt_careless", context={"variables": {"TOKEN": token}})
    assert (await stack.wait(task_id))["status"] == "completed"
    talk = Talk(stack, task_id)
    await talk.rest()
    children = await talk.children()
    texts = {child.agent: (await revealed(stack, child.id))[0] for child in children}
    assert "failed unexpectedly" in texts["vt_raise"] and "Values: [redacted]" in texts["vt_long"]
    sent = [one for row in await talk.sessions() for one in await talk.prompts(row.id) if "has sent a message" in one]
    assert len(sent) == 1 and f"Values: [redacted]; lengths: {len(token)}" in sent[0]
    assert await asked(stack, token) == [] and await secrets_found(stack, [token.encode()]) == []


@pytest.mark.proves("S4-B10")  # the order of the levels; the next test shows the rest
async def test_values_come_from_the_thread_the_tenant_the_deployment_the_agent_and_the_prompt(stack: Stack) -> None:
    token = f"canary-of-a-tenant-{new_id()}"
    refused = await stack.http.post("/tasks", json={"agent": "vt_levels", "input": "x"})
    assert refused.json()["type"] == "urn:errand:problem:missing-variables"

    async def put(**body: Any) -> httpx2.Response:
        return await stack.http.put("/variables", json=body)

    assert (await put(variables={"LEVEL_4": "tenant", "LEVEL_5": "tenant"}, kind="text")).is_success
    listed = (await put(variables={"LEVEL_TOKEN": token, "LEVEL_KEY": token})).json()["items"]
    assert [(one["name"], one["kind"], one["value"]) for one in listed if one["name"].startswith("LEVEL_")] == [
        ("LEVEL_4", "text", "tenant"),
        ("LEVEL_5", "text", "tenant"),
        ("LEVEL_KEY", "secret", None),
        ("LEVEL_TOKEN", "secret", None),
    ]
    script = chain([("reveal", {"names": [*LEVELS, "LEVEL_TOKEN"]})], [("vt_level_child", {"message": "Go."})])
    talk = await Talk.done(stack, script, "vt_levels", context={"variables": {"LEVEL_5": "thread"}})
    first, *_ = await talk.results(talk.id)
    assert first.startswith("Values: prompt agent deployment tenant thread [redacted]; lengths:")
    shown = (await stack.http.get(f"/threads/{talk.id}/variables")).json()["variables"]
    sources = ["prompt", "agent", "deployment", "tenant", "inherited", "tenant"]
    assert [one["source"] for one in shown] == sources and shown[-1]["value"] is None
    # a scoped variable is not inherited, but still has the tenant's value
    [child] = await talk.children()
    assert await revealed(stack, child.id) == [f"Values: [redacted]; lengths: {len(token)}"]
    # a secret of the tenant stays secret even if an agent declares it as text
    assert await asked(stack, token) == [] and await secrets_found(stack, [token.encode()]) == []
    assert await asked(stack, "LEVEL_4: tenant") and not await asked(stack, "LEVEL_TOKEN:")

    assert (await stack.http.delete("/variables/LEVEL_4")).status_code == 204
    assert (await stack.http.delete("/variables/LEVEL_4")).status_code == 404
    later = await talk.say(chain([("reveal", {"names": ["LEVEL_4"]})]))
    await talk.ended(later)
    assert (await talk.results(later))[0].startswith("Values: deployment;")

    assert (await stack.http.delete("/variables/%2A%3AX")).status_code == 404


async def test_a_wake_and_a_tick_whose_agent_cannot_be_read_are_not_tried_without_end(stack: Stack) -> None:
    assert (await stack.http.put("/agents/vt_torn", json=agent("vt_torn"))).is_success
    talk = await Talk.done(stack, say(), "vt_torn")
    scheduled = await create(stack, agent="vt_torn")
    await stack.pool.execute("UPDATE agent_versions SET definition = '{}' WHERE name = 'vt_torn'")
    run = await trigger(stack, scheduled["id"])
    assert run["status"] == "failed" and "cannot read the definition of the agent vt_torn" in run["reason"]
    sent = ThreadMessage(
        id=new_id(), conversation_id=talk.id, thread_id=talk.id, text=say(), kind=InboxKind.SYSTEM, author=new_id()
    )
    await conversations.add_message(stack.pool, "default", sent)
    steer = Steer(request_id=sent.id, thread=talk.id, message=sent.id, wake=True)
    await WorkflowClient(stack.client, stack.settings.task_queue).steer("default", talk.id, steer)
    await talk.ended((await talk.sessions())[-1].id)
    assert len(await talk.sessions()) == 2


@pytest.mark.proves("S4-B10")  # the order of the levels is tested above
async def test_values_that_are_set_reach_the_thread_and_those_below_that_inherit_them(stack: Stack) -> None:
    """Texts and secrets have a fixed precedence; scoped values are not inherited, undeclared ones are secrets, and all
    missing ones are reported at the start."""
    key, salt, free = (f"canary-{name}-{new_id()}" for name in ("key", "salt", "free"))
    refused = await stack.http.post("/tasks", json={"agent": "vt_guide", "input": "x"})
    assert (refused.status_code, refused.json()["type"]) == (422, "urn:errand:problem:missing-variables")
    # the subagent's variable is reported, but not the one that is scoped to it
    assert [one["pointer"] for one in refused.json()["errors"]] == ["/context/variables/KEY"]

    create = ("subagent_create", {"agent": "vt_local", "name": "ann", "message": "Go."})
    given = {"variables": {"KEY": "key-of-a-task", "SALT": salt}}
    talk = await Talk.done(stack, chain([create]), "vt_guide", context=given)
    [child] = await talk.children()
    assert (await revealed(stack, child.id))[0] == "Values: (none) [redacted] (none); lengths: 6 13 6"

    async def put(thread_id: str, **values: str) -> httpx2.Response:
        return await stack.http.put(f"/threads/{thread_id}/variables", json={"variables": values})

    answer = await put(talk.id, TOWN="Rome", KEY=key, SALT=salt, FREE=free)
    assert answer.status_code == 200, answer.text
    shown = {one["name"]: (one["source"], one["kind"], one["value"]) for one in answer.json()["variables"]}
    assert shown == {
        "TOWN": ("thread", "text", "Rome"),
        "SALT": ("thread", "secret", None),
        "FREE": ("thread", "secret", None),
    }
    look = ("reveal", {"names": ["TOWN", "SALT", "FREE"]})
    message = ("subagent_message", {"target": "ann", "message": "Again."})
    await talk.ended(await talk.say(chain([look], [message])))
    root = await talk.results((await talk.sessions())[-2].id)
    assert root[0] == f"Values: Rome [redacted] [redacted]; lengths: 4 {len(salt)} {len(free)}"
    second = (await talk.children())[-1]
    assert await revealed(stack, second.id) == [f"Values: Rome [redacted] (none); lengths: 4 {len(key)} 6"]

    # a thread's own value takes precedence over an inherited one, whichever was set first; tools can set values too
    assert (await put(second.thread_id, TOWN="Oslo")).is_success
    assigns = ("assign", {"values": {"TOWN": "Paris", "FREE": "a-value-of-the-model"}})
    await talk.ended(await talk.say(chain([assigns], [message])))
    assert (await talk.results((await talk.sessions())[-2].id))[0] == "Paris [redacted]"
    assert (await revealed(stack, (await talk.children())[-1].id))[0].startswith("Values: Oslo [redacted] (none)")
    listed = {one["name"]: one for one in (await stack.http.get(f"/threads/{talk.id}/variables")).json()["variables"]}
    assert listed["TOWN"]["value"] == "Paris"
    for value in (key, salt, free):
        assert await asked(stack, value) == [] and await secrets_found(stack, [value.encode()]) == []

    assert (await put(talk.id, FREE="abc")).json()["type"] == "urn:errand:problem:secret-too-short"
    assert (await stack.http.post(f"/threads/{second.thread_id}/terminate")).is_success
    assert (await put(second.thread_id, TOWN="x")).json()["type"] == "urn:errand:problem:thread-terminated"
    assert (await put(talk.id, TOWN="x")).is_success

"""Tools that the caller runs: called by the model, listed, answered, approved, and failed if they get no answer."""

import asyncio
from typing import Any

import pytest

from tests.behaviour.supervision.people import answer, answered, ask, bash, output, waiting
from tests.support.stack import Stack, calls, eventually, of_type, steps

pytestmark = pytest.mark.together

SCHEMA = {"type": "object", "properties": {"order": {"type": "integer"}}, "required": ["order"]}
TOOL = {"name": "look_up", "description": "Looks an order up.", "input_schema": SCHEMA}
CONFIG = {"external_tools": [TOOL]}


def look_up(order: Any) -> tuple[str, dict[str, Any]]:
    return "look_up", {"order": order}


@pytest.mark.proves("S0-B13")
async def test_a_call_waits_for_its_caller_and_partial_answers_keep_the_rest_open(people: Stack) -> None:
    task_id = await people.submit(calls(look_up(1), look_up(2), look_up("x"), bash("echo 3")), config=CONFIG)
    first, second = await waiting(people, task_id, 2)
    assert (first["kind"], first["details"]["tool"], first["details"]["arguments"]) == (
        "external_result",
        "look_up",
        {"order": 1},
    )
    record = await people.record(task_id)
    assert record["status"] == "input_required"
    assert {call["request_id"] for call in record["deferred_tools"]["calls"]} == {first["id"], second["id"]}
    assert record["deferred_tools"]["approvals"] == []
    misfit = await answer(people, task_id, first["id"], {"result": 1, "error": "x"})
    assert (misfit.status_code, misfit.json()["errors"][0]["pointer"]) == (422, "/input")
    assert (await answer(people, task_id, first["id"], {"result": {"paid": True}})).status_code == 202
    assert [one["id"] for one in await waiting(people, task_id)] == [second["id"]]
    record = await answered(people, task_id, {"error": "no such order"})
    assert (record["reason"], record["deferred_tools"]) == ("goal_reached", None)
    said = (await output(people, task_id)).splitlines()
    assert said[0] == 'look_up returned: {"paid": true}' and "no such order" in said[1]
    assert "Nobody was asked: the arguments do not fit the input schema of look_up." in said[2] and "3" in said[3]
    states = [event["state"] for event in of_type(await people.events(task_id), "tool_returned")]
    assert sorted(states) == ["failed", "failed", "ok", "ok"]
    offered = (await people.asked(task_id))[0]["body"]["tools"]
    assert TOOL in offered


@pytest.mark.proves("S0-B13")
async def test_conversation_continues_with_some_answers_and_the_rest_is_denied_or_failed(people: Stack) -> None:
    text = calls(look_up(1), look_up(2), bash("echo a"), bash("echo b"), ask("Which?"))
    run = {"agent": "asker", "input": text, "transport": "stream", "config": CONFIG}
    gated = [{"permission": "bash", "action": "ask"}]
    begun = (await people.http.post("/conversations/run", json={**run, "permissions": gated})).json()
    task_id = begun["session_id"]
    requests = {one["question"]: one["id"] for one in await waiting(people, task_id, 5)}
    [kept] = [one["id"] for one in await waiting(people, task_id, 5) if one["kind"] == "clarification"]
    deferred = (await people.record(task_id))["deferred_tools"]
    assert (len(deferred["calls"]), len(deferred["approvals"])) == (2, 2)
    more = {"conversation_id": task_id, "input": "Mind the gap.", "transport": "stream"}
    call = requests['What does look_up return for {"order": 1}?']
    approval = next(request for question, request in requests.items() if "echo a" in question)
    answers = {call: {"result": "paid"}, approval: {"approved": True}}
    wrong = await people.http.post("/conversations/run", json={**more, "answers": {call: {"approved": True}}})
    assert wrong.status_code == 422
    unknown = await people.http.post("/conversations/run", json={**more, "answers": {task_id: "x"}})
    assert (unknown.status_code, unknown.json()["type"]) == (409, "urn:errand:problem:unknown-request")
    assert len(await waiting(people, task_id, 5)) == 5  # nothing was changed
    said = await people.http.post("/conversations/run", json={**more, "answers": answers})
    assert (said.status_code, said.json()["session_id"], said.json()["steered"]) == (202, task_id, True)
    assert [one["id"] for one in await waiting(people, task_id)] == [kept]  # a question is not a deferred tool
    assert (await answer(people, task_id, kept, "this one")).status_code == 202
    assert (await people.wait(task_id))["reason"] == "goal_reached"
    [results] = [node["body"]["results"] for node in await people.nodes(task_id) if node["kind"] == "tool_results"]
    texts = [one["text"] for one in results]
    assert [one["failed"] for one in results] == [False, True, False, True, False]
    assert texts[0] == "paid" and texts[1] == "No result was given when the conversation continued."
    assert "denied" in texts[3] and texts[4] == "this one"
    messages = [node["body"]["parts"][0]["text"] for node in await people.nodes(task_id) if node["kind"] == "user"]
    assert messages[1:] == ["Mind the gap."]  # the message is read together with the results
    late = await people.http.post("/conversations/run", json={**more, "answers": {}})
    assert (late.status_code, late.json()["type"]) == (409, "urn:errand:problem:nothing-waits")


async def test_a_callers_tool_has_nothing_of_the_built_in_tool_of_its_name(people: Stack) -> None:
    """It has neither its code nor its traits, even after an approval for the whole conversation, and in a subagent."""
    brought = [TOOL | {"name": name} for name in ("write_file", "wait_for_event", "Send-Mail")]
    written = {"path": "stolen.txt", "content": "x"}
    child = ("task", {"agent": "mute-helper", "prompt": calls(("write_file", written)), "description": "write"})
    script = steps(
        [("write_file", {"order": 1}), ("wait_for_event", {"order": 2}), ("Send-Mail", {"order": 3})],
        [("write_file", written), child],
        [("list_files", {"path": "."})],
    )
    rules = [{"permission": "write_file", "action": "ask"}]
    task_id = await people.submit(script, "bare", config={"external_tools": brought}, permissions=rules)
    first = {one["details"]["tool"]: one for one in await waiting(people, task_id, 3)}
    assert (first["write_file"]["kind"], first["write_file"]["details"]["external"]) == ("tool_approval", True)
    assert {first[name]["kind"] for name in ("wait_for_event", "Send-Mail")} == {"external_result"}
    always = {"approved": True, "always": ["*"]}
    assert (await answer(people, task_id, first["write_file"]["id"], always)).status_code == 202
    for request in [one for one in await waiting(people, task_id, 3) if one["kind"] == "external_result"]:
        assert (await answer(people, task_id, request["id"], {"result": "mine"})).status_code == 202
    # the arguments of the second call do not match the caller's schema
    assert (await people.wait(task_id))["reason"] == "goal_reached"
    said = await output(people, task_id)
    assert said.count("mine") == 3 and "do not fit the input schema of write_file" in said
    assert "stolen.txt" not in said.splitlines()[-1]
    [sub] = of_type(await people.events(task_id), "subagent_started")
    # the child has the built-in tool: the approval of the caller's does not count for it
    assert (await people.wait(sub["child_session_id"]))["reason"] == "needs_input"
    kept = await people.pool.fetchval("SELECT count(*) FROM workspaces WHERE manifest::text LIKE '%stolen%'")
    assert kept == 0


@pytest.mark.together(False)
@pytest.mark.proves("S0-B13")
@pytest.mark.exactly_once
async def test_repeated_answer_during_the_first_continues_with_it_and_undoes_nothing(people: Stack) -> None:
    run = {"agent": "asker", "input": calls(look_up(1)), "transport": "stream", "config": CONFIG}
    task_id = (await people.http.post("/conversations/run", json=run)).json()["session_id"]
    [request] = await waiting(people, task_id, 1)
    more = {"conversation_id": task_id, "input": "Mind the gap.", "transport": "stream"}
    body = {**more, "answers": {request["id"]: {"result": "paid"}}}

    async def proceed() -> dict[str, Any]:
        said = await people.http.post("/conversations/run", json=body, headers={"Idempotency-Key": f"on {task_id}"})
        assert said.status_code == 202, said.text
        answer: dict[str, Any] = said.json()
        return answer

    async with people.pool.acquire() as connection, connection.transaction():
        await connection.execute("SELECT 1 FROM audit_heads WHERE chain = $1 FOR UPDATE", task_id)
        both = [asyncio.create_task(proceed()) for _ in range(2)]

        async def wait() -> bool:
            asked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            return bool(await people.pool.fetchval(asked) >= 2)

        await eventually(wait, pause=0.02, what="both have begun to answer")
    first, second = await asyncio.gather(*both)
    assert first == second == await proceed()
    assert (await people.wait(task_id))["reason"] == "goal_reached"
    messages = [node["body"]["parts"][0]["text"] for node in await people.nodes(task_id) if node["kind"] == "user"]
    assert messages[1:] == ["Mind the gap."]

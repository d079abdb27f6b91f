"""Questions to people: asked, listed, answered once, refused with a reason, and always ended."""

import asyncio
import json
from typing import Any

import pytest

from tests.behaviour.supervision.people import answer, answered, ask, output, waiting
from tests.support.stack import Stack, calls, of_type, steps

pytestmark = pytest.mark.together

SCHEMA = {"type": "object", "properties": {"port": {"type": "integer"}}, "required": ["port"]}


@pytest.mark.together(False)
@pytest.mark.proves("S1-13", "S1-14", "S1-42")
async def test_question_waits_and_its_answer_continues_the_session(people: Stack) -> None:
    task_id = await people.submit(calls(ask("Which port?", options=["80", "443"], answer_schema=SCHEMA)), "asker")
    [request] = await waiting(people, task_id)
    record = await people.record(task_id)
    assert (record["status"], record["progress"]["message"]) == ("input_required", "Which port?")
    assert request["kind"] == "clarification" and request["details"]["options"] == ["80", "443"]
    assert request["details"]["so_far"]["steps"] == 1 and request["deadline"] == record["deadline"]
    listed = (await people.http.get("/input-requests", params={"limit": 200})).json()["items"]
    assert request["id"] in [one["id"] for one in listed]
    misfit = await answer(people, task_id, request["id"], {"port": "x"})
    assert (misfit.status_code, misfit.json()["errors"][0]["pointer"]) == (422, "/input/port")
    assert (await answer(people, task_id, request["id"], {"port": 443})).status_code == 202
    assert (await people.wait(task_id))["reason"] == "goal_reached"
    assert '{"port": 443}' in await output(people, task_id)
    reported = of_type(await people.events(task_id), "input_required", "input_received")
    assert [(one["type"], one["request_id"]) for one in reported] == [
        ("input_required", request["id"]),
        ("input_received", request["id"]),
    ]
    assert reported[1]["by"]  # the name of the person


@pytest.mark.exactly_once
async def test_answer_to_a_closed_question_is_refused_with_the_reason(people: Stack) -> None:
    task_id = await people.submit(steps([ask("A?")], [ask("B?")]), "asker")
    [first] = await waiting(people, task_id)
    unknown = await answer(people, task_id, task_id, "x")
    assert (unknown.status_code, unknown.json()["type"]) == (409, "urn:errand:problem:unknown-request")
    other = await people.submit(calls(ask("C?")), "asker")
    [foreign] = await waiting(people, other)
    assert (await answer(people, task_id, foreign["id"], "x")).status_code == 409
    await answer(people, task_id, first["id"], "a")
    stale = await answer(people, task_id, first["id"], "again")
    assert (stale.status_code, stale.json()["request_status"]) == (409, "answered")
    [second] = await waiting(people, task_id)
    assert second["id"] != first["id"]
    await people.cancel(task_id)
    assert (await people.wait(task_id))["reason"] == "caller_cancel"
    ended = await answer(people, task_id, second["id"], "b")
    assert (ended.status_code, ended.json()["type"]) == (409, "urn:errand:problem:already-terminal")
    history = (await people.http.get(f"/tasks/{task_id}/input-requests")).json()["items"]
    assert {one["question"]: one["status"] for one in history} == {"A?": "answered", "B?": "withdrawn"}
    await people.cancel(other)


async def test_answer_that_is_repeated_with_its_key_gets_the_first_response(people: Stack) -> None:
    task_id = await people.submit(steps([ask("A?")], [ask("B?")]), "asker")
    [first] = await waiting(people, task_id)
    key = {"Idempotency-Key": f"answer-{task_id}"}
    same = [answer(people, task_id, first["id"], "a", **key) for _ in range(4)]
    replies = [(reply.status_code, reply.json()) for reply in await asyncio.gather(*same)]
    accepted = (202, {"task_id": task_id, "response_to": first["id"], "status": "answered"})
    assert replies == [accepted] * 4
    [second] = await waiting(people, task_id)
    for request, value in ((first, "b"), (second, "a")):
        other = await answer(people, task_id, request["id"], value, **key)
        assert (other.status_code, other.json()["type"]) == (422, "urn:errand:problem:idempotency-key-reused")
    assert (await answer(people, task_id, first["id"], "a")).status_code == 409  # without its key
    assert (await waiting(people, task_id))[0]["id"] == second["id"]
    await people.cancel(task_id)
    await people.wait(task_id)
    late = await answer(people, task_id, first["id"], "a", **key)
    assert (late.status_code, late.json()) == accepted
    assert len(of_type(await people.events(task_id), "input_received")) == 1


@pytest.mark.proves("S1-15", "F-11")
@pytest.mark.parametrize(
    ("config", "reason", "text"),
    [
        ({"input_timeout": 1_000}, "input_timeout", None),
        ({"input_timeout": 1_000, "on_input_timeout": "deny"}, "goal_reached", "Nobody answered in time."),
        ({"input_timeout": 1_000, "on_input_timeout": "default"}, "goal_reached", "the default: blue"),
        ({"ttl": 2_000}, "input_timeout", None),
    ],
)
async def test_unanswered_question_ends_as_its_task_configures(
    people: Stack, config: dict[str, Any], reason: str, text: str | None
) -> None:
    asks = calls(ask("Which colour?", default="blue"), ("bash", {"command": "sleep 30"}))
    asks = asks if reason == "input_timeout" else calls(ask("Which colour?", default="blue"))
    record = await people.run(asks, "asker", config=config)
    assert (record["status"], record["reason"]) == ("completed" if text else "cancelled", reason)
    if text:
        assert text in await output(people, record["task_id"])
    [request] = (await people.http.get(f"/tasks/{record['task_id']}/input-requests")).json()["items"]
    assert request["status"] == "expired"


@pytest.mark.proves("S1-74")
async def test_questions_are_capped(people: Stack) -> None:
    most = people.settings.max_questions
    task_id = await people.submit(calls(*[ask(f"{n}?") for n in range(most)], ask("one more?")), "asker")
    for request in await waiting(people, task_id, most):
        await answer(people, task_id, request["id"], "yes")
    await people.wait(task_id)
    said = await output(people, task_id)
    assert said.count("returned: yes") == most and said.count("Decide this yourself") == 1


@pytest.mark.proves("S1-07", "S3-06")
async def test_an_agent_that_may_not_ask_ends_with_its_question(people: Stack) -> None:
    record = await people.run(calls(ask("Which port?")), "tester")
    assert (record["status"], record["reason"]) == ("failed", "needs_input")
    assert record["error"] == {"type": "needs_input", "message": "Which port?"}
    assert (await people.result(record["task_id"]))["error"]["message"] == "Which port?"
    offered = [tool["name"] for tool in (await people.asked(record["task_id"]))[0]["body"]["tools"]]
    assert "ask_user" not in offered


@pytest.mark.proves("S1-B07")
async def test_question_of_a_subagent_that_may_not_ask_reaches_its_parent_who_asks_people(people: Stack) -> None:
    """The child asks its parent, the parent asks a person, and the answer returns the same way."""
    mute = {"agent": "mute-helper", "description": "find the port"}
    asks = [[{"name": "ask_user", "input": {"question": "Which port?"}}]]
    replies = [
        [{"name": "task", "input": {**mute, "prompt": f'[[script:chain json={json.dumps(asks)} text="Hm."]]'}}],
        [{"name": "ask_user", "input": {"question": "My helper asks: which port?"}}],
        [{"name": "task", "input": {**mute, "prompt": "Port 80.", "task_id": "$0"}}],
    ]
    task_id = await people.submit(f"[[script:chain json={json.dumps(replies)}]]", "asking-lead")
    [request] = await waiting(people, task_id)
    assert (request["session_id"], request["question"]) == (task_id, "My helper asks: which port?")
    child = (await people.seen(task_id, "subagent_started"))["child_session_id"]
    record = await people.record(child)
    assert (record["status"], record["reason"]) == ("failed", "needs_input")
    assert record["error"] == {"type": "needs_input", "message": "Which port?"}
    assert (await people.http.get(f"/tasks/{child}/input-requests")).json()["items"] == []  # nobody else was asked
    assert (await answered(people, task_id, "80"))["reason"] == "goal_reached"
    said = await output(people, task_id)
    assert f"task_id: {child}\n" in said and "It cannot continue without an answer to this: Which port?" in said
    started = of_type(await people.events(task_id), "subagent_started")
    resumed = (await people.http.get(f"/sessions/{started[1]['child_session_id']}")).json()
    assert (resumed["parent_session_id"], resumed["status"]) == (child, "completed")

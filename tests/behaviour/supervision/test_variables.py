"""Variables that an agent declares: given, requested together before the first step, stored, and refused."""

from typing import Any

import pytest

from domain.agents.variables import open_secrets
from domain.sealing import KeyRing
from store import sessions
from tests.behaviour.supervision.people import agent, answer, answered, waiting
from tests.support.secrets import secrets_found
from tests.support.stack import Stack, of_type

VARIABLES = {
    "city": "where to look",
    "day": {"description": "when"},
    "note": {"description": "what else", "required": False},
}
PINS = {name: {"description": name, "kind": "secret"} for name in ("pin", "code")}
AGENTS = [
    agent("locked", may_ask=True, variables={"city": "where", **PINS}),
    agent("guide", may_ask=True, variables=VARIABLES),
    agent("strict-guide", variables=VARIABLES),
]


@pytest.fixture(scope="module", autouse=True)
async def defined(people: Stack) -> None:
    await people.define(*AGENTS)


async def system(stack: Stack, task_id: str) -> str:
    return str((await stack.asked(task_id))[0]["body"]["system"][0]["text"])


async def test_missing_variables_are_requested_together_before_the_first_step(people: Stack) -> None:
    task_id = await people.submit("[[script:say text=hi]]", "guide", context={"variables": {"day": "Monday"}})
    [request] = await waiting(people, task_id)
    assert (request["kind"], request["details"]["variables"]) == ("missing_variables", {"city": "where to look"})
    record = await people.record(task_id)
    assert (record["status"], record["usage"]["llm_calls"]) == ("input_required", 0)
    misfit = await answer(people, task_id, request["id"], {"town": "Oslo"})
    assert (misfit.status_code, {one["code"] for one in misfit.json()["errors"]}) == (
        422,
        {"required", "unknown_field"},
    )
    assert (await answered(people, task_id, {"city": "Oslo"}))["reason"] == "goal_reached"
    assert "Variables of this task:\n- city: Oslo\n- day: Monday\n" in await system(people, task_id)
    kinds = [event["type"] for event in await people.events(task_id)]
    assert kinds.index("input_received") < kinds.index("task_started")
    # from here on the conversation has the values
    more = {"conversation_id": task_id, "input": "[[script:say text=again]]", "transport": "stream"}
    further = (await people.http.post("/conversations/run", json=more)).json()["session_id"]
    assert (await people.wait(further))["reason"] == "goal_reached"
    assert of_type(await people.events(further), "input_required") == []


@pytest.mark.parametrize(
    ("agent", "given", "kind", "pointers"),
    [
        ("strict-guide", {}, "missing-variables", ["/context/variables/city", "/context/variables/day"]),
        ("guide", {"town": "x"}, "validation", ["/context/variables/town"]),
    ],
)
async def test_task_with_unusable_variables_is_refused(
    people: Stack, agent: str, given: dict[str, Any], kind: str, pointers: list[str]
) -> None:
    body = {"agent": agent, "input": "x", "context": {"variables": given}}
    said = await people.http.post("/tasks", json=body)
    assert (said.status_code, said.json()["type"]) == (422, f"urn:errand:problem:{kind}")
    assert [one["pointer"] for one in said.json()["errors"]] == pointers


async def test_secret_variables_are_stored_encrypted_and_shown_to_nobody(people: Stack) -> None:
    """One comes with the task and one with an answer; a further turn and a rerun inherit both."""
    pin, code = "canary-pin-52a1", "canary-code-90fe"
    task_id = await people.submit(
        "[[script:say text=hi]]", "locked", context={"variables": {"city": "Oslo", "pin": pin}}
    )
    assert (await answered(people, task_id, {"code": code}))["reason"] == "goal_reached"
    more = {"conversation_id": task_id, "input": "[[script:say text=again]]", "transport": "stream"}
    further = (await people.http.post("/conversations/run", json=more)).json()["session_id"]
    await people.wait(further)
    rerun = (await people.http.post(f"/tasks/{task_id}/rerun", json={"prompt": "Say pin."})).json()["task_id"]
    await people.wait(rerun)
    keys = KeyRing.parse(people.settings.secret_keys)
    for session_id in (task_id, further, rerun):
        row = await sessions.get(people.pool, "default", session_id)
        assert row is not None and row.variables["city"] == "Oslo"
        assert open_secrets(keys, "default", row.variables) == {"pin": pin, "code": code}
        for path in (f"/tasks/{session_id}", f"/sessions/{session_id}", f"/tasks/{session_id}/input-requests"):
            shown = (await people.http.get(path)).text
            assert pin not in shown and code not in shown and "sealed:" not in shown
    asked = [str(request) for request in await people.asked(task_id)]
    assert len(asked) == 3 and all("Oslo" in one for one in asked)
    assert not [one for one in asked if "sealed:" in one or pin in one or code in one]
    assert await secrets_found(people, [pin.encode(), code.encode()]) == []

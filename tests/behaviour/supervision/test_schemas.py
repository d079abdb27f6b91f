"""Schemas that callers, models and servers write do not delay anybody else."""

import asyncio
import time
from typing import Any

from tests.behaviour.supervision.people import agent, answer, ask, output, waiting
from tests.support.stack import Stack, calls

TWICE = [{"properties": {"a": {"$ref": "#/$defs/n"}}} for _ in range(2)]
RECURSIVE = {"type": "object", "$defs": {"n": {"allOf": TWICE}}, "properties": {"a": {"$ref": "#/$defs/n"}}}
ENDLESS = {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"$ref": "#/properties/a"}]}}}


def doubled(levels: int) -> dict[str, Any]:
    parts = {str(n): {"allOf": [{"$ref": f"#/$defs/{n - 1}"}] * 2} for n in range(1, levels + 1)}
    return {"type": "object", "$defs": {"0": {"type": "object"}, **parts}, "$ref": f"#/$defs/{levels}"}


def nested(depth: int) -> dict[str, Any]:
    return {"a": nested(depth - 1)} if depth else {}


async def test_tools_of_a_caller_are_refused_at_once_if_their_schemas_are_large_or_endless(people: Stack) -> None:
    for schema, reason in ((doubled(20), "written out"), (doubled(60), "written out"), (ENDLESS, "without end")):
        tools = [{"name": f"t{n}", "description": "A tool.", "input_schema": schema} for n in range(4)]
        body = {"agent": "asker", "input": "Hello.", "config": {"external_tools": tools}}
        refused = await people.http.post("/tasks", json=body)  # doubled(60) would never end, written out
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (
            422,
            "/config/external_tools/0/input_schema",
        )
        assert reason in refused.text
        definition = agent("with-schema", input_schema=schema)
        assert reason in (await people.http.put("/agents/with-schema", json=definition)).text


async def test_requests_of_others_are_answered_while_values_take_long_to_check(people: Stack) -> None:
    (await people.http.put("/agents/nester", json=agent("nester", input_schema=RECURSIVE))).raise_for_status()
    body = {"agent": "nester", "input": nested(40)}
    checks = asyncio.gather(*(people.http.post("/tasks", json=body) for _ in range(3)))
    times: list[float] = []
    while not checks.done():
        begun = time.perf_counter()
        assert (await people.http.get("/tasks", params={"limit": "1"})).status_code == 200
        times.append(time.perf_counter() - begun)
    assert {(one.status_code, one.json()["errors"][0]["code"]) for one in await checks} == {(422, "complexity")}
    assert len(times) > 10 and sorted(times)[len(times) // 2] < 0.5  # each took most of a second


async def test_tasks_of_others_go_on_while_a_model_asks_with_a_hostile_schema(people: Stack) -> None:
    hostile = [
        ask("Large?", answer_schema=doubled(60)),
        ask("Endless?", answer_schema=ENDLESS),
        *(ask(f"Slow {n}?", answer_schema=RECURSIVE, default=nested(40)) for n in range(3)),
        ask("Fine?", answer_schema=RECURSIVE),
    ]
    task_id = await people.submit(calls(*hostile), "asker")
    others = [await people.submit("Hello.") for _ in range(3)]
    await asyncio.wait_for(asyncio.gather(*map(people.wait, others)), 30)
    [request] = await waiting(people, task_id)
    assert request["question"] == "Fine?"
    slow = await answer(people, task_id, request["id"], nested(40))
    assert (slow.status_code, slow.json()["errors"][0]["code"]) == (422, "complexity")
    assert (await answer(people, task_id, request["id"], {"a": {}})).status_code == 202
    assert (await people.wait(task_id))["reason"] == "goal_reached"
    said = await output(people, task_id)
    assert said.count("Nobody was asked") == 5 and said.count("the default does not fit") == 3
    assert "written out" in said and "without end" in said

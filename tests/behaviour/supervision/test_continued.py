"""A session emits an event when it continues after a wait, whatever it waited for and however the wait ended."""

from typing import Any

import pytest

from domain.ids import new_id
from tests.behaviour.supervision.people import agent, answered, ask, bash, plan, waiting
from tests.behaviour.triggers.sender import Sender
from tests.support.stack import Stack, calls, of_type, steps

LATE = {"input_timeout": 1_000}
LOOK_UP = {"name": "look_up", "description": "Looks up.", "input_schema": {"type": "object", "properties": {}}}
SCRIPTED = [
    agent("informed", may_ask=True, variables={"city": "where to look"}),
    agent("listener", tools=["wait_for_event"]),
]


async def defined(stack: Stack, name: str) -> str:
    for one in SCRIPTED:
        if one["name"] == name:
            assert (await stack.http.put(f"/agents/{name}", json=one)).is_success
    return name


def continued(events: list[dict[str, Any]], *expected: str) -> None:
    """Assert one wait and one event that ended it, followed by steps until the end."""
    waits = of_type(events, "input_required", "input_received", "input_expired")
    assert [event["type"] for event in waits] == list(expected)
    assert len({event["request_id"] for event in waits}) == 1
    following = [event["type"] for event in events[events.index(waits[-1]) + 1 :]]
    assert "step_started" in following and following[-1] == "task_completed"


@pytest.mark.proves("D15")
@pytest.mark.parametrize(
    ("agent", "text", "config", "kind", "answer"),
    [
        ("asker", calls(ask("Which port?")), {}, "clarification", "80"),
        ("careful", calls(bash("touch yes")), {}, "tool_approval", {"approved": True}),
        ("careful", calls(bash("touch no")), {}, "tool_approval", {"approved": False}),
        ("tester", steps([plan("x")]), {"approval_required": True}, "plan_approval", {"approved": True}),
        ("tester", calls(("look_up", {})), {"external_tools": [LOOK_UP]}, "external_result", {"result": 1}),
        ("informed", "[[script:say]]", {}, "missing_variables", {"city": "Oslo"}),
        ("asker", calls(ask("Hue?", default="red")), LATE | {"on_input_timeout": "default"}, "clarification", None),
        ("asker", calls(ask("Hue?")), LATE | {"on_input_timeout": "deny"}, "clarification", None),
    ],
)
async def test_continuing_after_a_wait_is_an_event(
    people: Stack, agent: str, text: str, config: dict[str, Any], kind: str, answer: Any
) -> None:
    task_id = await people.submit(text, await defined(people, agent), config=config)
    assert (await people.seen(task_id, "input_required"))["kind"] == kind
    if kind == "missing_variables":  # the worker dies during the wait
        await people.back("worker", await people.kill("worker"))
    record = await (people.wait(task_id) if answer is None else answered(people, task_id, answer))
    assert record["reason"] == "goal_reached"
    continued(await people.events(task_id), "input_required", "input_expired" if answer is None else "input_received")


@pytest.mark.proves("D15")
async def test_continuing_after_an_event_from_outside_is_an_event(people: Stack) -> None:
    order = new_id()
    keyed: dict[str, Any] = {"task": None, "correlation": "order:{{payload.order}}", "template": "paid"}
    sender = await Sender.new(people, **keyed)
    text = calls(("wait_for_event", {"key": f"order:{order}", "trigger": sender.name}))
    task_id = await people.submit(text, await defined(people, "listener"))
    await waiting(people, task_id)
    assert (await sender.accepted({"order": order}))["session_id"] == task_id
    assert (await people.wait(task_id))["reason"] == "goal_reached"
    continued(await people.events(task_id), "input_received")  # nobody was asked for anything

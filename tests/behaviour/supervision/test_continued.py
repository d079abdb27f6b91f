"""A session that continues after a wait says so, whatever it waited for and however the wait ended."""

from typing import Any

import pytest

from tests.behaviour.supervision.people import answered, ask, bash, plan
from tests.support.stack import Stack, calls, of_type, steps

LATE = {"input_timeout": 1_000}


@pytest.mark.proves("D15")
@pytest.mark.parametrize(
    ("agent", "text", "config", "answer", "resumed"),
    [
        ("asker", calls(ask("Which port?")), {}, "80", "input_received"),
        ("careful", calls(bash("touch yes")), {}, {"approved": True}, "input_received"),
        ("careful", calls(bash("touch no")), {}, {"approved": False}, "input_received"),
        ("tester", steps([plan("look")]), {"approval_required": True}, {"approved": True}, "input_received"),
        ("asker", calls(ask("Hue?", default="red")), LATE | {"on_input_timeout": "default"}, None, "input_expired"),
        ("asker", calls(ask("Hue?")), LATE | {"on_input_timeout": "deny"}, None, "input_expired"),
    ],
)
async def test_continuing_after_a_wait_is_an_event(
    people: Stack, agent: str, text: str, config: dict[str, Any], answer: Any, resumed: str
) -> None:
    task_id = await people.submit(text, agent, config=config)
    record = await (people.wait(task_id) if answer is None else answered(people, task_id, answer))
    assert record["reason"] == "goal_reached"
    events = await people.events(task_id)
    waits = of_type(events, "input_required", "input_received", "input_expired")
    assert [event["type"] for event in waits] == ["input_required", resumed]
    assert waits[0]["request_id"] == waits[1]["request_id"]
    following = [event["type"] for event in events[events.index(waits[1]) + 1 :]]
    assert "step_started" in following and following[-1] == "task_completed"

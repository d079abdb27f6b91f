"""Raising the budget of a running task."""

from datetime import UTC, datetime

from tests.behaviour.supervision.people import answer, ask, waiting
from tests.support.stack import Stack, eventually, of_type, steps

LOOK = ("list_files", {"path": "."})


def errors(body: dict[str, object]) -> list[tuple[str, str]]:
    found = body["errors"]
    assert isinstance(found, list)
    return [(one["pointer"], one["code"]) for one in found]


async def test_waiting_task_uses_its_raised_budget_and_ends_when_it_is_spent(bounded: Stack) -> None:
    """Each of these limits would have ended the task: steps, tool calls, time, and the steps of the tree."""
    config = {"max_steps": 1, "max_tool_calls": 1, "ttl": 5_000, "tree": {"max_steps": 1}}
    task_id = await bounded.submit(steps([ask("Which?")], [LOOK]), "curious", config=config)
    [request] = await waiting(bounded, task_id)
    more = {"max_steps": 5, "max_tool_calls": 3, "ttl": 90_000, "tree": {"max_steps": 5}}
    raised = await bounded.http.post(f"/tasks/{task_id}/budget", json=more)
    assert raised.status_code == 200, raised.text
    limits = {one["budget"]: one["limit"] for one in raised.json()["budgets"]}
    assert (limits["steps"], limits["tool_calls"], limits["ttl"]) == (5, 3, 90_000)
    assert raised.json()["tree"]["budgets"][0]["limit"] == 5
    again = await bounded.http.post(f"/tasks/{task_id}/budget", json=more)
    assert again.status_code == 200

    async def past_the_old_deadline() -> bool:
        return datetime.now(UTC) > datetime.fromisoformat(request["deadline"])

    await eventually(past_the_old_deadline)
    [still] = await waiting(bounded, task_id)
    assert still["deadline"] > request["deadline"]
    assert (await answer(bounded, task_id, request["id"], "this one")).status_code == 202
    record = await bounded.wait(task_id)
    assert (record["reason"], record["limits"]["raised"]) == ("goal_reached", True)

    events = of_type(await bounded.events(task_id), "budget_raised")  # the repeated request changed nothing
    assert [(one["scope"], one["budget"], one["before"], one["limit"]) for one in events] == [
        ("session", "ttl", 5_000, 90_000),
        ("session", "steps", 1, 5),
        ("session", "tool_calls", 1, 3),
        ("tree", "steps", 1, 5),
    ]
    audit = (await bounded.http.get(f"/tasks/{task_id}/audit")).json()["items"]
    assert [one["action"] for one in audit].count("raise_budget") == 1
    late = await bounded.http.post(f"/tasks/{task_id}/budget", json=more)
    assert (late.status_code, late.json()["type"]) == (409, "urn:errand:problem:already-terminal")


async def test_raises_are_bounded_and_never_lower_anything(bounded: Stack) -> None:
    config = {"max_steps": 9, "tree": {"max_steps": 20}}
    task_id = await bounded.submit(steps([ask("Which?")]), "curious", config=config)
    await waiting(bounded, task_id)
    cases: list[tuple[dict[str, object], list[tuple[str, str]]]] = [
        ({}, [("", "empty")]),
        ({"tree": None, "ttl": None}, [("", "empty")]),
        ({"max_steps": 8}, [("/max_steps", "lower")]),
        ({"max_steps": 21}, [("/max_steps", "out_of_range")]),  # more than its conversation has
        ({"max_steps": 10**9}, [("/max_steps", "out_of_range")]),
        ({"ttl": 10**15}, [("/ttl", "out_of_range")]),
        ({"max_tool_calls": 5}, [("/max_tool_calls", "no_limit")]),
        ({"tree": {"max_tokens": 5}}, [("/tree/max_tokens", "no_limit")]),
        ({"tree": {"max_steps": 19}}, [("/tree/max_steps", "lower")]),
        ({"steps": 10}, [("/steps", "unknown_field")]),
    ]
    for body, expected in cases:
        refused = await bounded.http.post(f"/tasks/{task_id}/budget", json=body)
        assert refused.status_code == 422, body
        assert errors(refused.json()) == expected
    assert of_type(await bounded.events(task_id), "budget_raised") == []
    assert (await bounded.record(task_id))["limits"]["steps"] == 9
    await bounded.cancel(task_id)


async def test_running_task_takes_more_steps_than_it_began_with(bounded: Stack) -> None:
    """The signal arrives between two steps."""
    task_id = await bounded.submit("[[script:count n=12 tool=bash]]", config={"max_steps": 6})
    await bounded.seen(task_id, "step_started", step=2)
    assert (await bounded.http.post(f"/tasks/{task_id}/budget", json={"max_steps": 20})).status_code == 200
    assert (await bounded.wait(task_id))["reason"] == "goal_reached"

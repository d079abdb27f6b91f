"""Immediate subagents start with their parent's prompt, before its first model step."""

import json
from typing import Any

import pytest
import pytest_asyncio

from tests.behaviour.conversations.talk import Talk, agent, asked, chain, say
from tests.behaviour.graphs.duet import call, declared_tool, define, prompt
from tests.support.stack import Stack, of_type

pytestmark = pytest.mark.together

STOP = {"name": "approve", "message_property": "summary"}
APPROVE = declared_tool("approve", "summary")
DESK = ["im_keeper", "im_single"]
RETURNED = "Subagent (reference: {}) has returned the following result:\n\n{}"
VARIABLES = {
    name: {"description": "For the tests.", "required": False} for name in ("WHO", "WHAT", "TOKEN", "WITH_SCOUT")
}


@pytest_asyncio.fixture(scope="module", autouse=True)
async def family(stack: Stack) -> None:
    sides: dict[str, Any] = {"side_b": {"session_stop": STOP}, "expose_as_tool": True, "max_session_turns": 6}
    approving = prompt("im_reviewer", {"calls": [call("approve", summary="Looked around.")]}, tools=(APPROVE,))
    scouting = prompt("im_scouting", "Nothing new.")
    token = {"TOKEN": {"description": "For this thread alone.", "required": False, "scoped": True}}
    await define(stack, "im_scout", scouting, approving, **sides, variables=token)
    configured: dict[str, dict[str, Any]] = {
        "im_lead": {"name": "im_scout", "immediate": True},
        "im_switched": {"name": "im_scout", "immediate": True, "optional": "WITH_SCOUT"},
        "im_keeper": {
            "name": "im_scout",
            "resumable": True,
            "immediate": {"nameEnv": "WHO", "descriptionEnv": "WHAT", "scopedEnv": ["TOKEN"]},
        },
        "im_single": {"name": "im_scout", "resumable": {"max_instances": 1}, "immediate": True},
    }
    desk = agent("im_desk", expose_as_tool=True)
    assert (await stack.http.put("/agents/im_desk", json=desk)).is_success
    for name, config in configured.items():
        fields = agent(name, subagent_tools=[config], variables=VARIABLES, expose_as_tool=True)
        fields["handoffs"] = ["im_desk"] if name in DESK else []
        answer = await stack.http.put(f"/agents/{name}", json=fields)
        assert answer.is_success, answer.text
    assert (await stack.http.put("/agents/im_desk", json={**desk, "handoffs": DESK})).is_success


async def first_request(stack: Stack, tag: str) -> dict[str, Any]:
    """Return the parent's first request; the requests of its children have scripts in their system prompts."""
    found = [one for one in await asked(stack, tag) if "You are tested. [[script" not in json.dumps(one["system"])]
    return found[0]


@pytest.mark.proves("S4-17")
async def test_immediate_subagent_runs_before_the_first_model_step_and_its_result_is_there(stack: Stack) -> None:
    talk = await Talk.done(stack, say("All clear. im-one"), "im_lead")
    [child] = await talk.children()
    # the child gets the task, since no other message is given
    assert (await talk.prompts(child.id))[0].startswith("[[script:say")
    request = await first_request(stack, "im-one")
    texts = [block["text"] for block in request["messages"][-1]["content"]]
    assert RETURNED.format(child.thread_id, "Looked around.") in texts
    assert "tool_use" not in json.dumps(request["messages"])  # the model is not shown calls of the platform as its own
    events = await stack.events(talk.id)
    kinds = [event["type"] for event in events if event["type"] in ("subagent_ended", "message")]
    assert kinds == ["subagent_ended", "message"]
    record = await stack.record(talk.id)
    assert record["usage"]["llm_calls"] == 1


@pytest.mark.parametrize("keeper", ["im_keeper", "im_single"])
@pytest.mark.exactly_once
async def test_existing_instance_is_not_created_again_by_a_second_handoff(stack: Stack, keeper: str) -> None:
    steps = chain([(keeper, {})], [("im_desk", {})], [(keeper, {})], last="Taken over twice.")
    talk = await Talk.done(stack, steps, "im_desk")
    assert await talk.output() == "Taken over twice." and len(await talk.children()) == 1
    returned = of_type(await stack.events(talk.id), "tool_returned")
    assert [(one["tool"], one["state"]) for one in returned] == [
        (keeper, "ok"),
        ("subagent_create", "ok"),
        ("im_desk", "ok"),
        (keeper, "ok"),
    ]


@pytest.mark.proves("S4-16")
@pytest.mark.parametrize(("value", "there"), [("yes", 1), ("off", 0), (None, 0)])
async def test_optional_immediate_subagent_starts_only_if_its_variable_is_true(
    stack: Stack, value: str | None, there: int
) -> None:
    given: dict[str, Any] = {"context": {"variables": {"WITH_SCOUT": value} if value else {}}}
    talk = await Talk.done(stack, say("Well."), "im_switched", **given)
    assert len(await talk.children()) == there


@pytest.mark.proves("S4-18")
async def test_variables_name_an_immediate_subagent_and_scoped_ones_reach_no_model(stack: Stack) -> None:
    variables = {"WHO": "Scout Ann", "WHAT": "Look at the harbour. im-six", "TOKEN": "tok-83711"}
    talk = await Talk.done(stack, say("Well. im-seven"), "im_keeper", context={"variables": variables})
    [child] = await talk.children()
    assert (child.subagent_name, await talk.prompts(child.id)) == ("Scout Ann", ["Look at the harbour. im-six"])
    [entry] = (await talk.shown())["children"]
    assert (entry["name"], entry["resumable"]) == ("Scout Ann", True)
    # the child's thread has the scoped value, and no request to a model contains it
    assert child.variables["TOKEN"] == "tok-83711"
    assert await asked(stack, "im-seven") and await asked(stack, "im-six") and not await asked(stack, "tok-83711")

"""`errand trace` shows thinking, calls and results with times and costs: as a tree, as JSON and as a page."""

import json
from typing import Any

import pytest
from errand.models import Trace

from tests.behaviour.conversations.talk import chain, say, task
from tests.support.command import cli
from tests.support.stack import Stack, of_type, steps

EVIL = '<script>alert(1)</script>\u001b[31m"><img src=x onerror=alert(1)>'


async def trace_of(stack: Stack, task_id: str, **query: str) -> Trace:
    answer = await stack.http.get(f"/tasks/{task_id}/trace", params=query)
    assert answer.status_code == 200, answer.text
    return Trace.model_validate(answer.json())


@pytest.mark.proves("S1-80", "S1-82", "S1-83")
async def test_a_trace_has_every_call_with_its_time_and_cost(stack: Stack) -> None:
    both = [("list_files", {"path": "."}), ("bash", {"command": "sleep 0.3; echo done"})]
    record = await stack.run(steps(both, [("read_file", {"path": "nothing.txt"})]))
    trace = await trace_of(stack, record["task_id"])
    assert [step.step for step in trace.steps] == [1, 2, 3] and trace.complete
    for step in trace.steps:
        [call] = step.models
        assert step.started_at <= call.started_at <= call.ended_at and call.usage.tokens > 0
    first = trace.steps[0].tools
    assert [(tool.tool, tool.state) for tool in first] == [("list_files", "ok"), ("bash", "ok")]
    assert first[1].ended_at is not None
    assert (first[1].ended_at - first[1].started_at).total_seconds() >= 0.3
    assert json.loads(first[1].arguments) == both[1][1] and "done" in first[1].result
    assert trace.steps[1].tools[0].state == "failed"
    assert trace.steps[2].models[0].text == (await stack.result(record["task_id"]))["output"]
    used = [call.usage for step in trace.steps for call in step.models]
    assert sum(one.tokens for one in used) == trace.usage.tokens
    assert sum(one.cost_usd or 0 for one in used) == pytest.approx(trace.usage.cost_usd)


@pytest.mark.proves("S1-81")
async def test_decisions_thoughts_and_subagents_are_in_the_tree(team: Stack) -> None:
    inner = [("delegate", {"agent": "helper", "prompt": chain([("list_files", {"path": "."})], last="Inline.")})]
    outer = [task(say("From below."), description="a part")]
    record = await team.run(chain(inner, outer, text=EVIL, last=EVIL), "lead")
    trace = await trace_of(team, record["task_id"])
    assert [step.step for step in trace.steps] == [1, 4, 5]  # steps 2 and 3 were those of the inline subagent
    assert [step.step for step in trace.steps[0].tools[0].steps] == [2, 3]
    [child] = trace.steps[1].tools[0].sessions
    assert child.output == "From below." and child.steps[0].models[0].text == "From below."

    shown = await cli(team, "trace", record["task_id"])
    assert shown.exit_code == 0, shown.output
    for expected in ("step 1", "decide   <script>", "act 0    delegate", "observe  ok", child.session_id, "│"):
        assert expected in shown.stdout
    assert "\x1b[31m" not in shown.stdout


@pytest.mark.proves("S0-B20")
async def test_trace_shows_thinking_and_waits(stack: Stack) -> None:
    thinker: dict[str, Any] = {
        "name": "ponderer",
        "description": "Thinks.",
        "prompt": "You think.",
        "tools": ["update_plan"],
        "thinking_tokens": 1_024,
    }
    assert (await stack.http.put("/agents/ponderer", json=thinker)).is_success
    record = await stack.run('[[script:say thought="I weigh it."]]', "ponderer")
    trace = await trace_of(stack, record["task_id"])
    said = trace.steps[0].models[0]
    events = await stack.events(record["task_id"])
    for kind, whole in (("message", said.text), ("thinking", said.thinking)):
        pieces = [event["text"] for event in of_type(events, f"{kind}_delta")]
        assert whole and "".join(pieces) == whole == of_type(events, kind)[0]["text"]
    assert "think    " in (await cli(stack, "trace", record["task_id"])).stdout

    faulty = await stack.run("[[script:say]] [[fault:529 times=1]]")
    trace = await trace_of(stack, faulty["task_id"])
    assert trace.steps[0].models[0].attempts == 2
    [retry] = trace.marks
    assert retry.type == "model_retry" and retry.until is not None and retry.at < retry.until

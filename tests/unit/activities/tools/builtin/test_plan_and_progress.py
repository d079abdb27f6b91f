"""update_plan and report_progress: what watchers see."""

import pytest

from activities.tools.registry import TOOLS
from activities.tools.tool import ToolContext
from domain.events import Progress, Replanning
from domain.plan import Plan, PlanStep
from tests.unit.activities.tools.conftest import MakeContext

PLAN = Plan(steps=[PlanStep(title="read"), PlanStep(title="write")])


async def update(context: ToolContext, titles: list[str], reason: str | None = None) -> list[object]:
    tool = TOOLS["update_plan"]
    steps = [{"title": title, "status": "pending"} for title in titles]
    result = await tool.run(tool.input.model_validate({"steps": steps, "reason": reason}), context)
    assert result.plan is not None and [step.title for step in result.plan.steps] == titles
    return list(result.events)


@pytest.mark.parametrize("reason", [None, "", "the test failed"])
async def test_other_steps_are_replanning_with_a_reason(make_context: MakeContext, reason: str | None) -> None:
    events = await update(make_context(plan=PLAN), ["read", "ask", "write"], reason)
    [replanning] = [event for event in events if isinstance(event, Replanning)]
    assert replanning.reason == (reason or "The plan changed; no reason was given.")


async def test_progress_is_reported(context: ToolContext) -> None:
    tool = TOOLS["report_progress"]
    result = await tool.run(tool.input.model_validate({"message": "half\nway", "percent": 50}), context)
    assert result.events == [Progress(message="half way (50 %)")]
    assert result.progress == "half way (50 %)"
    assert (await tool.run(tool.input.model_validate({"message": "\x00"}), context)).failed

"""The tool update_plan: the steps that the agent intends to take, and the reason for a change."""

from pydantic import Field

from activities.tools.tool import Tool, ToolContext, ToolInput, ToolResult, clean
from domain.amounts import format_count
from domain.events import Event, PlanUpdated, Replanning
from domain.plan import Plan, PlanStep, StepState, is_replanned
from domain.sessions.session import Effect

_NO_REASON = "The plan changed; no reason was given."


class Input(ToolInput):
    steps: list[PlanStep] = Field(min_length=1, max_length=50, description="All steps in order, done ones included.")
    reason: str | None = Field(None, max_length=1_000, description="If steps changed: what you learned.")


async def run(input: Input, context: ToolContext) -> ToolResult:
    titles = [clean(step.title).strip() for step in input.steps]
    if not all(titles):
        return ToolResult("Each step needs a title with visible text.", failed=True)
    plan = Plan(steps=[PlanStep(title=t, status=s.status) for t, s in zip(titles, input.steps, strict=True)])
    events: list[Event] = [PlanUpdated(steps=plan.steps)]
    if is_replanned(context.plan, plan):
        events.append(Replanning(reason=clean(input.reason or "").strip() or _NO_REASON))
    settled = sum(step.status in (StepState.DONE, StepState.SKIPPED) for step in plan.steps)
    return ToolResult(f"Plan noted: {settled} of {len(plan.steps)} steps settled.", events=events, plan=plan)


TOOL = Tool(
    name="update_plan",
    description=(
        "Tell the caller your plan: all steps with their status. Call it before you start work of several steps, when "
        "a step begins or ends, and with a reason whenever what you learned changes the steps."
    ),
    input=Input,
    run=run,
    effect=Effect.IDEMPOTENT,
    bookkeeping=True,
    talks=True,
    plans=True,
    has_own_event=True,
    kind=None,
    summary=lambda input: f"plan of {format_count(len(input.steps), 'step')}",
)

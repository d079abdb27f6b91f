"""The tool task: a subagent with its own session; the parent waits for it."""

from pydantic import Field

from activities.tools.builtin import async_task
from activities.tools.tool import BEGIN_DELEGATIONS, Tool
from domain.policy.subjects import Subject
from domain.sessions.effects import EffectKind
from domain.sessions.step import Effect


class Input(async_task.Input):
    task_id: str | None = Field(None, max_length=64, description="Continue this earlier task instead of a new one.")


TOOL = Tool(
    name="task",
    description=(
        "Start a subagent with its own session and wait for its result. Pass task_id to continue an earlier one with a "
        "further prompt. Several calls in one reply run side by side."
    ),
    input=Input,
    activity=BEGIN_DELEGATIONS,
    effect=Effect.IDEMPOTENT,
    kind=EffectKind.SUBAGENT,
    delegates=True,
    starts=True,
    subject=Subject(fields=("agent",)),
    summary=lambda input: f"{input.agent}: {input.description}",
)

"""The tool task: a subagent with a session of its own; the parent waits for it."""

from pydantic import BaseModel, ConfigDict, Field

from activities.tools.tool import BEGIN_DELEGATIONS, Tool
from domain.effects import EffectKind
from domain.step import Effect
from domain.subject import Subject


class Input(BaseModel):
    model_config = ConfigDict(extra="forbid")

    agent: str = Field(min_length=1, max_length=63, description="Name of the subagent.")
    prompt: str = Field(
        min_length=1, max_length=100_000, description="The whole task: it sees nothing of this conversation."
    )
    description: str = Field(min_length=1, max_length=200, description="A label of 3 to 5 words.")
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
    subject=Subject(fields=("agent",)),
    summary=lambda input: f"{input.agent}: {input.description}",
)

"""The tool async_task: launches a subagent and returns its handle at once."""

from pydantic import BaseModel, ConfigDict, Field

from activities.tools.tool import BEGIN_DELEGATIONS, Tool
from domain.policy.subjects import Subject
from domain.sessions.effects import EffectKind
from domain.sessions.step import Effect


class Input(BaseModel):
    model_config = ConfigDict(extra="forbid")

    agent: str = Field(min_length=1, max_length=63, description="Name of the subagent.")
    prompt: str = Field(
        min_length=1, max_length=100_000, description="The whole task: it sees nothing of this conversation."
    )
    description: str = Field(min_length=1, max_length=200, description="A label of 3 to 5 words.")


TOOL = Tool(
    name="async_task",
    description=(
        "Launch a subagent in the background and get its task_id at once. Launch several in one reply to let them work "
        "in parallel, then collect them with gather."
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

"""The tool delegate: another agent does a part within this session, and its answer is the result."""

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


TOOL = Tool(
    name="delegate",
    description=(
        "Let a subagent do a part of the work now, in your workspace and on your budget, and wait for its answer. "
        "Several calls in one reply run side by side."
    ),
    input=Input,
    activity=BEGIN_DELEGATIONS,
    effect=Effect.IDEMPOTENT,
    kind=EffectKind.SUBAGENT,
    delegates=True,
    starts=True,
    subject=Subject(fields=("agent",)),
    summary=lambda input: f"{input.agent}: {input.prompt}",
)

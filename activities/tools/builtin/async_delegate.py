"""The tool async_delegate: a named subagent works on its own; its outcome waits in the mailbox."""

from pydantic import BaseModel, ConfigDict, Field

from activities.tools.tool import BEGIN_DELEGATIONS, Tool
from domain.policy.subjects import Subject
from domain.sessions.effects import EffectKind
from domain.sessions.step import Effect


class Input(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(
        min_length=1,
        max_length=63,
        description="Name of the subagent. The same name (and agent) again continues where it left off.",
    )
    prompt: str = Field(min_length=1, max_length=100_000, description="The whole task, or how to continue it.")
    agent: str | None = Field(None, max_length=63, description="Which agent it is, if that differs from its name.")


TOOL = Tool(
    name="async_delegate",
    description=(
        "Hand a task to a subagent and continue at once. Its outcome is kept in the mailbox until the caller asks for "
        "it to be delivered: tell the caller what you dispatched, and do not wait or poll for it."
    ),
    input=Input,
    activity=BEGIN_DELEGATIONS,
    effect=Effect.IDEMPOTENT,
    kind=EffectKind.SUBAGENT,
    delegates=True,
    starts=True,
    subject=Subject(fields=("agent", "name")),
    summary=lambda input: f"{input.name}: {input.prompt}",
)

"""The tool start_background_agent: a subagent that works on its own and reports by messages."""

from pydantic import BaseModel, ConfigDict, Field

from activities.tools.tool import BEGIN_DELEGATIONS, Tool
from domain.policy.subjects import Subject
from domain.sessions.effects import EffectKind
from domain.sessions.step import Effect


class Input(BaseModel):
    model_config = ConfigDict(extra="forbid")

    prompt: str = Field(min_length=1, max_length=100_000, pattern=r"\S", description="The whole task.")
    agent: str | None = Field(None, max_length=63, description="Which agent it is; needed if you have several.")
    name: str = Field("subagent", min_length=1, max_length=63, description="What you call it.")
    agent_id: str | None = Field(None, max_length=64, description="Continue this background agent.")


TOOL = Tool(
    name="start_background_agent",
    description=(
        "Start an agent in the background and get its agent_id at once. It reports with send_agent_message, which "
        "wakes you; you are told once if it fails. Do not wait or poll for it."
    ),
    input=Input,
    activity=BEGIN_DELEGATIONS,
    effect=Effect.IDEMPOTENT,
    kind=EffectKind.SUBAGENT,
    starts=True,
    subject=Subject(fields=("agent", "name")),
    summary=lambda input: f"{input.name}: {input.prompt}",
)

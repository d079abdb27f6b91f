"""The tool gather: a bounded wait for several background subagents."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from activities.tools.tool import BEGIN_DELEGATIONS, Tool
from domain.sessions.step import Effect


class Input(BaseModel):
    model_config = ConfigDict(extra="forbid")

    task_ids: list[str] = Field(min_length=1, max_length=200, description="Ids of subagents you launched.")
    wait_for: Literal["all", "any"] = Field("all", description="Return when all have ended, or when the first has.")
    timeout_s: float = Field(30, ge=0, le=300, description="Seconds to wait at the most.")


TOOL = Tool(
    name="gather",
    description=(
        "Wait for background subagents and get the results of those that have ended. When the time runs out nothing is "
        "cancelled, and you are told which still run."
    ),
    input=Input,
    activity=BEGIN_DELEGATIONS,
    effect=Effect.IDEMPOTENT,
    kind=None,
    delegates=True,
    summary=lambda input: f"{input.wait_for} of {len(input.task_ids)} for {input.timeout_s:g} s",
)

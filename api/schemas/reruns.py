"""The body of a rerun."""

from typing import Annotated

from pydantic import Field, StringConstraints

from domain.agents.names import ModelName
from domain.json_object import JsonObject
from domain.policy.rules import Rule
from domain.task import Strict, Text


class ChangedResult(Strict):
    index: int = Field(ge=0, description="index of the call in the previous step, from 0")
    text: Annotated[str, StringConstraints(max_length=60_000)]
    failed: bool = False


class RerunLimits(Strict):
    """Limits as in a task; those left out stay as they were."""

    ttl: int | None = Field(default=None, ge=1_000)
    max_steps: int | None = Field(default=None, ge=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_cost_usd: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    max_tool_calls: int | None = Field(default=None, ge=1)


class RerunBody(Strict):
    """The body of POST /tasks/{id}/rerun; without any field, the whole task runs again."""

    from_step: int = Field(default=1, ge=1, description="everything before this step is kept")
    input: Text | JsonObject | None = Field(
        default=None, description="with step 1: replaces the task's input; with a later step: a further user message"
    )
    prompt: Annotated[str, StringConstraints(min_length=1, max_length=100_000)] | None = Field(
        default=None, description="replaces the agent's instructions, for this rerun only"
    )
    model: ModelName | None = None
    tool_results: list[ChangedResult] = Field(
        default_factory=list, max_length=64, description="replace results of the calls of the previous step"
    )
    agent_version: int | None = Field(default=None, ge=1, description="default: the version that the task used")
    permissions: list[Rule] = Field(default_factory=list, max_length=200, description="added to those of the task")
    config: RerunLimits = RerunLimits()
    recorded: bool = Field(
        default=False, description="use the recorded model responses and tool results: no model is called, no tool runs"
    )

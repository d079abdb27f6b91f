"""What callers send to rerun a task."""

from typing import Annotated, Any

from fastapi import Request
from pydantic import Field, StringConstraints

from api.http import body
from api.services import ServicesDep
from api.submission import rules as submission_rules
from domain.policy.rules import Rule
from domain.task import Strict, Text


class ChangedResult(Strict):
    index: int = Field(ge=0, description="which call of the step before, the first is 0")
    text: Annotated[str, StringConstraints(max_length=60_000)]
    failed: bool = False


class RerunLimits(Strict):
    """As in a task; what is left out stays as it was."""

    ttl: int | None = Field(default=None, ge=1_000)
    max_steps: int | None = Field(default=None, ge=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_cost_usd: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    max_tool_calls: int | None = Field(default=None, ge=1)


class RerunBody(Strict):
    """The body of POST /tasks/{id}/rerun; without any field, the task is simply run again."""

    from_step: int = Field(default=1, ge=1, description="what came before this step is kept")
    input: Text | dict[str, Any] | None = Field(
        default=None, description="from step 1: instead of the task's; later: words that the step hears too"
    )
    prompt: Annotated[str, StringConstraints(min_length=1, max_length=100_000)] | None = Field(
        default=None, description="instead of the agent's instructions, for this rerun alone"
    )
    model: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    tool_results: list[ChangedResult] = Field(
        default_factory=list, max_length=64, description="instead of what calls of the step before came to"
    )
    agent_version: int | None = Field(default=None, ge=1, description="without one, the version that the task had")
    permissions: list[Rule] = Field(default_factory=list, max_length=200, description="beside those of the task")
    config: RerunLimits = RerunLimits()
    recorded: bool = Field(
        default=False, description="with the original's answers and tool results: no model is asked, no tool runs"
    )


async def rerun_body(request: Request, services: ServicesDep) -> RerunBody:
    value, raw = await body.read_json(request, services.settings.max_body_bytes, optional=True)
    submission_rules.check_length(value, services.settings.max_input_chars)
    return body.check(RerunBody, value, raw)

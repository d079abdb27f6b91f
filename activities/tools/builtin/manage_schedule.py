"""The tool manage_schedule: messages that an agent sends itself by the clock."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from activities.tools.tool import Tool, ToolContext, ToolInput, ToolResult
from domain.schedules import ContextMode, Overlap, ScheduleRules
from domain.sessions.session import Effect, EffectKind

SHORTEST_S = 60


class Input(ToolInput):
    action: Literal["create", "list", "pause", "resume", "delete"] = Field(description="create also replaces.")
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,30}$")] | None = Field(None, description="Of yours.")
    prompt: str | None = Field(None, min_length=1, max_length=20_000, pattern=r"\S", description="The message.")
    cron: str | None = Field(None, max_length=200, description="Five fields: minute hour day month weekday.")
    timezone: str = Field("UTC", description="IANA name, for cron.")
    every_s: int | None = Field(None, ge=SHORTEST_S, description="An interval in seconds instead of cron.")
    at: datetime | None = Field(None, description="Once, at this time with its offset, instead of cron.")
    isolated: bool = Field(False, description="true: each run begins without this conversation.")


async def run(input: Input, context: ToolContext) -> ToolResult:
    own = context.subagents.schedules
    try:
        if input.action == "list":
            return ToolResult("\n".join(await own.list_lines(context.ref)) or "You have no schedules.")
        if input.name is None:
            return ToolResult("Which one? Give its name.", failed=True)
        if input.action == "create":
            if input.prompt is None:
                return ToolResult("Give the prompt that it sends.", failed=True)
            times = await own.put(context.ref, _rules(input), input.prompt)
            return ToolResult(f"The schedule {input.name} exists. Next times: {times}.")
        if input.action == "delete":
            await own.delete(context.ref, input.name)
            return ToolResult(f"The schedule {input.name} is deleted.")
        await own.set_paused(context.ref, input.name, input.action == "pause")
        return ToolResult(f"The schedule {input.name} is {'paused' if input.action == 'pause' else 'active'}.")
    except ValidationError as error:
        return ToolResult("\n".join(str(one["msg"]) for one in error.errors()[:5]), failed=True)


def _rules(input: Input) -> ScheduleRules:
    alone = input.isolated
    return ScheduleRules(
        name=input.name or "",
        cron=input.cron,
        timezone=input.timezone,
        every=input.every_s * 1_000 if input.every_s else None,
        at=input.at,
        context=ContextMode.ISOLATED if alone else ContextMode.CONTINUE,
        overlap=Overlap.SKIP if alone else Overlap.QUEUE,
    )


TOOL = Tool(
    name="manage_schedule",
    description="Create, list, pause, resume or delete schedules of your own: each sends you a message when it is due.",
    input=Input,
    run=run,
    effect=Effect.IDEMPOTENT,
    kind=EffectKind.CALL,
    touches=(),
    summary=lambda input: f"{input.action} {input.name or ''}".strip(),
)

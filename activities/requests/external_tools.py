"""External tools: their description for the model, the request about a call, and the result from its answer."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic import BaseModel

from activities.tools.tool import ASK_PEOPLE, Tool
from domain.agents.definition import RESULT_SCHEMA, ExternalTool
from domain.json_object import JsonObject
from domain.json_schema import fits, run_check
from domain.messages import ToolDefinition
from domain.sessions.input_request import InputRequest, RequestStatus
from domain.sessions.session import CallState, Effect, preview, would_have
from domain.sessions.writes import ShownRequest, SpentSoFar


class Unaskable(Exception):
    """Nobody is asked; the message is for the model."""

    def __init__(self, tool: str, why: str) -> None:
        super().__init__(f"Nobody was asked: {why}.")
        self.tool = tool


class Described(Unaskable):
    """A dry run: the call is described and not made."""

    def __init__(self, tool: str, summary: str) -> None:
        Exception.__init__(self, would_have(f"{tool} {summary}"))
        self.tool = tool


class Arguments(BaseModel, extra="allow"):
    """Accept any arguments; they are checked against the schema that the caller gave."""


def _write(arguments: BaseModel) -> str:
    return json.dumps(arguments.model_dump(), ensure_ascii=False)


@dataclass(frozen=True, kw_only=True)
class CallersTool(Tool):
    """A tool whose arguments somebody else describes: the caller, an agent's file or an MCP server."""

    input: type[BaseModel] = Arguments
    summary: Callable[[Any], str] = lambda arguments: preview(_write(arguments), 120)
    schema: JsonObject = field(default_factory=dict)

    @cached_property
    def definition(self) -> ToolDefinition:
        return ToolDefinition(self.name, self.description, self.schema)


def make_callers_tool(given: ExternalTool) -> Tool:
    return CallersTool(
        name=given.name,
        description=given.description,
        activity=ASK_PEOPLE,
        effect=Effect.IDEMPOTENT,  # the platform itself does nothing, and the caller sees the call's id
        touches=(),  # it cannot reach files or the network
        external=True,
        summary=_write,
        schema=given.input_schema,
    )


async def ask_for_result(tool: Tool, arguments: JsonObject, spent: SpentSoFar) -> ShownRequest:
    if not await run_check(fits, tool.definition.input_schema, arguments):
        raise Unaskable(tool.name, f"the arguments do not fit the input schema of {tool.name}")
    return ShownRequest(
        question=f"What does {tool.name} return for {tool.call_summary(arguments)}?",
        details={"tool": tool.name, "arguments": arguments, "so_far": spent.model_dump()},
        answer_schema=RESULT_SCHEMA,
    )


def read_result(request: InputRequest) -> tuple[CallState, str]:
    """The state and the text of the tool's result."""
    if request.status is not RequestStatus.ANSWERED:
        return CallState.FAILED, "Nobody answered this call in time. Continue without its result."
    if "error" in request.answer:
        return CallState.FAILED, str(request.answer["error"])
    value = request.answer["result"]
    return CallState.OK, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def summarise_call(request: InputRequest) -> str:
    return preview(json.dumps(request.details["arguments"], ensure_ascii=False), 200)

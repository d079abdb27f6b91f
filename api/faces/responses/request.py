"""The body of POST /v1/responses. A parameter that the platform cannot honour is refused by name, never ignored."""

import asyncio
import json
from typing import Annotated, Any, Literal

from fastapi import Request
from pydantic import Field, StringConstraints

from api.faces.responses.errors import BadParameter
from api.faces.responses.input_files import InputFiles, parse_with_files
from api.http.auth import Call
from api.http.body import read_json_text, validate_body
from domain.agents.definition import ExternalTool
from domain.json_object import JsonObject
from domain.messages import Effort
from domain.pictures import MOST_BYTES
from domain.task import Strict

# Parameters that change nothing about the answer, whatever their value: the context is shortened when it is full, the
# prompt is cached, and `include` asks for parts that these responses never have.
WITHOUT_EFFECT = frozenset(
    {"user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "include", "truncation"}
)
# Parameters that the platform does not have: allowed if they are null or have their default value.
DEFAULTS: dict[str, tuple[Any, ...]] = {
    "service_tier": ("auto", "default"),
    "stream_options": ({"include_obfuscation": False}, {}),
    "top_logprobs": (0,),
}
UNSTORED_MS = 60_000  # a client whose connection broke may still repeat its request
MetadataKey = Annotated[str, StringConstraints(min_length=1, max_length=64)]
MetadataValue = Annotated[str, StringConstraints(max_length=512)]
Summary = Literal["auto", "concise", "detailed"]


class ConversationParam(Strict):
    id: str = Field(max_length=200)


class TextFormat(Strict):
    type: Literal["text", "json_schema", "json_object"] = "text"
    name: str | None = Field(default=None, max_length=64)
    description: str | None = Field(default=None, max_length=2_000)
    schema_: JsonObject | None = Field(default=None, alias="schema")
    strict: bool | None = None


class TextConfig(Strict):
    format: TextFormat = TextFormat()
    verbosity: Literal["medium"] | None = None


class ReasoningConfig(Strict):
    """Summaries are always shown if the model thinks."""

    summary: Summary | None = None
    generate_summary: Summary | None = None
    effort: Effort | None = None


class FunctionTool(Strict):
    type: Literal["function"]
    name: str
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None

    def external(self) -> JsonObject:
        """The tool in the form of a task's external tools: the caller answers its calls."""
        schema = self.parameters or {"type": "object", "properties": {}}
        return {"name": self.name, "description": self.description or self.name, "input_schema": schema}


class FunctionChoice(Strict):
    type: Literal["function"]
    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")


class ErrandOptions(Strict):
    """What the protocol does not have, as `extra_body={"errand": {…}}`."""

    approvals: Literal["inbox", "caller"] = "inbox"


class CreateResponse(Strict):
    model: str = Field(min_length=1, max_length=200)
    input: str | list[JsonObject]
    instructions: str | None = Field(default=None, max_length=100_000)
    background: bool | None = None
    stream: bool | None = None
    previous_response_id: str | None = Field(default=None, max_length=200)
    conversation: str | ConversationParam | None = None
    tools: list[FunctionTool] | None = Field(default=None, max_length=128)
    text: TextConfig | None = None
    reasoning: ReasoningConfig | None = None
    metadata: dict[MetadataKey, MetadataValue] | None = Field(default=None, max_length=16)
    max_output_tokens: int | None = Field(default=None, ge=1)
    max_tool_calls: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)
    top_p: float | None = Field(default=None, gt=0, le=1, allow_inf_nan=False)
    tool_choice: Literal["auto", "required", "none"] | FunctionChoice | None = None
    parallel_tool_calls: bool | None = None
    store: bool | None = None
    errand: ErrandOptions | None = None

    @property
    def output_schema(self) -> JsonObject | None:
        given = self.text.format if self.text else TextFormat()
        if given.type == "json_object":
            return {"type": "object"}
        return given.schema_ if given.type == "json_schema" else None

    @property
    def model_settings(self) -> JsonObject:
        """The settings of the task's model that are not the default."""
        choice = self.tool_choice.name if isinstance(self.tool_choice, FunctionChoice) else self.tool_choice
        given = {
            "temperature": None if self.temperature == 1 else self.temperature,
            "top_p": None if self.top_p == 1 else self.top_p,
            "effort": self.reasoning.effort if self.reasoning else None,
            "tool_choice": None if choice == "auto" else choice,
            "parallel_tool_calls": None if self.parallel_tool_calls else self.parallel_tool_calls,
        }
        return {name: value for name, value in given.items() if value is not None}

    def conversation_id(self) -> str | None:
        if self.conversation is None or isinstance(self.conversation, str):
            return self.conversation
        return self.conversation.id

    def dump(self) -> str:
        """The part of the request that the face stores."""
        return self.model_dump_json(exclude_unset=True, by_alias=True)

    def external_tools(self) -> list[JsonObject]:
        return [tool.external() for tool in self.tools or []]


async def read_create(request: Request, call: Call) -> tuple[CreateResponse, InputFiles]:
    most = call.settings.max_body_bytes
    async with call.services.transfers.turn(call.tenant):
        raw = await read_json_text(request, most + MOST_BYTES * 4 // 3)  # base64 is a third longer than its bytes
        value, files = await asyncio.to_thread(parse_with_files, raw, most)
    if not isinstance(value, dict):
        raise BadParameter(None, "The body must be a JSON object.")
    known = {name: given for name, given in value.items() if name in CreateResponse.model_fields}
    for name in value.keys() - known.keys() - WITHOUT_EFFECT:
        _check_unsupported(name, value[name])
    body = validate_body(CreateResponse, known, json.dumps(known).encode())
    _check(body, call)
    return body, files


def _check_unsupported(name: str, value: Any) -> None:
    # in Python False == 0, but `"top_logprobs": false` is not the default
    if value is None or any(value == one and type(value) is not bool or value is one for one in DEFAULTS.get(name, ())):
        return
    # an unusual name is not repeated, because refusals end up in logs
    shown = name if name.isidentifier() and len(name) <= 64 else None
    known = name in DEFAULTS
    problem = "has another value than its default" if known else "is not supported"
    code = "unsupported_value" if known else "unsupported_parameter"
    raise BadParameter(shown, f"The parameter {shown or ''} {problem} here.", code)


def _check(body: CreateResponse, call: Call) -> None:
    if body.previous_response_id is not None and body.conversation is not None:
        raise BadParameter("conversation", "previous_response_id and conversation exclude each other.")
    if {"temperature", "top_p"} <= body.model_settings.keys():
        raise BadParameter("top_p", "Models take either temperature or top_p.")
    names = {tool.name for tool in body.tools or []}
    if isinstance(body.tool_choice, FunctionChoice) and body.tool_choice.name not in names:
        raise BadParameter("tool_choice.name", "The request has no such tool.")
    if body.store is False and (body.background or body.conversation is not None):
        kept = "background response" if body.background else "conversation"
        raise BadParameter("store", f"A {kept} is stored.")
    given = body.text.format if body.text else TextFormat()
    if (given.type == "json_schema") != (given.schema_ is not None):
        raise BadParameter("text.format.schema", "A schema belongs to the type json_schema, which needs one.")
    if isinstance(body.input, str) and len(body.input) > call.settings.max_input_chars:
        limit = call.settings.max_input_chars
        raise BadParameter("input", f"The input may have {limit} characters.", "string_above_max_length")


def function_tools(tools: list[ExternalTool]) -> list[JsonObject]:
    """External tools of a task as function tools."""
    return [
        {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.input_schema,
            "strict": False,
        }
        for tool in tools
    ]

"""The objects of the Responses API that this platform produces, in the form that its clients validate."""

from typing import Literal

from pydantic_core import to_jsonable_python

from domain.frozen import Frozen
from domain.json_object import JsonObject

SERVER = "errand"  # the server label of the platform's own tools

ItemStatus = Literal["in_progress", "completed", "incomplete"]
ResponseStatus = Literal["queued", "in_progress", "completed", "failed", "incomplete", "cancelled"]


class OutputText(Frozen):
    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[JsonObject] = []
    logprobs: list[JsonObject] = []


class OutputMessage(Frozen):
    type: Literal["message"] = "message"
    id: str
    role: Literal["assistant"] = "assistant"
    status: ItemStatus
    content: list[OutputText]
    phase: Literal["commentary", "final_answer"]


class SummaryText(Frozen):
    type: Literal["summary_text"] = "summary_text"
    text: str


class Reasoning(Frozen):
    type: Literal["reasoning"] = "reasoning"
    id: str
    summary: list[SummaryText]
    status: ItemStatus


class ToolError(Frozen):
    type: Literal["mcp_tool_execution_error"] = "mcp_tool_execution_error"
    content: list[JsonObject]


class McpCall(Frozen):
    """A call of one of the platform's own tools."""

    type: Literal["mcp_call"] = "mcp_call"
    id: str
    server_label: str = SERVER
    name: str
    arguments: str
    status: Literal["in_progress", "completed", "failed", "incomplete"]
    output: str | None = None
    error: ToolError | None = None


class FunctionCall(Frozen):
    """A call of a tool that the caller brought and answers."""

    type: Literal["function_call"] = "function_call"
    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus


class ApprovalRequest(Frozen):
    type: Literal["mcp_approval_request"] = "mcp_approval_request"
    id: str
    server_label: str = SERVER
    name: str
    arguments: str


Item = OutputMessage | Reasoning | McpCall | FunctionCall | ApprovalRequest


class InputDetails(Frozen):
    cached_tokens: int
    cache_write_tokens: int


class OutputDetails(Frozen):
    reasoning_tokens: int = 0


class ResponseUsage(Frozen):
    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails = OutputDetails()
    total_tokens: int


class ResponseError(Frozen):
    code: Literal["server_error", "rate_limit_exceeded", "invalid_prompt"]
    message: str


class IncompleteDetails(Frozen):
    reason: Literal["max_output_tokens", "max_messages"]


class ResponseState(Frozen):
    """The part of a response that follows from the event log."""

    status: ResponseStatus
    created_at: float
    completed_at: float | None = None
    output: list[Item] = []
    usage: ResponseUsage | None = None
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None


class ConversationId(Frozen):
    id: str


class ResponseObject(ResponseState):
    id: str
    object: Literal["response"] = "response"
    model: str
    background: bool
    instructions: str | None
    metadata: dict[str, str]
    previous_response_id: str | None
    conversation: ConversationId
    tools: list[JsonObject]
    text: JsonObject
    max_output_tokens: int | None
    max_tool_calls: int | None
    reasoning: JsonObject
    tool_choice: str | JsonObject
    parallel_tool_calls: bool
    store: bool
    temperature: float
    top_p: float
    truncation: str = "disabled"
    service_tier: str = "default"


class StreamEvent(Frozen):
    """An event of a stream: its type, and the fields of that type."""

    type: str
    state: ResponseState | None = None  # for events about the whole response
    item: Item | None = None
    output_index: int = 0
    item_id: str = ""
    content_index: int = 0
    summary_index: int = 0
    part: OutputText | SummaryText | None = None
    delta: str = ""
    text: str = ""
    arguments: str = ""
    logprobs: list[JsonObject] = []

    def wire(self, number: int, response: ResponseObject | None) -> JsonObject:
        fields: JsonObject = {
            name: to_jsonable_python(getattr(self, name)) for name in self.model_fields_set if name != "state"
        }
        if response is not None:
            fields["response"] = response.model_dump(mode="json")
        return {**fields, "sequence_number": number}

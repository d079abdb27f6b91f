"""Anthropic's form: its Messages API, at Anthropic, at an endpoint that speaks it, on Bedrock, Vertex and Foundry.

Read it in this order: `Anthropic`, how a request is written, how a reply is read, what an error means.
"""

import base64
import operator
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

import anthropic
import httpx2
from pydantic_core import to_json

from activities.model.models import (
    BY_STATUS,
    UNKNOWN,
    MalformedReply,
    Reported,
    Said,
    SearchReply,
    StreamFailed,
    build_client,
    check_whole,
    read_call,
    read_events,
    read_object,
)
from activities.tools.tool import clean
from domain.agents.models import Provider
from domain.json_object import JsonObject
from domain.messages import (
    AnyBlock,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    ReplyBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from domain.pictures import FileBlock
from domain.sessions.session import StopReason, Usage

MESSAGES = "/v1/messages"
STOP_REASONS = {
    "tool_use": StopReason.TOOL_CALLS,
    "max_tokens": StopReason.CUT_OFF,
    "pause_turn": StopReason.PAUSED,
    "model_context_window_exceeded": StopReason.CONTEXT_FULL,
    "refusal": StopReason.DECLINED,
}  # any other reason, even an unknown one, counts as an answer
_COUNTS = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_tokens": "cache_read_input_tokens",
    "cache_write_tokens": "cache_creation_input_tokens",
}
_EFFORTS = {"none": "low", "minimal": "low"}  # the API's lowest
_CHOICES = {"auto": "auto", "required": "any", "none": "none"}
# Models up to Claude 4.5 are given a number of tokens to think with; newer ones decide that themselves.
_BUDGETED = re.compile(r"\bclaude-(3|(opus|sonnet|haiku)-4(-[0-5])?([-@]\d{8})?(-v\d.*)?$)|^offline$")


def connect_client(name: str, provider: Provider) -> Any:
    """The SDK's client for this provider. Temporal does the retries: the SDK's own would hide attempts, and obey any
    retry-after without a limit."""
    given: dict[str, Any] = {"http_client": build_client(anthropic.DefaultAioHttpClient), "max_retries": 0}
    if provider.base_url:
        given["base_url"] = provider.base_url
    match provider.kind:
        case "bedrock":
            return anthropic.AsyncAnthropicBedrock(api_key=provider.key, **given)
        case "vertex":
            return anthropic.AsyncAnthropicVertex(access_token=provider.key, **given)
        case "foundry":
            return anthropic.AsyncAnthropicFoundry(api_key=provider.key, **given)
    # the key of one endpoint must not be sent to another: the SDK would take it from the environment
    key = provider.key if name == provider.kind else provider.key or "none"
    return anthropic.AsyncAnthropic(api_key=key, **given)


class Anthropic:
    form, path = "Anthropic", MESSAGES
    pdfs = True
    exact = False  # names without a date are not in its list
    lost: type[Exception] = anthropic.APIConnectionError

    def __init__(self, name: str, provider: Provider) -> None:
        self.client = connect_client(name, provider)
        # Bedrock and Vertex put the model into the path and sign the body, so they must build the request themselves.
        self._plain = provider.kind in ("anthropic", "foundry")

    async def ask(self, request: ModelRequest, turn: ModelResponse, on_text: Said, on_thinking: Said) -> None:
        blocks: dict[int, JsonObject] = {}
        tokens: dict[str, int] = {}
        stream = await self._post(request)
        async with stream:
            async for event in read_named(stream.response) if self._plain else stream:
                try:
                    match event["type"]:
                        case "content_block_delta":
                            _grow(blocks[event["index"]], event["delta"], turn, on_text, on_thinking)
                        case "content_block_start":
                            blocks[operator.index(event["index"])] = {**event["content_block"], "json": ""}
                        case "message_start":
                            turn.usage = _usage(_tokens(tokens, event["message"]["usage"]))
                        case "message_delta":
                            if stopped := event["delta"].get("stop_reason"):
                                turn.stop_reason = STOP_REASONS.get(stopped, StopReason.ANSWERED)
                            turn.usage = _usage(_tokens(tokens, event.get("usage") or {}))
                except (AttributeError, KeyError, TypeError) as error:
                    raise MalformedReply("an event of the stream is malformed") from error
        if turn.stop_reason is not None:
            turn.content = [block for index in sorted(blocks) if (block := read_block(blocks[index]))]

    async def _post(self, request: ModelRequest) -> Any:
        """The request is encoded and the events are read here, because each of the SDK's ways to do that costs as much
        time as the rest of the call: it walks the whole context once more, and builds typed events and a typed message.
        """
        body = {**self.render(request), "stream": True}
        sent = {"content": to_json(body)} if self._plain else {"body": body}
        return await self.client.post(
            MESSAGES, **sent, cast_to=object, stream=True, stream_cls=anthropic.AsyncStream[object]
        )

    def render(self, request: ModelRequest) -> JsonObject:
        return render_request(request, budgeted=_BUDGETED.search(request.model) is not None)

    async def look_up(self, model: str) -> None:
        if isinstance(self.client, anthropic.AsyncAnthropic) and self.client.models:  # the clouds list none
            await self.client.models.retrieve(model, timeout=5.0)

    async def list_models(self) -> list[str] | None:
        if isinstance(self.client, anthropic.AsyncAnthropic) and self.client.models:
            await self.client.models.list(limit=1, timeout=5.0)  # whether it answers
        return None

    async def search(self, model: str, query: str) -> SearchReply:
        sent = {
            "model": model,
            "max_tokens": 2_000,
            "messages": [{"role": "user", "content": query}],
            "tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 1}],
        }
        return read_search(await self.client.post(MESSAGES, body=sent, cast_to=object))

    async def close(self) -> None:
        await self.client.close()

    def read_error(self, error: BaseException) -> Reported | None:
        return read_error(error)


# the request


def render_request(request: ModelRequest, *, budgeted: bool = False) -> JsonObject:
    """The request in the form of the API. `budgeted`: the model needs a token budget for its thinking."""
    mark = {"cache_control": {"type": "ephemeral"}} if request.cached else {}
    messages: list[JsonObject] = [
        {"role": message.role, "content": [_render_block(block, request.files) for block in message.content]}
        for message in request.messages
    ]
    # Cache points: the end of the newest user message, and of the one before it.
    for message in [message for message in messages if message["role"] == "user"][-2:]:
        message["content"][-1].update(mark)
    notes = [{"type": "text", "text": note} for note in request.notes]
    if notes and messages and messages[-1]["role"] == "user":
        messages[-1]["content"] += notes
    elif notes:
        messages.append({"role": "user", "content": notes})
    sent: JsonObject = {
        "model": request.model,
        "max_tokens": request.output_tokens,  # the API counts thoughts as output
        "system": [{"type": "text", "text": request.system, **mark}],
        "messages": messages,
    }
    if request.tools:
        sent["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
            for tool in request.tools
        ]
        if choice := _tool_choice(request.settings):
            sent["tool_choice"] = choice
    settings = request.settings
    sent |= {name: value for name in ("temperature", "top_p") if (value := getattr(settings, name)) is not None}
    if settings.effort is not None and not budgeted:
        sent["output_config"] = {"effort": _EFFORTS.get(settings.effort, settings.effort)}
    if request.thinking_tokens and budgeted and not _switched(request.messages):
        sent["thinking"] = {"type": "enabled", "budget_tokens": request.thinking_tokens}
    elif request.thinking_tokens and not budgeted:
        sent["thinking"] = {"type": "adaptive", "display": "summarized"}
    return sent


def _switched(messages: list[ModelMessage]) -> bool:
    """Whether the calls that are answered last were another model's. Then a turn began without this model's thoughts,
    and it may not begin to think before the turn has ended."""
    replies = [message.content for message in messages if message.role == "assistant"]
    calls = any(isinstance(block, ToolCallBlock) for block in replies[-1]) if replies else False
    return calls and not any(isinstance(block, ThinkingBlock) for block in replies[-1])


def _tool_choice(settings: ModelSettings) -> JsonObject | None:
    kind = _CHOICES.get(settings.tool_choice, "tool")
    choice: JsonObject = {"type": kind} | ({"name": settings.tool_choice} if kind == "tool" else {})
    if not settings.parallel_tool_calls and kind != "none":
        choice["disable_parallel_tool_use"] = True
    return None if choice == {"type": "auto"} else choice


def _render_block(block: AnyBlock, files: Mapping[str, bytes]) -> JsonObject:
    match block:
        case TextBlock():
            return {"type": "text", "text": block.text}
        case FileBlock() if (data := files.get(block.file_id)) is not None:
            source = {"type": "base64", "media_type": block.media_type, "data": base64.b64encode(data).decode()}
            return {"type": block.type, "source": source, **({"title": block.name} if block.type == "document" else {})}
        case FileBlock():
            return {"type": "text", "text": block.describe()}
        case ToolCallBlock():
            return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.arguments}
        case ToolResultBlock():
            text: Any = block.text or "(no output)"  # the API refuses an empty text
            if block.files:
                text = [{"type": "text", "text": text}, *(_render_block(file, files) for file in block.files)]
            return {"type": "tool_result", "tool_use_id": block.call_id, "content": text, "is_error": block.failed}
        case ThinkingBlock(hidden=True):
            return {"type": "redacted_thinking", "data": block.proof}
        case ThinkingBlock():
            return {"type": "thinking", "thinking": block.text, "signature": block.proof}


# the reply


async def read_named(response: httpx2.Response) -> AsyncIterator[JsonObject]:
    """The events of a streamed reply, each as the JSON object in its data. Like the SDK it leaves out what has no name:
    some endpoints end their stream with `[DONE]`."""
    async for name, data in read_events(response):
        if name == b"error":
            raise StreamFailed(data, response)
        if name and name != b"ping":
            yield read_object(data)


def _tokens(so_far: dict[str, int], usage: JsonObject) -> dict[str, int]:
    """Read the token counts. They are cumulative, and a later event may omit some."""
    for name in _COUNTS.values():
        if (count := usage.get(name)) is not None:
            so_far[name] = count
    return so_far


def _usage(tokens: dict[str, int]) -> Usage:
    return Usage(llm_calls=1, **{name: tokens.get(theirs, 0) for name, theirs in _COUNTS.items()})


def _grow(block: JsonObject, delta: JsonObject, turn: ModelResponse, on_text: Said, on_thinking: Said) -> None:
    match delta["type"]:
        case "text_delta":
            block["text"] += delta["text"]
            turn.text += delta["text"]
            on_text(delta["text"])
        case "input_json_delta":
            block["json"] += delta["partial_json"]
        case "thinking_delta":
            block["thinking"] += delta["thinking"]
            turn.thinking += delta["thinking"]
            on_thinking(delta["thinking"])
        case "signature_delta":
            block["signature"] = delta["signature"]


def read_block(received: JsonObject) -> ReplyBlock | None:
    """Convert a finished block of the stream; None if there is nothing to keep. Raises ValueError for a block that
    could be neither stored nor sent back: one without its fields, a tool call whose arguments are not a JSON object, or
    lone surrogates."""
    try:
        return _read(received)
    except (AttributeError, KeyError, TypeError) as error:
        raise MalformedReply("a block of the stream is malformed") from error


def _read(received: JsonObject) -> ReplyBlock | None:
    match received["type"]:
        case "text":
            text = clean(received["text"])
            return TextBlock(text=text) if text.strip() else None
        case "tool_use":
            return read_call(received["name"], received["json"] or received["input"])
        case "thinking":
            return ThinkingBlock(
                text=check_whole(received["thinking"]), proof=check_whole(received.get("signature", ""))
            )
        case "redacted_thinking":
            return ThinkingBlock(proof=check_whole(received["data"]), hidden=True)
    return None


def read_search(answer: Any) -> SearchReply:
    """The results of a search. They are encrypted but for their titles: what the reply quotes is readable."""
    found: list[JsonObject] = []
    quoted: dict[str, str] = {}
    try:
        for block in answer["content"]:
            for cited in block.get("citations") or ():
                quoted[cited["url"]] = f"{quoted.get(cited['url'], '')} {cited['cited_text']}"
            if block["type"] == "web_search_tool_result":
                if isinstance(block["content"], dict):
                    raise MalformedReply(f"its search failed: {str(block['content'].get('error_code'))[:64]}")
                found += block["content"]
        results = [{"url": one["url"], "title": one.get("title"), "content": quoted.get(one["url"])} for one in found]
        return SearchReply(results, _usage(_tokens({}, answer["usage"])))
    except (AttributeError, KeyError, TypeError) as error:
        raise MalformedReply("the reply to a search is malformed") from error


# errors


def read_error(error: BaseException) -> Reported | None:
    """By the API's own type of error: an error inside a running stream has status 200."""
    if isinstance(error, StreamFailed):
        said = error.said or "The model API reported an error."
        return Reported(error.kind, said, error.response, too_long=_too_long(error.kind, said))
    if not isinstance(error, anthropic.APIStatusError):
        return None
    status = error.status_code
    kind = str(error.type or "") or BY_STATUS.get(status, "api_error" if status >= 500 else UNKNOWN)
    if status in (404, 405) and error.type is None:
        kind = "wrong_form"
    said = str(error.api_message or "") or f"The model API answered {status}."
    kind = "billing_error" if _NO_CREDIT in said else kind
    return Reported(kind, said, error.response, status, retryable=status >= 500, too_long=_too_long(kind, said))


_TOO_LONG = re.compile(r"prompt is too long|exceed context limit|input is too long", re.I)  # the last is Bedrock's
_NO_CREDIT = "credit balance is too low"  # with status 400


def _too_long(kind: str, said: str) -> bool:
    return kind == "invalid_request_error" and _TOO_LONG.search(said) is not None

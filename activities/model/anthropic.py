"""The model client, and the only module that knows Anthropic's form of a request and a reply. It makes one streamed
request through the SDK and passes the pieces on as they arrive."""

import contextlib
import json
import operator
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anthropic
import httpx2
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode
from pydantic_core import from_json, to_json

from activities.model.errors import IncompleteStream, StreamFailed
from activities.tools.support.output import clean
from domain.agents.prices import PriceTable
from domain.content import AnyBlock, ReplyBlock, TextBlock, ThinkingBlock, ToolCallBlock, ToolResultBlock
from domain.json_object import JsonObject
from domain.limits.budget import CallEstimate
from domain.model_exchange import ModelRequest, ModelResponse, ModelSettings
from domain.sessions.session import Usage
from domain.sessions.step import StopReason

MESSAGES = "/v1/messages"
MOST_EVENT = 32_000_000  # bytes; a single event is a piece of a reply
MOST_ERROR_BODY = 32_000  # bytes of a failed response; of its text 500 characters are used
CHARACTERS = 3  # of a request, per token; low on purpose, so that an estimate is too high rather than too low
STOP_REASONS = {
    "tool_use": StopReason.TOOL_CALLS,
    "max_tokens": StopReason.CUT_OFF,
    "pause_turn": StopReason.PAUSED,
    "model_context_window_exceeded": StopReason.CONTEXT_FULL,
    "refusal": StopReason.DECLINED,
}  # any other reason, even an unknown one, counts as an answer


def connect_client(key: str | None, url: str | None) -> anthropic.AsyncAnthropic:
    """The SDK's client on aiohttp. Temporal does the retries: the SDK's own would hide attempts, and it obeys any
    retry-after without a limit."""
    # not compressed, because a small body could become a large one; no redirects, which would take the key along
    http = anthropic.DefaultAioHttpClient(
        event_hooks={"response": [_bound_error_body]}, headers={"accept-encoding": "identity"}, follow_redirects=False
    )
    return anthropic.AsyncAnthropic(api_key=key, base_url=url, http_client=http, max_retries=0)


async def _bound_error_body(response: httpx2.Response) -> None:
    """The SDK reads the body of a failed response whole before it raises, so an endless one would fill the memory. One
    that is compressed all the same is not unpacked."""
    if not response.is_success and isinstance(response.stream, httpx2.AsyncByteStream):
        response.headers.pop("content-encoding", None)
        response.stream = _FirstBytes(response.stream)


class _FirstBytes(httpx2.AsyncByteStream):
    def __init__(self, whole: httpx2.AsyncByteStream) -> None:
        self._whole = whole

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MOST_ERROR_BODY
        async for chunk in self._whole:
            yield chunk[:left]
            left -= len(chunk)
            if left <= 0:
                return

    async def aclose(self) -> None:
        await self._whole.aclose()


class Model:
    def __init__(self, client: anthropic.AsyncAnthropic, prices: PriceTable) -> None:
        self._client = client
        self._prices = prices

    async def ask(
        self,
        request: ModelRequest,
        turn: ModelResponse,
        on_text: Callable[[str], None],
        on_thinking: Callable[[str], None],
    ) -> None:
        """Fill `turn` while the stream arrives, so that an interrupted call still has the part that arrived.

        The request is encoded and the events are read here, because each of the SDK's ways to do that costs as much
        time as the rest of the call: it walks the whole context once more, and builds typed events and a typed message.
        """
        with _span(request.model, turn):
            await self._stream(request, turn, on_text, on_thinking)

    async def _stream(
        self,
        request: ModelRequest,
        turn: ModelResponse,
        on_text: Callable[[str], None],
        on_thinking: Callable[[str], None],
    ) -> None:
        blocks: dict[int, JsonObject] = {}
        tokens: dict[str, int] = {}
        stream = await self._client.post(
            MESSAGES,
            content=to_json({**self._spelled(request), "stream": True}),
            cast_to=object,
            stream=True,
            stream_cls=anthropic.AsyncStream[Any],
        )
        async with stream:
            async for event in read_events(stream.response):
                try:
                    match event["type"]:
                        case "content_block_delta":
                            _grow(blocks[event["index"]], event["delta"], turn, on_text, on_thinking)
                        case "content_block_start":
                            blocks[operator.index(event["index"])] = {**event["content_block"], "json": ""}
                        case "message_start":
                            turn.usage = self._usage(request.model, _tokens(tokens, event["message"]["usage"]))
                        case "message_delta":
                            if stopped := event["delta"].get("stop_reason"):
                                turn.stop_reason = STOP_REASONS.get(stopped, StopReason.ANSWERED)
                            turn.usage = self._usage(request.model, _tokens(tokens, event.get("usage") or {}))
                except (AttributeError, KeyError, TypeError) as error:
                    raise ValueError("an event of the stream is malformed") from error
        if turn.stop_reason is None:
            raise IncompleteStream("The model's reply broke off before its end.")
        turn.content = [block for index in sorted(blocks) if (block := read_block(blocks[index]))]

    def estimate(self, request: ModelRequest) -> CallEstimate:
        """The most that a call can cost. Input counts as written to the cache, which is the highest price."""
        sent = self._spelled(request)
        entered = len(json.dumps([sent["messages"], sent.get("tools"), sent["system"]])) // CHARACTERS
        return CallEstimate(
            input_tokens=entered,
            output_tokens=request.output_tokens,
            input_usd=self._prices.cost(request.model, 0, 0, cache_write=entered),
            output_usd=self._prices.cost(request.model, 0, request.output_tokens),
        )

    def nearly_full(self, model: str, usage: Usage) -> bool:
        window = self._prices.context_window(model)
        return window is not None and usage.tokens > 0.8 * window

    def _spelled(self, request: ModelRequest) -> JsonObject:
        return spelled(request, budgeted=self._prices.thinks_by_budget(request.model))

    def _usage(self, model: str, tokens: dict[str, int]) -> Usage:
        known = {name: tokens.get(theirs, 0) for name, theirs in _COUNTS.items()}
        cost = self._prices.cost(
            model,
            known["input_tokens"],
            known["output_tokens"],
            known["cache_read_tokens"],
            known["cache_write_tokens"],
        )
        return Usage(llm_calls=1, cost_usd=cost, **known)


async def read_events(response: httpx2.Response) -> AsyncIterator[JsonObject]:
    """The server-sent events of a streamed reply, each as the JSON object in its data. Raises StreamFailed for an error
    of the API, and ValueError for data that is not a JSON object. Like the SDK it leaves out what has no name: some
    endpoints end their stream with `[DONE]`. The SDK's own decoder takes a third of the CPU of a piece: it reads each
    line several times and keeps it for later."""
    rest = name = b""
    data: list[bytes] = []
    async for chunk in response.aiter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                data.append(line[5:])
            elif line.startswith(b"event:"):
                name = line[6:].strip()
            elif not line:  # the end of the event
                text = b"\n".join(data).strip()
                if name == b"error":
                    raise StreamFailed(text, response)
                if name and name != b"ping" and text:
                    yield _read_object(text)
                name, data = b"", []
        if len(rest) + sum(map(len, data)) > MOST_EVENT:
            raise ValueError("an event of the stream is too long")


def _read_object(data: bytes) -> JsonObject:
    found = from_json(data, allow_inf_nan=False)
    if not isinstance(found, dict):
        raise ValueError("an event of the stream is not an object")
    return found


_COUNTS = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_tokens": "cache_read_input_tokens",
    "cache_write_tokens": "cache_creation_input_tokens",
}


@contextlib.contextmanager
def _span(model: str, turn: ModelResponse) -> Iterator[None]:
    """A span of a request, as the SDK's own methods make it. Texts of errors stay out: they can quote the request."""
    asked = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "anthropic", "gen_ai.request.model": model}
    with trace.get_tracer(__name__).start_as_current_span(
        f"chat {model}",
        kind=SpanKind.CLIENT,
        attributes=asked,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield
        except BaseException as error:
            span.set_status(StatusCode.ERROR)
            span.set_attribute("error.type", type(error).__name__)
            raise
        finally:
            span.set_attribute("gen_ai.usage.input_tokens", turn.usage.input_tokens)
            span.set_attribute("gen_ai.usage.output_tokens", turn.usage.output_tokens)


def _tokens(so_far: dict[str, int], usage: JsonObject) -> dict[str, int]:
    """Read the token counts. They are cumulative, and a later event may omit some."""
    for name in _COUNTS.values():
        if (count := usage.get(name)) is not None:
            so_far[name] = count
    return so_far


def _grow(
    block: JsonObject,
    delta: JsonObject,
    turn: ModelResponse,
    on_text: Callable[[str], None],
    on_thinking: Callable[[str], None],
) -> None:
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


def spelled(request: ModelRequest, *, budgeted: bool = False) -> JsonObject:
    """The request in the form of the API. `budgeted`: the model needs a token budget for its thinking."""
    mark = {"cache_control": {"type": "ephemeral"}} if request.cached else {}
    messages: list[JsonObject] = [
        {"role": message.role, "content": [_spelled_block(block) for block in message.content]}
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
    if request.thinking_tokens and budgeted:
        sent["thinking"] = {"type": "enabled", "budget_tokens": request.thinking_tokens}
    elif request.thinking_tokens:
        sent["thinking"] = {"type": "adaptive", "display": "summarized"}
    return sent


_EFFORTS = {"none": "low", "minimal": "low"}  # the API's lowest
_CHOICES = {"auto": "auto", "required": "any", "none": "none"}


def _tool_choice(settings: ModelSettings) -> JsonObject | None:
    kind = _CHOICES.get(settings.tool_choice, "tool")
    choice: JsonObject = {"type": kind} | ({"name": settings.tool_choice} if kind == "tool" else {})
    if not settings.parallel_tool_calls and kind != "none":
        choice["disable_parallel_tool_use"] = True
    return None if choice == {"type": "auto"} else choice


def _spelled_block(block: AnyBlock) -> JsonObject:
    match block:
        case TextBlock():
            return {"type": "text", "text": block.text}
        case ToolCallBlock():
            return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.arguments}
        case ToolResultBlock():
            text = block.text or "(no output)"  # the API refuses an empty text
            return {"type": "tool_result", "tool_use_id": block.call_id, "content": text, "is_error": block.failed}
        case ThinkingBlock(hidden=True):
            return {"type": "redacted_thinking", "data": block.proof}
        case ThinkingBlock():
            return {"type": "thinking", "thinking": block.text, "signature": block.proof}


def read_block(received: JsonObject) -> ReplyBlock | None:
    """Convert a finished block of the stream; None if there is nothing to keep. Raises ValueError for a block that
    could be neither stored nor sent back: one without its fields, a tool call whose arguments are not a JSON object, or
    lone surrogates."""
    try:
        return _read(received)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError("a block of the stream is malformed") from error


def _read(received: JsonObject) -> ReplyBlock | None:
    match received["type"]:
        case "text":
            text = clean(received["text"])
            return TextBlock(text=text) if text.strip() else None
        case "tool_use":
            arguments = from_json(received["json"], allow_inf_nan=False) if received["json"] else received["input"]
            if not isinstance(arguments, dict):
                raise ValueError("the arguments of a tool call are not an object")
            return ToolCallBlock(id=_whole(received["id"]), name=_whole(received["name"]), arguments=arguments)
        case "thinking":
            return ThinkingBlock(text=_whole(received["thinking"]), proof=_whole(received.get("signature", "")))
        case "redacted_thinking":
            return ThinkingBlock(proof=_whole(received["data"]), hidden=True)
    return None


def _whole(text: str) -> str:
    text.encode()  # raises UnicodeEncodeError, a ValueError, for a lone surrogate
    return text

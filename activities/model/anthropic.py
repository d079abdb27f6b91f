"""The model client, and the only module that knows Anthropic's form of a request, a reply and an error. It makes one
streamed request through the SDK and passes the pieces on as they arrive.

Read it in this order: `Model`, how a request is written, how a reply is read, what a failure means, whether a model can
be called at all.
"""

import contextlib
import json
import logging
import math
import operator
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import anthropic
import httpx2
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode
from pydantic_core import from_json, to_json

from activities.tools.tool import clean
from domain import wire
from domain.agents.prices import PriceTable
from domain.json_object import JsonObject
from domain.limits import CallEstimate
from domain.messages import (
    AnyBlock,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    ReplyBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from domain.redaction import shorten_and_redact
from domain.sessions.session import StopReason, Usage

MESSAGES = "/v1/messages"
MOST_EVENT = 32_000_000  # bytes; a single event is a piece of a reply
MOST_ERROR_BODY = 32_000  # bytes of a failed response; of its text 500 characters are used
CHARACTERS = 3  # of a request, per token; low on purpose, so that an estimate is too high rather than too low
MOST_SAID = 500  # characters of the endpoint's own message, which may quote the request
MOST_KIND = 64  # characters of its type of error, which is stored in histories
UNKNOWN = "unknown_error"
LONGEST_WAIT = 300.0  # seconds; with a longer retry-after we try earlier instead of sleeping for days
FRESH_SECONDS = 60.0
AGAIN_SECONDS = 60.0
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
log = logging.getLogger("errand.worker")


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
            content=to_json({**self._render(request), "stream": True}),
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
        sent = self._render(request)
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

    def _render(self, request: ModelRequest) -> JsonObject:
        return render_request(request, budgeted=self._prices.thinks_by_budget(request.model))

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


# the request


def render_request(request: ModelRequest, *, budgeted: bool = False) -> JsonObject:
    """The request in the form of the API. `budgeted`: the model needs a token budget for its thinking."""
    mark = {"cache_control": {"type": "ephemeral"}} if request.cached else {}
    messages: list[JsonObject] = [
        {"role": message.role, "content": [_render_block(block) for block in message.content]}
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


def _tool_choice(settings: ModelSettings) -> JsonObject | None:
    kind = _CHOICES.get(settings.tool_choice, "tool")
    choice: JsonObject = {"type": kind} | ({"name": settings.tool_choice} if kind == "tool" else {})
    if not settings.parallel_tool_calls and kind != "none":
        choice["disable_parallel_tool_use"] = True
    return None if choice == {"type": "auto"} else choice


def _render_block(block: AnyBlock) -> JsonObject:
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


# the reply


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


# failures: retry later, compact, try another model, or give up with a readable sentence


@dataclass(frozen=True)
class ModelFailure:
    type: str
    message: str
    retryable: bool
    wait: float | None = None  # the server's own retry-after
    any_model: bool = False  # other models would fail in the same way


class IncompleteStream(Exception):
    """The stream ended without a stop reason, so the reply is incomplete."""


class StreamFailed(Exception):
    """An error of the API inside a stream, whose response had begun with status 200. `data` should be an object with
    its type and message, but gateways send other things too."""

    def __init__(self, data: bytes, response: httpx2.Response) -> None:
        try:
            error = from_json(data)["error"]
            self.kind, self.said = str(error.get("type") or UNKNOWN)[:MOST_KIND], str(error.get("message") or "")
        except (AttributeError, KeyError, TypeError, ValueError):
            self.kind, self.said = UNKNOWN, data.decode(errors="replace")
        super().__init__(self.said)
        self.response = response
        self.request = response.request


# By the API's own error type: an error inside a running stream has status 200.
_RETRYABLE = {"rate_limit_error", "overloaded_error", "api_error", "timeout_error", "conflict_error"}
_BY_STATUS = {400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error",
              404: "not_found_error", 408: "timeout_error", 409: "conflict_error", 413: "request_too_large",
              422: "invalid_request_error", 429: "rate_limit_error", 529: "overloaded_error"}  # fmt: skip
# if this model is unknown or not permitted, another one may still answer
UNAVAILABLE = {"not_found_error", "permission_error"}
BAD_KEY = "authentication_error"
# advice for people
_ADVICE = {
    "authentication_error": "Set a valid ANTHROPIC_API_KEY and start again.",
    "billing_error": "The account of this key needs credit.",
    "permission_error": "Use a key that may use this model, or another model.",
    "not_found_error": "Check the model's name and ANTHROPIC_BASE_URL.",
    "connection_error": "Check ANTHROPIC_BASE_URL and the network.",
}


def classify_failure(error: BaseException, model: str) -> ModelFailure:
    """Classify the failure of a call to this model."""
    if isinstance(error, anthropic.APIStatusError):
        return _classify_status(error, model)
    if isinstance(error, StreamFailed):
        said = error.said or "The model API reported an error."
        return _classify_kind(error.kind, said, f"{error.kind}; ", error, error.response.headers, model)
    if isinstance(error, IncompleteStream):
        return ModelFailure("incomplete_stream", str(error), retryable=True)
    if isinstance(error, anthropic.APIResponseValidationError | httpx2.DecodingError | ValueError):
        return ModelFailure("malformed_reply", "The model's reply could not be read.", retryable=True)
    if isinstance(error, anthropic.APIConnectionError | httpx2.TransportError):
        return _classify_connection(error, model)
    raise error


def _classify_connection(error: anthropic.APIConnectionError | httpx2.TransportError, model: str) -> ModelFailure:
    cause = error.__cause__ if isinstance(error, anthropic.APIConnectionError) else error
    match cause:
        case httpx2.ConnectError() | httpx2.ConnectTimeout():  # the latter also if the endpoint hung up on the request
            said = "The model cannot be reached, or it closed the connection without an answer."
            return _failed("connection_error", said, error, model)
        case httpx2.TimeoutException():
            return _failed("timeout_error", "The model did not answer in time.", error, model)
    return _failed("connection_error", "The connection to the model was lost.", error, model)


def _failed(kind: str, said: str, error: anthropic.APIError | httpx2.TransportError, model: str) -> ModelFailure:
    return ModelFailure(kind, _message(kind, said, "", error, model), retryable=True)


def _message(
    kind: str, said: str, status: str, error: anthropic.APIError | httpx2.TransportError | StreamFailed, model: str
) -> str:
    """The endpoint's message, then status, model and endpoint, then advice."""
    shown = shorten_and_redact(said, MOST_SAID).rstrip(".")
    text = f"{shown} ({status}model {model} at {endpoint(str(error.request.url))})"
    return f"{text}. {_ADVICE[kind]}" if kind in _ADVICE else text


def endpoint(url: str) -> str:
    """Scheme, host and port only: the rest of the URL is not useful here and may contain a password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _classify_status(error: anthropic.APIStatusError, model: str) -> ModelFailure:
    kind = error.type or _BY_STATUS.get(error.status_code, "api_error" if error.status_code >= 500 else UNKNOWN)
    said = error.api_message or f"The model API answered {error.status_code}."
    status, broken = f"status {error.status_code}; ", error.status_code >= 500
    return _classify_kind(kind, said, status, error, error.response.headers, model, retryable=broken)


def _classify_kind(
    kind: str,
    said: str,
    status: str,
    error: anthropic.APIError | StreamFailed,
    headers: httpx2.Headers,
    model: str,
    *,
    retryable: bool = False,
) -> ModelFailure:
    """`kind`: the API's own type of error. `retryable`: if the kind does not decide it."""
    message = _message(kind, said, status, error, model)
    if kind == "request_too_large" or (kind == "invalid_request_error" and "prompt is too long" in said):
        return ModelFailure(wire.CONTEXT_TOO_LONG, message, retryable=False)
    retryable = retryable or kind in _RETRYABLE
    advice = headers.get("x-should-retry")
    if advice in ("true", "false"):
        retryable = advice == "true"
    return ModelFailure(kind, message, retryable, _retry_after(headers.get("retry-after")))


def _retry_after(value: str | None) -> float | None:
    try:
        return min(max(float(value or ""), 0.0), LONGEST_WAIT)
    except ValueError:
        return None


def retry_pause(attempt: int, failure: ModelFailure) -> float:
    """Seconds until the next attempt: the server's retry-after, else 1, 2, 4 … up to 60."""
    if failure.wait is not None:
        return failure.wait
    return float(min(2 ** min(attempt - 1, 6), 60))


# whether a model can be called at all: asked when a worker starts, and before a subagent gets an id


class ModelCheck:
    def __init__(self, client: anthropic.AsyncAnthropic) -> None:
        self._client = client.with_options(max_retries=0, timeout=5.0)
        self._good: dict[str, float] = {}

    async def problem(self, model: str) -> str | None:
        """Why calls to this model are certain to fail; None if they are not, or if that cannot be known now."""
        if time.monotonic() - self._good.get(model, -FRESH_SECONDS) < FRESH_SECONDS:
            return None
        try:
            await self._client.models.retrieve(model)
        except anthropic.NotFoundError:
            return f"The model {model!r} does not exist or is not available to this key."
        except (anthropic.AuthenticationError, anthropic.PermissionDeniedError):
            return "The model API does not accept the credentials."
        except anthropic.APIError:
            return None  # unreachable or overloaded: the session's own retries handle that
        self._good[model] = time.monotonic()
        return None

    async def trial(self, model: str) -> str | None:
        """Why a call to this model would fail now, and what to do about it; None if it would succeed."""
        try:
            await self._client.models.retrieve(model)
        except (anthropic.APIError, httpx2.TransportError) as error:
            return classify_failure(error, model).message
        return None

    async def failure(self, error: BaseException, model: str) -> ModelFailure:
        """Classify a failed call. A refused key can be replaced, so the call waits for that."""
        failure = classify_failure(error, model)
        if failure.type != BAD_KEY or failure.retryable or not await self._refuses_key(model):
            return failure
        return replace(failure, message=f"{failure.message} The task waits for it.", retryable=True, any_model=True)

    async def _refuses_key(self, model: str) -> bool:
        try:
            await self._client.models.retrieve(model)
        except anthropic.AuthenticationError:
            return True
        except (anthropic.APIError, httpx2.TransportError):
            return False
        return False


class ModelTrial:
    """Tries the default model once, and again every minute while that fails."""

    def __init__(self, check: ModelCheck, model: str) -> None:
        self._check = check
        self._model = model
        self._next = 0.0
        self.problems: list[str] = []

    async def run(self) -> bool:
        """Try the model; True if the result is new."""
        if time.monotonic() < self._next:
            return False
        problem = await self._check.trial(self._model)
        found = [f"model: {problem}"] if problem else []
        self._next = time.monotonic() + AGAIN_SECONDS if problem else math.inf
        changed, self.problems = found != self.problems, found
        if changed:
            log.info("the model %s can be called", self._model) if problem is None else log.error("%s", found[0])
        return changed

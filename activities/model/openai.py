"""OpenAI's form: Chat Completions, at OpenAI, Azure, Ollama, and wherever else it is spoken.

Read it in this order: `OpenAI`, how a request is written, how a reply is read, what an error means.
"""

import base64
import contextlib
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import httpx2
import openai
from pydantic_core import from_json, to_json

from activities.model.models import (
    BY_STATUS,
    UNKNOWN,
    MalformedReply,
    MissingModel,
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
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ReplyBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from domain.pictures import FileBlock
from domain.sessions.session import StopReason, Usage

COMPLETIONS = "/chat/completions"
STOP_REASONS = {
    **{"tool_calls": StopReason.TOOL_CALLS, "function_call": StopReason.TOOL_CALLS},
    **{"length": StopReason.CUT_OFF, "content_filter": StopReason.DECLINED},
}  # any other reason counts as an answer
# An endpoint that refuses one of these is asked again without it, or by its other name: the reply is the same.
_OTHER_NAMES = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens", "stream_options": None}
QUOTED = 600  # characters before the mark of a citation
_REASONING = ("reasoning_content", "reasoning")  # two names for the same: DeepSeek's and Ollama's


class OpenAI:
    form, path = "OpenAI", COMPLETIONS
    lost: type[Exception] = openai.APIConnectionError

    def __init__(self, name: str, provider: Provider) -> None:
        self.client = connect_client(name, provider)
        self._own = self.pdfs = provider.of_openai or provider.kind == "azure"
        self.exact = provider.lists_all
        self._marks_cache = (
            urlsplit(provider.address or "").hostname == "openrouter.ai"
        )  # for models whose vendor wants the cache points named
        self._deploys = provider.api_version is not None  # an older Azure has the model in its path
        self._refused: dict[str, set[str]] = {}  # parameters by model

    async def ask(self, request: ModelRequest, turn: ModelResponse, on_text: Said, on_thinking: Said) -> None:
        reply = ReplyReader(turn, on_text, on_thinking)
        async for chunk in self._chunks(request):
            try:
                reply.read(chunk)
            except (AttributeError, KeyError, TypeError) as error:
                raise MalformedReply("a piece of the stream is malformed") from error
        if reply.stopped is not None:
            turn.content = reply.content()
            turn.stop_reason = StopReason.TOOL_CALLS if turn.calls and reply.stopped == "stop" else reply.stop_reason

    async def _chunks(self, request: ModelRequest) -> AsyncIterator[JsonObject]:
        body = {**self.render(request), "stream": True, "stream_options": {"include_usage": True}}
        try:
            stream = await self._post(request.model, body)
            async with stream:
                async for _, data in read_events(stream.response):
                    if data == b"[DONE]":
                        return
                    chunk = read_object(data)
                    if chunk.get("error"):
                        raise StreamFailed(data, stream.response)
                    yield chunk
        except aiohttp.ClientError as error:  # which the SDK's transport lets through
            raise openai.APIConnectionError(request=httpx2.Request("POST", self.client.base_url)) from error

    async def _post(self, model: str, body: JsonObject) -> openai.AsyncStream[object]:
        refused = self._refused.setdefault(model, set()) if len(self._refused) < 1_000 else set()
        while True:
            tried = frozenset(refused)  # other calls learn at the same time
            names = {name: _OTHER_NAMES[name] if name in tried else name for name in body}
            sent = {new: body[name] for name, new in names.items() if new is not None}
            payload: Any = {"body": sent} if self._deploys else {"content": to_json(sent)}
            try:
                return await self.client.post(
                    COMPLETIONS, **payload, cast_to=object, stream=True, stream_cls=openai.AsyncStream[object]
                )
            except openai.BadRequestError as error:
                unknown = _unknown_parameter(error) & _OTHER_NAMES.keys() & sent.keys()
                if not unknown or tried & unknown:
                    raise
                refused |= unknown

    def render(self, request: ModelRequest) -> JsonObject:
        sent = render_request(request, binds_with_tools=self._own)
        sent["max_completion_tokens" if self._own else "max_tokens"] = request.output_tokens
        if request.cached and self._marks_cache and request.model.startswith("anthropic/"):
            _mark_cache(sent["messages"])
        return sent

    async def look_up(self, model: str) -> None:
        known = await self.list_models()
        if self.exact and known is not None and not {model, f"{model}:latest"} & {*known}:
            raise MissingModel(known)

    async def list_models(self) -> list[str] | None:
        try:
            page = await self.client.get("/models", cast_to=object, options={"timeout": 5.0})
        except openai.NotFoundError:  # not every endpoint has a list
            return None
        data = page.get("data") if isinstance(page, dict) else None
        return [str(one["id"]) for one in data or () if isinstance(one, dict) and "id" in one]

    async def search(self, model: str, query: str) -> SearchReply:
        """Search by OpenAI's other API: the one of `ask` cannot."""
        sent = {
            "model": model,
            "input": query,
            "tools": [{"type": "web_search"}],
            "tool_choice": "required",
            "include": ["web_search_call.action.sources"],
            "store": False,
        }
        return read_search(await self.client.post("/responses", body=sent, cast_to=object))

    async def close(self) -> None:
        await self.client.close()

    def read_error(self, error: BaseException) -> Reported | None:
        return read_error(error)


def connect_client(name: str, provider: Provider) -> openai.AsyncOpenAI:
    """The SDK's client for this provider. Temporal does the retries. What the SDK would take from the environment is of
    OpenAI only, and must not be sent to another endpoint."""
    given: Any = {"http_client": build_client(openai.DefaultAioHttpClient), "max_retries": 0}
    key = provider.key or "none"  # a server on this machine needs none
    if not (base_url := provider.address):
        raise ValueError("its base_url is missing")
    if provider.kind == "azure" and provider.api_version:
        version = provider.api_version
        return openai.AsyncAzureOpenAI(api_key=key, azure_endpoint=base_url, api_version=version, **given)
    if provider.kind == "azure" and "/openai" not in base_url:
        base_url = f"{base_url.rstrip('/')}/openai/v1/"
    if name != "openai":
        given["default_headers"] = {"OpenAI-Organization": openai.Omit(), "OpenAI-Project": openai.Omit()}
    return openai.AsyncOpenAI(api_key=key, base_url=base_url, **given)


# the request


def render_request(request: ModelRequest, *, binds_with_tools: bool = False) -> JsonObject:
    """The request in the form of the API, but for the length of its answer, which has two names. `binds_with_tools`:
    the answer can be bound to a schema although there are tools."""
    messages: list[JsonObject] = [{"role": "system", "content": request.system}]
    newest = max((place for place, one in enumerate(request.messages) if _asks(one)), default=0)
    for place, message in enumerate(request.messages):
        answers = message.role == "assistant"
        messages += _render_reply(message, thinks=place > newest) if answers else _render(message, request.files)
    notes = [{"type": "text", "text": note} for note in request.notes]  # apart, after all that can be cached
    if notes and messages[-1]["role"] == "user":
        said = messages[-1]["content"]
        messages[-1]["content"] = [*([{"type": "text", "text": said}] if isinstance(said, str) else said), *notes]
    elif notes:
        messages.append({"role": "user", "content": notes})
    settings, sent = request.settings, JsonObject(model=request.model, messages=messages)
    if request.tools:
        sent["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.input_schema},
            }
            for tool in request.tools
        ]
        if settings.tool_choice in ("none", "required"):
            sent["tool_choice"] = settings.tool_choice
        elif settings.tool_choice != "auto":
            sent["tool_choice"] = {"type": "function", "function": {"name": settings.tool_choice}}
        if not settings.parallel_tool_calls:
            sent["parallel_tool_calls"] = False
    sent |= {name: value for name in ("temperature", "top_p") if (value := getattr(settings, name)) is not None}
    if settings.effort is not None:
        sent["reasoning_effort"] = settings.effort
    if request.output_schema is not None and (binds_with_tools or not request.tools):
        form = {"name": "answer", "schema": request.output_schema, "strict": False}
        sent["response_format"] = {"type": "json_schema", "json_schema": form}
    return sent


def _asks(message: ModelMessage) -> bool:
    """Whether a message is a person's, and not only results of tools."""
    return message.role == "user" and not any(isinstance(block, ToolResultBlock) for block in message.content)


def _render(message: ModelMessage, files: Mapping[str, bytes]) -> list[JsonObject]:
    """Results of tools are messages of their own, before what else the user says. They are texts: their files come
    after them all, as the user's."""
    sent: list[JsonObject] = []
    shown: list[JsonObject] = []
    texts: list[str] = []
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            text = block.text or "(no output)"
            text = f"The call failed: {text}" if block.failed else text  # the form has no mark for it
            described = [file.describe() for file in block.files if file.file_id not in files]
            sent.append({"role": "tool", "tool_call_id": block.call_id, "content": "\n".join([text, *described])})
            if len(described) < len(block.files):
                shown.append({"type": "text", "text": f"Files of the result of the call {block.call_id}:"})
            shown += [_render_file(file, files[file.file_id]) for file in block.files if file.file_id in files]
        elif isinstance(block, FileBlock) and block.file_id in files:
            shown.append(_render_file(block, files[block.file_id]))
        elif isinstance(block, TextBlock | FileBlock):
            texts.append(block.text if isinstance(block, TextBlock) else block.describe())
    if text := "\n\n".join(texts):
        sent.append({"role": "user", "content": [{"type": "text", "text": text}, *shown] if shown else text})
    elif shown:
        sent.append({"role": "user", "content": shown})
    return sent


def _render_file(file: FileBlock, data: bytes) -> JsonObject:
    url = f"data:{file.media_type};base64,{base64.b64encode(data).decode()}"
    if file.type == "image":
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"filename": file.name, "file_data": url}}


def _render_reply(message: ModelMessage, *, thinks: bool) -> list[JsonObject]:
    """`thinks`: the reply is of the present turn. Only there do vendors take reasoning back, and some demand it."""
    texts = [block.text for block in message.content if isinstance(block, TextBlock)]
    sent: JsonObject = {"role": "assistant", "content": "\n\n".join(texts) or None}
    kept: JsonObject = {}
    for block in message.content:
        if isinstance(block, ThinkingBlock) and block.proof and thinks:
            with contextlib.suppress(ValueError):  # of a provider with this name that spoke another form
                kept = from_json(block.proof)
            sent |= {name: block.text for name in _REASONING if name == kept.get("field")}
            sent |= {"reasoning_details": kept["details"]} if kept.get("details") else {}
    signed = kept.get("calls") or {}
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": to_json(call.arguments).decode()},
            **({"extra_content": signed[call.id]} if call.id in signed else {}),
        }
        for call in message.content
        if isinstance(call, ToolCallBlock)
    ]
    if calls:
        sent["tool_calls"] = calls
    return [sent] if texts or calls else []


def _mark_cache(messages: list[JsonObject]) -> None:
    """Name the cache points: the system prompt, and the newest message of the user. Other vendors find the longest
    known beginning themselves."""
    newest = [message for message in messages if message["role"] == "user"][-1:]
    for message in [messages[0], *newest]:
        if isinstance(message["content"], str):
            message["content"] = [{"type": "text", "text": message["content"]}]
        message["content"][0]["cache_control"] = {"type": "ephemeral"}


# the reply


class ReplyReader:
    """Puts a reply together from the pieces of its stream."""

    def __init__(self, turn: ModelResponse, on_text: Said, on_thinking: Said) -> None:
        self._turn = turn
        self._on_text = on_text
        self._on_thinking = on_thinking
        self._calls: list[JsonObject] = []
        self._places: dict[int, JsonObject] = {}  # the newest call of each index
        self._field: str | None = None
        self._details: list[JsonObject] = []
        self._refusal = False
        self.stopped: str | None = None

    @property
    def stop_reason(self) -> StopReason:
        return StopReason.DECLINED if self._refusal else STOP_REASONS.get(self.stopped or "", StopReason.ANSWERED)

    def read(self, chunk: JsonObject) -> None:
        turn = self._turn
        if not turn.usage.llm_calls:
            turn.usage = Usage(llm_calls=1)
        if used := chunk.get("usage"):
            turn.usage = read_usage(used)
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or {}
            if text := delta.get("content") or delta.get("refusal"):
                self._refusal = self._refusal or not delta.get("content")
                turn.text += text
                self._on_text(text)
            for name in _REASONING:
                if thought := delta.get(name):
                    self._field = name
                    turn.thinking += thought
                    self._on_thinking(thought)
                    break
            for detail in delta.get("reasoning_details") or ():
                self._keep_detail(detail)
            for call in delta.get("tool_calls") or ():
                self._grow(call)
            if reason := choice.get("finish_reason"):
                self.stopped = str(reason)

    def _grow(self, piece: JsonObject) -> None:
        """Add a piece to its call. An id and a name begin one: some endpoints send no index, or always the same."""
        index, function = piece.get("index") or 0, piece.get("function") or {}
        call = self._places.get(index)
        if call is None or (piece.get("id") and function.get("name") and piece["id"] != call["theirs"]):
            call = self._places[index] = {"theirs": piece.get("id"), "name": "", "arguments": "", "extra": None}
            self._calls.append(call)
        call["name"] = function.get("name") or call["name"]
        call["arguments"] += function.get("arguments") or ""
        call["extra"] = piece.get("extra_content") or call["extra"]

    def _keep_detail(self, detail: JsonObject) -> None:
        last = self._details[-1] if self._details else {}
        if (last.get("type"), last.get("index")) != (detail.get("type"), detail.get("index")):
            self._details.append({**detail})
            return
        for name, value in detail.items():
            grows = name in ("text", "summary", "data") and isinstance(value, str)
            last[name] = (last.get(name) or "") + value if grows else value if value is not None else last.get(name)

    def content(self) -> list[ReplyBlock]:
        found: list[ReplyBlock] = []
        calls = [read_call(call["name"], call["arguments"]) for call in self._calls]
        signed = {one.id: call["extra"] for one, call in zip(calls, self._calls, strict=True) if call["extra"]}
        kept = {"field": self._field, "details": self._details, "calls": signed}
        if any(kept.values()):
            proof = to_json({name: value for name, value in kept.items() if value}).decode()
            found.append(ThinkingBlock(text=check_whole(self._turn.thinking), proof=proof))
        if (text := clean(self._turn.text)).strip():
            found.append(TextBlock(text=text))
        return [*found, *calls]


def read_usage(used: JsonObject) -> Usage:
    """Cached tokens are part of the prompt's. Where reasoning is not part of the reply's tokens, the total has them."""
    details = used.get("prompt_tokens_details") or {}
    prompt, reply = used.get("prompt_tokens") or 0, used.get("completion_tokens") or 0
    read = details.get("cached_tokens") or used.get("prompt_cache_hit_tokens") or 0
    written = details.get("cache_write_tokens") or 0
    return Usage(
        llm_calls=1,
        input_tokens=max(0, prompt - read - written),
        output_tokens=max(reply, (used.get("total_tokens") or 0) - prompt),
        cache_read_tokens=read,
        cache_write_tokens=written,
    )


def read_search(answer: Any) -> SearchReply:
    """What the reply cites, each with the text before its mark; then the other sources, of which only the address is
    known."""
    cited: dict[str, JsonObject] = {}
    others: list[JsonObject] = []
    try:
        for item in answer["output"]:
            others += (item.get("action") or {}).get("sources") or ()
            for part in item.get("content") or ():
                for one in part.get("annotations") or ():
                    if one["type"] == "url_citation":
                        said = part["text"][: one["start_index"]].rpartition("\n")[2][-QUOTED:]
                        cited.setdefault(one["url"], {"url": one["url"], "title": one.get("title"), "content": said})
        used = answer["usage"]
        rest = {one["url"]: one for one in others if "url" in one}
        counts = {
            "prompt_tokens": used["input_tokens"],
            "completion_tokens": used["output_tokens"],
            "prompt_tokens_details": used.get("input_tokens_details"),
        }
        return SearchReply(list((rest | cited).values()), read_usage(counts))
    except (AttributeError, KeyError, TypeError) as error:
        raise MalformedReply("the reply to a search is malformed") from error


# errors


_TOO_LONG = re.compile(
    r"context_length_exceeded|maximum context length|context (length|window|size)|prompt is too long|input token count"
)
_NO_TOOLS = re.compile(
    r"(does not|doesn't|don't|not) support (tool|function)|support tool use|tools? (is|are) not supported"
)
_PARAMETER = re.compile(
    r"(?:un(?:supported|known|recognized)|unexpected|extra)\b.{0,40}?(?:parameter|argument|field|name|input)s?\b", re.I
)
_QUOTA = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active")
_FILTERED = ("content_filter", "content_policy_violation", "ResponsibleAIPolicyViolation")


def read_error(error: BaseException) -> Reported | None:
    """By status and code; where endpoints have none, by their text."""
    if isinstance(error, StreamFailed):
        status = error.body.get("code") if isinstance(error.body.get("code"), int) else None
        said = error.said or "The model API reported an error."
        kind = _kind(status, str(error.body.get("code") or ""), error.kind, said)
        return Reported(kind, said, error.response, too_long=_is_too_long(error.body.get("code"), said))
    if not isinstance(error, openai.APIStatusError):
        return None
    status, body = error.status_code, error.body if isinstance(error.body, dict) else {}
    said = str(body.get("message") or body.get("detail") or "") or f"The model API answered {status}."
    kind = _kind(status, str(error.code or ""), str(error.type or UNKNOWN), said)
    if status in (404, 405) and not body.get("message"):
        kind = "wrong_form"
    too_long = status in (400, 413, 422) and _is_too_long(error.code, said)
    return Reported(kind, said, error.response, status, retryable=status >= 500, too_long=too_long)


def _is_too_long(code: object, said: str) -> bool:
    return code == "context_length_exceeded" or _TOO_LONG.search(said) is not None


def _kind(status: int | None, code: str, type: str, said: str) -> str:
    if code in _QUOTA or type in _QUOTA:
        return "billing_error"  # with status 429, but no waiting helps
    if code in _FILTERED:
        return "content_refused"
    if status in (400, 404, 422) and _NO_TOOLS.search(said):
        return "tools_unsupported"
    if status in (400, 422) and (code in ("unsupported_parameter", "unknown_parameter") or _PARAMETER.search(said)):
        return "unknown_parameter"
    if status is not None:
        return BY_STATUS.get(status, "api_error" if status >= 500 else UNKNOWN)
    if code in ("rate_limit_exceeded", "rate_limit_error") or type == "rate_limit_exceeded":
        return "rate_limit_error"
    return {"server_error": "api_error", "internal_server_error": "api_error"}.get(type, type)


def _unknown_parameter(error: openai.BadRequestError) -> set[str]:
    """The parameters that the endpoint says it does not know."""
    body = error.body if isinstance(error.body, dict) else {}
    said = str(body.get("message") or body.get("detail") or "")
    named = {str(error.param)} if error.param else set()
    return named | {name for name in _OTHER_NAMES if f"'{name}'" in said or f'"{name}"' in said or f"`{name}`" in said}

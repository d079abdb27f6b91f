"""The models: one port, behind which each vendor's form is a file, and the way from a model's name to its provider.

Read it in this order: `Vendor` (what such a file does), `Models` (what everything else uses), what a failure means,
what the vendors' files share.
"""

import asyncio
import contextlib
import json
import logging
import math
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import httpx2
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode
from pydantic_core import from_json

from domain import wire
from domain.agents.models import PriceTable, Provider, ProviderReport, Providers, UnknownProvider
from domain.amounts import format_count
from domain.ids import new_id
from domain.json_object import JsonObject
from domain.limits import CallEstimate
from domain.messages import ModelRequest, ModelResponse, ToolCallBlock, files_in
from domain.redaction import shorten_and_redact
from domain.sessions.session import Usage

MOST_EVENT = 32_000_000  # bytes; a single event is a piece of a reply
MOST_STREAM = 200_000_000  # bytes of a whole reply: an event for each of its tokens
MOST_BODY = 8_000_000  # bytes of an answer that is no stream
MOST_ERROR_BODY = 32_000  # bytes of a failed response; of its text 500 characters are used
CHARACTERS = 3  # of a request, per token; low on purpose, so that an estimate is too high rather than too low
MOST_SAID = 500  # characters of the endpoint's own message, which may quote the request
MOST_KIND = 64  # characters of its type of error, which is stored in histories
MOST_LISTED = 500  # models of one provider
MOST_MALFORMED = 5  # attempts at a reply that cannot be read: each is paid for
MOST_CALLS = 256  # of one reply; they are in histories
MOST_TOKENS = 100_000_000  # of one reply; more is no count
UNKNOWN = "unknown_error"
_OF_FILES = re.compile(r"\b(images?|image_url|multi-?modal|vision|mmproj|pdfs?)\b", re.I)
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
# Less than the activity has: only a failure that is classified here is shown, and leads to another model.
LONGEST_CALL, LONGEST_SILENCE = 570.0, 300.0  # seconds; some models think for minutes before their first word
LONGEST_WAIT = 300.0  # seconds; with a longer retry-after we try earlier instead of sleeping for days
FRESH_SECONDS = 60.0
EVENT_STREAM = "text/event-stream"
SEARCH = "Search the web once, and say in a few sentences what you found, with citations: {}"
AGAIN_SECONDS = 60.0
log = logging.getLogger("errand.worker")
Said = Callable[[str], None]


class SearchReply(NamedTuple):
    results: list[JsonObject]  # each with a url, and with a title and content if they are known
    usage: Usage


class Vendor(Protocol):
    """One provider, spoken to in its vendor's form. A request has the model's name at that provider."""

    form: str  # the name of the form, for people
    path: str  # where a request is posted
    lost: type[Exception]  # the SDK's error for a connection that failed
    exact: bool  # its list has every model
    pdfs: bool  # its form has PDFs, not only pictures

    async def ask(self, request: ModelRequest, turn: ModelResponse, on_text: Said, on_thinking: Said) -> None:
        """Fill `turn` while the stream arrives, so that an interrupted call still has the part that arrived."""

    def render(self, request: ModelRequest) -> JsonObject:
        """The request in the vendor's form."""

    def read_error(self, error: BaseException) -> "Reported | None":
        """The endpoint's own error; None if there is none, as when the connection was lost."""

    async def look_up(self, model: str) -> None:
        """Raise what a call would fail with, if that can be known without one: a refused key, a missing model."""

    async def list_models(self) -> list[str] | None:
        """The models of the provider; None if it does not say."""

    async def search(self, model: str, query: str) -> "SearchReply":
        """Let the vendor search the web, with its own tool."""

    async def close(self) -> None: ...


class Models:
    """Every model that can be called, by its full name."""

    def __init__(self, providers: Providers, prices: PriceTable) -> None:
        self.providers = providers
        self._prices = prices
        self._vendors: dict[str, Vendor] = {}
        self._good: dict[str, float] = {}

    def vendor(self, model: str) -> tuple[Vendor, str]:
        """The vendor of a model, and the model's name there. Raises UnknownProvider, or ProviderBroken."""
        name, own = self.providers.split(model)
        if (vendor := self._vendors.get(name)) is None:
            vendor = self._vendors[name] = _connect(name, self.providers.named[name])
        return vendor, own

    async def ask(self, request: ModelRequest, turn: ModelResponse, on_text: Said, on_thinking: Said) -> None:
        vendor, own = self.vendor(request.model)
        asked = replace(request, model=own)
        with _span(self.providers.split(request.model)[0], own, turn):
            try:
                async with asyncio.timeout(LONGEST_CALL):
                    try:
                        await vendor.ask(asked, turn, on_text, on_thinking)
                    except Exception as error:
                        if not (asked.files and _refuses_files(vendor.read_error(error))):
                            raise
                        asked = replace(asked, files={})  # it reads what they are, as models that see none do
                        await vendor.ask(asked, turn, on_text, on_thinking)
                if len(turn.calls) > MOST_CALLS:
                    raise MalformedReply(f"it makes {format_count(len(turn.calls), 'call')}")
                if turn.stop_reason is None:
                    raise IncompleteStream("The model's reply broke off before its end.")
            finally:
                self._price(vendor, asked, turn, request.model)

    def _price(self, vendor: Vendor, asked: ModelRequest, turn: ModelResponse, model: str) -> None:
        """Complete the usage. What an endpoint did not count is estimated, so that no call is free by mistake."""
        used = turn.usage
        if used.llm_calls and not (used.tokens and all(0 <= count < MOST_TOKENS for count in _counts(used))):
            written = len(turn.text) + len(turn.thinking) + sum(len(json.dumps(call.arguments)) for call in turn.calls)
            counts = {"input_tokens": _size(vendor, asked), "output_tokens": written // CHARACTERS + 1}
            used, turn.estimated = Usage(llm_calls=used.llm_calls, **counts), True
        if used.llm_calls:
            turn.usage = self._with_cost(model, used)

    def _with_cost(self, model: str, used: Usage, searches: int = 0) -> Usage:
        return used.model_copy(update={"cost_usd": self._prices.cost(model, *_counts(used), searches)})

    async def search(self, model: str, query: str) -> SearchReply:
        vendor, own = self.vendor(model)
        found = await vendor.search(own, SEARCH.format(query))
        return found._replace(usage=self._with_cost(model, found.usage, searches=1))

    def estimate(self, request: ModelRequest) -> CallEstimate:
        """The most that a call can cost. Written to the cache, input mostly costs more; for some models, less."""
        vendor, own = self.vendor(request.model)
        entered = _size(vendor, replace(request, model=own))
        ways = self._prices.cost(request.model, entered, 0), self._prices.cost(request.model, 0, 0, cache_write=entered)
        known = [cost for cost in ways if cost is not None]
        return CallEstimate(
            input_tokens=entered,
            output_tokens=request.output_tokens,
            input_usd=max(known, default=None),
            output_usd=self._prices.cost(request.model, 0, request.output_tokens),
        )

    def nearly_full(self, model: str, usage: Usage) -> bool:
        window = self._prices.context_window(model)
        return window is not None and usage.tokens > 0.8 * window

    def price_list(self, model: str) -> str | None:
        """The version of the list with the model's price; None if it has none."""
        return self._prices.version if self._prices.price(model) else None

    def same_provider(self, model: str, other: str) -> bool:
        with contextlib.suppress(UnknownProvider):
            return self.providers.split(model)[0] == self.providers.split(other)[0]
        return False

    # whether a model can be called at all: asked when a worker starts, and before a subagent gets an id

    async def problem(self, model: str) -> str | None:
        """Why calls to this model are certain to fail; None if they are not, or if that cannot be known now."""
        if time.monotonic() - self._good.get(model, -FRESH_SECONDS) < FRESH_SECONDS:
            return None
        try:
            vendor, own = self.vendor(model)
            await vendor.look_up(own)
        except Exception as error:
            failure = self.classify(error, model)
            if failure.type == "not_found_error":
                return f"The model {model!r} does not exist or is not available to this key."
            if failure.type in (BAD_KEY, "permission_error"):
                return "The model API does not accept the credentials."
            # what is unreachable or overloaded is handled by the session's own retries
            return failure.message if failure.type == NOT_CONFIGURED else None
        self._good[model] = time.monotonic()
        return None

    async def report(self, name: str, default: str) -> ProviderReport:
        """How a provider is reached, and why a call would fail now: of the default model, if that is its own."""
        provider, listed, problem = self.providers.named[name], None, None
        is_default = name == self.providers.default
        model = default if is_default else f"{name}/*"
        try:
            vendor, own = self.vendor(model)
            if is_default:
                await vendor.look_up(own)
            if vendor.exact or not is_default:
                listed = await vendor.list_models()
            listed = listed if vendor.exact and listed and len(listed) <= MOST_LISTED else None
        except Exception as error:
            problem = self.classify(error, model).message
        address = endpoint(provider.address) if provider.address else provider.kind
        return ProviderReport(
            provider=name,
            kind=provider.kind,
            endpoint=address,
            default=is_default,
            problem=problem,
            models=listed,
        )

    async def failure(self, error: BaseException, model: str) -> "ModelFailure":
        """Classify a failed call. A refused key can be replaced, so the call waits for that."""
        failure = self.classify(error, model)
        if failure.type != BAD_KEY or failure.retryable or not await self._refuses_key(model):
            return failure
        return replace(failure, message=f"{failure.message} The task waits for it.", retryable=True, of_provider=True)

    async def _refuses_key(self, model: str) -> bool:
        vendor, own = self.vendor(model)
        try:
            await vendor.look_up(own)
        except Exception as error:
            return self.classify(error, model).type == BAD_KEY
        return False

    def classify(self, error: BaseException, model: str) -> "ModelFailure":
        """What the failure of a call to this model means."""
        if isinstance(error, UnknownProvider | ProviderBroken):
            return ModelFailure(NOT_CONFIGURED, str(error), retryable=False)
        vendor, own = self.vendor(model)
        name = self.providers.split(model)[0]
        if isinstance(error, WrongForm):
            reported: Reported | None = Reported("wrong_form", str(error), error.response, error.response.status_code)
        else:
            reported = vendor.read_error(error)
        if reported and reported.kind == "wrong_form":
            said = (
                f"{reported.said} It was asked at {vendor.path} in {vendor.form}'s form, and seems to speak another one"
            )
            reported = replace(reported, said=said)
        if reported:
            return _classify_reported(reported, own, self._advice(reported.kind, name))
        if isinstance(error, MissingModel):
            known = f"; there are {', '.join(error.known[:20])}" if error.known else ""
            said = (
                f"The provider {name} has no model {own!r}{known}. A task, its agent or ERRAND_DEFAULT_MODEL names one."
            )
            return ModelFailure("not_found_error", said)
        if isinstance(error, IncompleteStream):
            return ModelFailure("incomplete_stream", str(error), retryable=True)
        if isinstance(error, MalformedReply):
            return ModelFailure(MALFORMED, f"The model's reply could not be read: {error}.", retryable=True)
        if isinstance(error, httpx2.DecodingError | ValueError):
            return ModelFailure(MALFORMED, "The model's reply could not be read.", retryable=True)
        if isinstance(error, TimeoutError):
            said = f"The model's reply took longer than {LONGEST_CALL / 60:g} minutes (model {own} of {name})."
            return ModelFailure("timeout_error", said, retryable=True)
        if isinstance(error, httpx2.TransportError | vendor.lost):
            return self._classify_connection(error, own, name)
        raise error

    def _classify_connection(self, error: Any, model: str, name: str) -> "ModelFailure":
        kind, said = "connection_error", "The connection to the model was lost."
        match error if isinstance(error, httpx2.TransportError) else error.__cause__:
            case httpx2.ConnectError() | httpx2.ConnectTimeout():  # the latter also if it hung up on the request
                said = "The model cannot be reached, or it closed the connection without an answer."
            case httpx2.TimeoutException():
                kind, said = "timeout_error", "The model did not answer in time."
        text = _message(said, "", model, str(error.request.url), self._advice(kind, name))
        return ModelFailure(kind, text, retryable=True)

    def _advice(self, kind: str, name: str) -> str:
        """Advice for people, which names the settings of this provider."""
        kind_of = self.providers.named[name].kind
        key, address = _SETTINGS.get(name if name == kind_of else "", (f"key of [providers.{name}]", "base_url"))
        return _ADVICE.get(kind, "").format(key=key, address=address, name=name)

    async def close(self) -> None:
        for vendor in self._vendors.values():
            await vendor.close()


_EXTRAS = {"bedrock": ("boto3", "botocore"), "vertex": ("google", "google.auth")}


def _connect(name: str, provider: Provider) -> Vendor:
    """A vendor's SDK is imported when its first provider is used."""
    try:
        for package in _EXTRAS.get(provider.kind, ()):  # the SDK would miss them only in the first request
            if find_spec(package) is None:
                raise ModuleNotFoundError(f"{package} is not installed")
        if provider.kind in ("openai", "azure", "ollama"):
            from activities.model.openai import OpenAI

            return OpenAI(name, provider)
        from activities.model.anthropic import Anthropic

        return Anthropic(name, provider)
    except ModuleNotFoundError as error:
        raise ProviderBroken(f"The provider {name} needs `pip install 'errand[{provider.kind}]'` ({error}).") from None
    except Exception as error:  # the SDKs' own checks of regions and credentials
        raise ProviderBroken(
            f"The provider {name} is not configured: {shorten_and_redact(str(error), MOST_SAID)}"
        ) from None


def _refuses_files(reported: "Reported | None") -> bool:
    """Whether the model sees no pictures or documents, or not these. Nobody says so before: a name does not show it,
    and vendors have limits of their own."""
    return reported is not None and (reported.status or 0) >= 400 and _OF_FILES.search(reported.said) is not None


def _counts(used: Usage) -> tuple[int, int, int, int]:
    return used.input_tokens, used.output_tokens, used.cache_read_tokens, used.cache_write_tokens


def _size(vendor: Vendor, request: ModelRequest) -> int:
    """The tokens of a request, at most. Files count by what they show, not by their bytes."""
    sent = vendor.render(replace(request, files={}))
    shown = files_in([block for message in request.messages for block in message.content]) if request.files else []
    files = sum(file.tokens for file in shown if file.file_id in request.files)
    return len(json.dumps([sent["messages"], sent.get("tools"), sent.get("system")])) // CHARACTERS + files


@contextlib.contextmanager
def _span(provider: str, model: str, turn: ModelResponse) -> Iterator[None]:
    """A span of a request, as the SDKs' own methods make it. Texts of errors stay out: they can quote the request."""
    asked = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": provider, "gen_ai.request.model": model}
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


# failures: retry later, compact, try another model, or give up with a readable sentence


@dataclass(frozen=True)
class ModelFailure:
    type: str
    message: str
    retryable: bool = False
    wait: float | None = None  # the server's own retry-after
    of_provider: bool = False  # other models of this provider would fail in the same way


@dataclass(frozen=True)
class Reported:
    """An error that the endpoint reported. Its kind is one of those below, however the vendor calls it, or else the
    vendor's own."""

    kind: str
    said: str
    response: httpx2.Response
    status: int | None = None  # None: inside a stream, whose response had begun with status 200
    retryable: bool = False  # if the kind does not decide it
    too_long: bool = False  # the context


class IncompleteStream(Exception):
    """The stream ended without a stop reason, so the reply is incomplete."""


class MalformedReply(ValueError):
    """A reply that cannot be used; the text says why, and quotes nothing of it."""


class ProviderBroken(Exception):
    """A provider whose client cannot be made."""


class MissingModel(Exception):
    """The provider does not have the model."""

    def __init__(self, known: list[str]) -> None:
        super().__init__("no such model")
        self.known = known


class WrongForm(Exception):
    """The endpoint answered, but not in the vendor's form."""

    def __init__(self, said: str, response: httpx2.Response) -> None:
        super().__init__(said)
        self.response = response


class StreamFailed(Exception):
    """An error of the API inside a stream, whose response had begun with status 200. `data` should be an object with
    its type and message, but gateways send other things too."""

    def __init__(self, data: bytes, response: httpx2.Response) -> None:
        self.body: JsonObject = {}
        try:
            error = from_json(data)["error"]
            self.kind, self.said = str(error.get("type") or UNKNOWN)[:MOST_KIND], str(error.get("message") or "")
            self.body = error
        except (AttributeError, KeyError, TypeError, ValueError):
            self.kind, self.said = UNKNOWN, data.decode(errors="replace")
        super().__init__(self.said)
        self.response = response


_RETRYABLE = {"rate_limit_error", "overloaded_error", "api_error", "timeout_error", "conflict_error"}
BY_STATUS = {400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error",
             404: "not_found_error", 408: "timeout_error", 409: "conflict_error", 413: "request_too_large",
             422: "invalid_request_error", 429: "rate_limit_error", 503: "overloaded_error",
             529: "overloaded_error"}  # fmt: skip
BAD_KEY, NOT_CONFIGURED, MALFORMED = "authentication_error", "not_configured", "malformed_reply"
# this model will not answer, however often it is asked; another one may
UNAVAILABLE = {
    *("not_found_error", "permission_error", "billing_error"),
    *("wrong_form", NOT_CONFIGURED, "tools_unsupported"),
}
_SETTINGS = {
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
    "openai": ("OPENAI_API_KEY", "OPENAI_BASE_URL"),
    "azure": ("AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT"),
    "ollama": ("key of [providers.ollama]", "OLLAMA_HOST"),
}
_ADVICE = {
    "authentication_error": "Set a valid {key} and start again.",
    "billing_error": "The account of this key needs credit.",
    "permission_error": "Use a key that may use this model, or another model.",
    "not_found_error": "Check the model's name and {address}.",
    "connection_error": "Check {address} and the network.",
    "tools_unsupported": "Agents need a model that can call tools.",
    "unknown_parameter": "Remove it from the task's or the agent's settings, or use another model.",
    "wrong_form": "Check the kind and the base_url of the provider {name}.",
}


def _message(said: str, status: str, model: str, url: str, advice: str) -> str:
    """The endpoint's message, then status, model and endpoint, then advice."""
    shown = shorten_and_redact(said, MOST_SAID).rstrip(".")
    text = f"{shown} ({status}model {model} at {endpoint(url)})"
    return f"{text}. {advice}" if advice else text


def endpoint(url: str) -> str:
    """Scheme, host and port only: the rest of the URL is not useful here and may contain a password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _classify_reported(reported: Reported, model: str, advice: str) -> ModelFailure:
    where = f"status {reported.status}; " if reported.status else f"{reported.kind}; "
    message = _message(reported.said, where, model, str(reported.response.request.url), advice)
    if reported.too_long or reported.kind == "request_too_large":
        return ModelFailure(wire.CONTEXT_TOO_LONG, message)
    retryable = reported.retryable or reported.kind in _RETRYABLE
    headers = reported.response.headers
    advised = headers.get("x-should-retry")
    if advised in ("true", "false") and reported.kind not in UNAVAILABLE:
        retryable = advised == "true"
    return ModelFailure(reported.kind[:MOST_KIND], message, retryable, _retry_after(headers))


def _retry_after(headers: httpx2.Headers) -> float | None:
    for name, unit in (("retry-after-ms", 1_000), ("retry-after", 1)):
        with contextlib.suppress(ValueError):
            wait = float(headers.get(name, "")) / unit
            return min(max(0.0, wait), LONGEST_WAIT)  # in this order, so that NaN is 0
    return None


def retry_pause(attempt: int, failure: ModelFailure) -> float:
    """Seconds until the next attempt: the server's retry-after, else 1, 2, 4 … up to 60."""
    if failure.wait is not None:
        return failure.wait
    return float(min(2 ** min(attempt - 1, 6), 60))


# what the vendors' files share: a bounded client, and a decoder


def build_client(http: Callable[..., httpx2.AsyncClient]) -> httpx2.AsyncClient:
    """An SDK's client on aiohttp, for addresses of the operator."""
    # not compressed, because a small body could become a large one; no redirects, which would take the key along
    return http(
        event_hooks={"response": [_bound_body]},
        headers={"accept-encoding": "identity"},
        follow_redirects=False,
        timeout=httpx2.Timeout(LONGEST_SILENCE, connect=5.0),
    )


async def _bound_body(response: httpx2.Response) -> None:
    """The SDKs read a body that is no stream whole, so an endless one would fill the memory. One that is compressed all
    the same is not unpacked."""
    streams = response.request.method == "POST" and response.headers.get("content-type", "").startswith(EVENT_STREAM)
    if not (response.is_success and streams) and isinstance(response.stream, httpx2.AsyncByteStream):
        response.headers.pop("content-encoding", None)
        response.stream = _FirstBytes(response.stream, MOST_BODY if response.is_success else MOST_ERROR_BODY)


class _FirstBytes(httpx2.AsyncByteStream):
    def __init__(self, whole: httpx2.AsyncByteStream, most: int) -> None:
        self._whole = whole
        self._most = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._most
        async for chunk in self._whole:
            yield chunk[:left]
            left -= len(chunk)
            if left <= 0:
                return

    async def aclose(self) -> None:
        await self._whole.aclose()


async def read_events(response: httpx2.Response) -> AsyncIterator[tuple[bytes, bytes]]:
    """The server-sent events of a streamed reply: name and data of each. The SDKs' own decoders take a third of the CPU
    of a piece: they read each line several times and keep it for later."""
    if response.headers.get("content-type", "").startswith(("text/html", "text/plain", "application/json")):
        await response.aclose()
        raise WrongForm("The endpoint did not answer with a stream.", response)
    name = b""
    data: list[bytes] = []
    rest: list[bytes] = []  # of a line without its end, whose parts are joined once
    total = held = 0
    async for chunk in response.aiter_bytes():
        total, held = total + len(chunk), held + len(chunk)
        if held > MOST_EVENT or total > MOST_STREAM:
            raise MalformedReply(f"{'an event of the stream' if held > MOST_EVENT else 'the stream'} is too long")
        rest.append(chunk)
        if b"\n" not in chunk:
            continue
        *lines, last = b"".join(rest).split(b"\n")
        rest = [last]
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                data.append(line[5:])
            elif line.startswith(b"event:"):
                name = line[6:].strip()
            elif not line:  # the end of the event
                if text := b"\n".join(data).strip():
                    yield name, text
                elif name == b"error":
                    yield name, b""
                name, data, held = b"", [], len(last)


def read_object(data: bytes) -> JsonObject:
    found = from_json(data, allow_inf_nan=False)
    if not isinstance(found, dict):
        raise MalformedReply("an event of the stream is not an object")
    return found


def read_call(name: str, arguments: str | JsonObject) -> ToolCallBlock:
    """A tool call. Some endpoints send no id, or the same one in every reply, and names that the model made up; others
    refuse both when they are sent back. So its id is ours, in the narrowest form that one of them demands."""
    name = _NOT_IN_NAMES.sub("_", name)[:64]
    if not name:
        raise MalformedReply("a tool call has no name")
    try:
        given = arguments if isinstance(arguments, dict) or arguments.strip() else {}
        given = from_json(given, allow_inf_nan=False) if isinstance(given, str) else given
    except ValueError:
        raise MalformedReply(f"the arguments of its call of {name} are not JSON") from None
    if not isinstance(given, dict):
        raise MalformedReply(f"the arguments of its call of {name} are not an object")
    return ToolCallBlock(id=new_id()[-9:], name=name, arguments=given)


def check_whole(text: str) -> str:
    text.encode()  # raises UnicodeEncodeError, a ValueError, for a lone surrogate
    return text


class ModelTrial:
    """Tries the default model and the other providers once, and again every minute while one fails or lists models."""

    def __init__(self, models: Models, model: str) -> None:
        self._models = models
        self._model = model
        self._next = 0.0
        self.problems: list[str] = []  # of the default model
        self.reports: list[ProviderReport] = []

    async def run(self) -> bool:
        """Try them; True if the result is new."""
        if time.monotonic() < self._next:
            return False
        tried = (self._models.report(name, self._model) for name in self._models.providers.named)
        reports = list(await asyncio.gather(*tried))
        self._next = time.monotonic() + AGAIN_SECONDS if any(one.problem or one.models for one in reports) else math.inf
        changed, self.reports = reports != self.reports, reports
        problem = next((one.problem for one in reports if one.default), None)
        found = [f"model: {problem}"] if problem else []
        if changed:
            log.info("the model %s can be called", self._model) if problem is None else log.error("%s", found[0])
        self.problems = found
        return changed

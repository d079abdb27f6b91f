"""The command line's client of the API: the Python client at the address of the settings, with errors for people.

Commands send requests with `get`, `post` and `ask`, which return the response as the server sent it, for `--json`, and
read it with `parse` and the models of the client. `follow` and `wait_for_result` outlast a restart of the server.
"""

import contextlib
import json
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn, Self, TypeVar
from urllib.parse import quote

import click
import httpx2
from errand import Errand, ErrandError, Event, Problem, Unexpected, errors
from errand import requests as operations
from errand.models import Conversation, Trace
from errand.requests import Flow, Param, Request
from errand.requests import parse as parse_response
from errand.transport import EventReader, Options, Server, answer_of, find_server, running_stack

from cli.errors import CliError, Refused, Unreachable, refusal
from cli.render.output import PROGRAM, duration, json_wanted, note
from domain.json_object import JsonObject
from settings import Settings

EventData = JsonObject  # an event as the server sent it, since events of other server versions are shown too
Model = TypeVar("Model")
T = TypeVar("T")

RESTART_SECONDS = 20.0  # a process of the stack that died is back sooner
RESTART_PAUSE = 0.5
BUSY = 503
AS_PAGE = {"Accept": "application/json"}  # without it the routes of events respond with a stream
WAIT_SECONDS = 30  # per request for a result
ENDS = frozenset({"task_completed", "task_failed", "task_cancelled"})


class Answer(dict[str, Any]):
    """An object in a response. Another program may listen there, or an API of another version: what is missing is no
    fault of the command that reads it."""

    def __missing__(self, name: str) -> NoReturn:
        raise Refused(f"the server answers, but not as this version of Errand does ({name!r} is missing)")


class Api(Errand):
    def __init__(
        self, settings: Settings, *, url: str | None = None, key: str | None = None, patience: float = RESTART_SECONDS
    ) -> None:
        """`patience`: how long a request waits while our own stack restarts its API."""
        super().__init__(patience=patience)
        self._settings = settings
        self._url = _check_address(url or settings.url)
        self._key = key or settings.api_key
        # otherwise the HTTP library raises an error that contains the key
        if self._key and not (self._key.isascii() and self._key.isprintable()):
            raise click.UsageError("the API key contains characters that no key has")
        self._notify: Callable[[str], None] | None = None  # of somebody who follows a stream
        self._noted = False  # that the server does not answer

    @classmethod
    def like(cls, other: "Api") -> "Api":
        """A client of the same server with the same key and its own connection, for another thread."""
        return cls(other._settings, url=other._url, key=other._key)

    @property
    def url(self) -> str | None:
        """The address that was given; None: the address of this data directory's stack."""
        return self._url

    @property
    def address(self) -> str:
        """Identifies the server: by its address, or by the data directory of the stack, whose port may change."""
        return self._url or str(self._data_dir())

    def _data_dir(self) -> Path:
        from deploy.data_dir import locate_data_dir  # slow to import

        return locate_data_dir(self._settings)

    # the server

    def find_server(self) -> Server:
        return find_server(self._url, self._key, [self._data_dir()])

    def find_url(self) -> str:
        """The address of the server, for people."""
        with self._errors():
            return self.find_server().url

    def own_stack_runs(self) -> bool:
        return self._url is None and running_stack([self._data_dir()]) is not None

    def look_again(self) -> None:
        self._connection.look_again()

    def before_retry(self, cause: Exception | None) -> None:
        """A reader of a stream waits for any server. Other requests wait only for our own stack, which restarts its
        API: another server may be gone."""
        if self._notify is None:
            if isinstance(cause, Problem) and (cause.status != BUSY or not self.own_stack_runs()):
                raise cause
            if cause is not None and not self.own_stack_runs():
                raise errors.Unreachable(str(cause) or type(cause).__name__)
        if not self._noted:  # said once for an outage, not at every attempt
            (self._notify or _note_for_people)("connection lost, reconnecting; the task continues")
        self._noted = True

    # requests

    def get(self, path: str, **params: Param) -> Any:
        return self.ask("GET", path, params=params)

    def post(self, path: str, body: JsonObject, key: str | None = None) -> Any:
        """Send a POST that may be repeated: because of its idempotency key the server acts on it once."""
        return self.ask("POST", path, json=body, headers={"Idempotency-Key": key or secrets.token_hex(16)})

    def ask(self, method: str, path: str, **options: Any) -> Any:
        return _answer(self.request(method, path, **options).body)

    def request(self, method: str, path: str, **options: Any) -> operations.Answer:
        given = {name: value for name, value in options.pop("params", {}).items() if value is not None}
        return self._run(_exchange(Request(method, path, params=given, **options)))

    def items(self, path: str, *, position: str = "cursor", **params: Param) -> Iterator[Any]:
        """The items of all pages of a list; `position`: the parameter that continues it."""
        while True:
            page = self.ask("GET", path, params=params, headers=AS_PAGE)
            yield from page["items"]
            before, params[position] = params.get(position), page[f"next_{position}"]
            if params[position] in (None, before):
                return

    def trace(self, task_id: str, chars: int) -> Trace:
        return parse(Trace, self.get(f"/tasks/{segment(task_id)}/trace", chars=chars))

    def conversation(self, conversation_id: str) -> Conversation:
        return parse(Conversation, self.get(f"/conversations/{segment(conversation_id)}"))

    def last_event(self, conversation_id: str) -> int:
        """The number of a conversation's newest event."""
        path = f"/conversations/{segment(conversation_id)}/events"
        return int(self.ask("GET", path, params={"after": "latest"}, headers=AS_PAGE)["next_after"])

    def messages(self, path: str, body: JsonObject, headers: dict[str, str]) -> Iterator[JsonObject]:
        """Send a JSON-RPC message; returns its answer, or a stream of notifications that ends with it. A protocol error
        is an answer too, whatever the status."""
        with self._errors(), _unreachable():
            sent = self._connection.arguments(Request("POST", path, json=body, headers=headers), Options())
            with self._connection.http().stream(**sent) as response:
                if response.headers.get("content-type", "").startswith("text/event-stream"):
                    for line in response.iter_lines():
                        if line.startswith("data:") and (data := line.removeprefix("data:").strip()):
                            yield json.loads(data)
                    return
                response.read()
                answer = answer_of(response)
                if isinstance(answer.body, dict) and "jsonrpc" in answer.body:
                    yield answer.body
                else:
                    answer.value()

    # streams

    def following(self, patience: float, notify: Callable[[str], None]) -> Self:
        """This client with the patience of somebody who follows a task."""
        other = self.with_options(patience=patience)
        other._notify, other._noted = notify, False
        return other

    def note_answer(self) -> None:
        """The server has sent something: a further outage is a new one."""
        self._noted = False

    # errors for people

    def _run(self, flow: Flow[T]) -> T:
        with self._errors():
            return super()._run(flow)

    def _events(self, reader: EventReader) -> Iterator[Event]:
        with self._errors():
            yield from super()._events(reader)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except Problem as problem:
            raise refusal(problem) from None
        except errors.NoStack:
            raise Unreachable(
                f"no stack is running on {self._data_dir()}. `{PROGRAM} up` starts it; "
                "for an API elsewhere set ERRAND_URL"
            ) from None
        except errors.Unreachable as error:
            where = self._connection.server.url
            raise Unreachable(
                f"cannot reach the API at {where} ({error}). Is it running? `{PROGRAM} up` starts it."
            ) from None
        except Unexpected as error:
            raise Refused(str(error)) from None
        except ErrandError as error:
            raise CliError(str(error)) from None
        except ValueError as error:  # JSON has neither lone surrogates nor NaN
            raise click.UsageError(f"this cannot be sent: {error}") from None


def follow(
    api: Api, id: str, *, after: int = 0, conversation: bool = False, patience: float, notify: Callable[[str], None]
) -> Iterator[EventData]:
    """Yield a task's events up to its terminal event; a finished task without events after `after` yields none. Or the
    events of all sessions of a conversation, which never end, because another message may come at any time."""
    reader = api.following(patience, notify)
    stream = reader.stream_conversation if conversation else reader.stream
    try:
        for event in stream(id, after=after):
            after = event.seq
            reader.note_answer()
            yield event.model_dump(mode="json", exclude_unset=True)
    except Unreachable as error:
        command = f"chat --conversation {id}" if conversation else f"attach {id} --after {after}"
        raise _lost(error, patience, command) from None


def wait_for_result(api: Api, task_id: str, *, patience: float, notify: Callable[[str], None]) -> Any:
    """The result of a task, as soon as it has ended. A notice says if it waits for a person."""
    waiting = api.following(patience, notify)
    seconds, asked = 0, False
    while True:
        try:
            path = f"/tasks/{segment(task_id)}/result"
            return waiting.ask("GET", path, params={"wait": seconds or None}, wait=seconds)
        except Unreachable as error:
            raise _lost(error, patience, f"result {task_id} --wait") from None
        except Refused as refused:
            if refused.kind != "not-terminal":
                raise
            # the first request does not wait, so that a task that waits for a person is noticed at once
            seconds, before = WAIT_SECONDS, asked
            asked = refused.body.get("task_status") == "input_required"
            if asked and not before:
                notify(f"the task is waiting for an answer; `{PROGRAM} inbox` shows the question")
        waiting.note_answer()


def events_so_far(api: Api, task_id: str) -> Iterator[EventData]:
    """The events that a task has now; it does not wait for more."""
    return api.items(f"/tasks/{segment(task_id)}/events", position="after", after=0, limit=1000)


def parse(model: type[Model], answer: Any) -> Model:
    try:
        return parse_response(model, answer)
    except Unexpected as error:
        raise Refused(str(error)) from None


def segment(text: str) -> str:
    """Escape the user's text as one segment of a path."""
    if "/" in text:  # a server takes an escaped one for the path's own
        raise click.UsageError(f"{text!r} is neither a name nor an id: it has a slash")
    return quote(text, safe="")


def _exchange(request: Request) -> Flow[operations.Answer]:
    answer = yield request
    answer.value()
    return answer


def _answer(body: Any) -> Answer:
    found = _objects(body)
    if not isinstance(found, Answer) or not isinstance(found.get("items", []), list):
        raise Refused("the server answers, but not as this version of Errand does (its answer has another form)")
    return found


def _objects(value: Any) -> Any:
    if isinstance(value, dict):
        return Answer({name: _objects(one) for name, one in value.items()})
    return [_objects(one) for one in value] if isinstance(value, list) else value


@contextlib.contextmanager
def _unreachable() -> Iterator[None]:
    try:
        yield
    except httpx2.RequestError as error:
        raise errors.Unreachable(str(error) or type(error).__name__) from None


def _lost(error: Unreachable, patience: float, command: str) -> Unreachable:
    return Unreachable(
        f"no connection for {duration(patience)}: {error.message}\n"
        f"The task continues; `{PROGRAM} {command}` follows it again."
    )


def _note_for_people(text: str) -> None:
    if not json_wanted():
        note(text)


def _check_address(address: str | None) -> str | None:
    if address is None:
        return None
    try:
        url = httpx2.URL(address)
    except httpx2.InvalidURL:
        url = httpx2.URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise click.UsageError(f"{address!r} is not the address of an API; write it like http://127.0.0.1:8700")
    return address

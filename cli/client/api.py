"""The HTTP client: it finds the API, sends the key, and raises the server's refusals as errors for people."""

import contextlib
import json
import secrets
import time
from collections.abc import Iterator
from typing import Any, Self
from urllib.parse import quote

import click
import httpx2
from errand.models import Trace

from cli.client.models import ConversationInfo, TaskInfo
from cli.client.response import decoded, parse
from cli.errors import NotConnected, Refused, Unreachable, refusal
from cli.render.output import PROGRAM, json_wanted, note
from domain.json_object import JsonObject
from domain.policy.addresses import is_loopback
from settings import Settings

# A stream sends something every 15 seconds and other responses take less, so after this silence a connection is dead.
TIMEOUT = httpx2.Timeout(5.0, read=60.0, write=60.0)
# the server allows 18 digits
BEYOND_ANY_EVENT = 10**17
RESTART_SECONDS = 20.0  # a process of the stack that died is back sooner
RESTART_PAUSE = 0.5


class Api:
    def __init__(
        self, settings: Settings, *, url: str | None = None, key: str | None = None, patience: float = RESTART_SECONDS
    ) -> None:
        """`patience`: how long a request waits while our own stack restarts its API."""
        self._settings = settings
        self._patience = patience
        self._url = url or settings.url
        self._key = key or settings.api_key
        # otherwise the HTTP library raises an error that contains the key
        if self._key and not (self._key.isascii() and self._key.isprintable()):
            raise click.UsageError("the API key contains characters that no key has")
        self._http: httpx2.Client | None = None
        self._interrupted = False

    @classmethod
    def like(cls, other: "Api", patience: float | None = None) -> "Api":
        """A client of the same server with the same key and its own connection, for another thread."""
        patience = other._patience if patience is None else patience
        return cls(other._settings, url=other._url, key=other._key, patience=patience)

    @property
    def url(self) -> str | None:
        """The address that was given; None: the address of this data directory's stack."""
        return self._url

    @property
    def address(self) -> str:
        """Identifies the server: by its address, or by the data directory of the stack, whose port may change."""
        from deploy.data_dir import locate_data_dir

        return self._url or str(locate_data_dir(self._settings))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()

    def disconnect(self) -> None:
        """Drop the connection. The next request looks the API up again, because a restarted stack may have another
        port."""
        if self._http:
            self._http.close()
            self._http = None

    @property
    def connected(self) -> bool:
        return self._http is not None

    def interrupt(self) -> None:
        """Break a request that another thread waits for; it makes no further one."""
        # before the connection is looked for: the other thread may be about to open it
        self._interrupted = True
        if (http := self._http) is not None:
            # not `disconnect`: the other thread still uses the object, and must find it closed
            http.close()

    def get(self, path: str, **params: Any) -> Any:
        given = {name: value for name, value in params.items() if value is not None}
        return self.ask("GET", path, params=given)

    def task(self, task_id: str) -> TaskInfo:
        return parse(TaskInfo, self.get(f"/tasks/{segment(task_id)}"))

    def trace(self, task_id: str, chars: int) -> Trace:
        return parse(Trace, self.get(f"/tasks/{segment(task_id)}/trace", chars=chars))

    def conversation(self, conversation_id: str) -> ConversationInfo:
        return parse(ConversationInfo, self.get(f"/conversations/{segment(conversation_id)}"))

    def last_event(self, conversation_id: str) -> int:
        """The number of a conversation's newest event. The server reports it when asked for events after a later
        one."""
        try:
            self.send(
                "GET",
                f"/conversations/{segment(conversation_id)}/events",
                params={"after": str(BEYOND_ANY_EVENT)},
                headers={"Accept": "application/json"},
            )
        except Refused as refused:
            if "last" in refused.body:
                return int(refused.body["last"])
            raise
        return 0

    def post(self, path: str, body: JsonObject, key: str | None = None) -> Any:
        """Send a POST that may be repeated: because of its idempotency key the server acts on it once."""
        # one key for all attempts of `send`, so that a repetition is recognised
        headers = {"Idempotency-Key": key or secrets.token_hex(16)}
        return self.ask("POST", path, json=body, headers=headers)

    def ask(self, method: str, path: str, **options: Any) -> Any:
        return decoded(self.send(method, path, **options))

    def send(self, method: str, path: str, **options: Any) -> httpx2.Response:
        deadline, waiting = time.monotonic() + self._patience, False
        keyed = "Idempotency-Key" in options.get("headers", {})  # so that the server recognises a repetition
        while True:
            try:
                with self._connection_errors():
                    response = self._client().request(method, path, **options)
                    _check(response)
                    return response
            except (Unreachable, Refused) as error:
                busy = isinstance(error, Refused) and error.status == 503
                unsent = isinstance(error, NotConnected) or (busy and method == "GET")  # or nothing was changed
                lost = not unsent and (busy or isinstance(error, Unreachable))  # the server may have acted on it
                known = lost and keyed and not self._interrupted
                # only our own stack is known to restart its API; another server may be gone
                if time.monotonic() > deadline or not (known or (unsent and self.own_stack_runs())):
                    raise
            if not (waiting or known or json_wanted()):
                note("the stack is starting its API again; waiting for it")
            waiting = True
            time.sleep(RESTART_PAUSE)
            self.disconnect()

    @contextlib.contextmanager
    def events(self, path: str, after: int) -> Iterator[httpx2.EventSource]:
        """Open an event stream. A failure while it is read is raised like any other failure to reach the server."""
        headers = {"Last-Event-ID": str(after)} if after else {}
        with self._connection_errors(), self._client().sse(path, headers=headers) as source:
            if not source.response.is_success:
                # a stream has no body yet, and the reason of the refusal is in it
                source.response.read()
            _check(source.response)
            yield source

    def messages(self, path: str, body: JsonObject, headers: dict[str, str]) -> Iterator[JsonObject]:
        """Send a JSON-RPC message; returns its answer, or a stream of notifications that ends with it. A protocol error
        is an answer too, whatever the status."""
        with (
            self._connection_errors(),
            self._client().stream("POST", path, json=body, headers=headers) as response,
        ):
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                for line in response.iter_lines():
                    if line.startswith("data:") and (data := line.removeprefix("data:").strip()):
                        yield json.loads(data)
                return
            raw = response.read()
            answer = json.loads(raw) if raw and "application/json" in response.headers.get("content-type", "") else None
            if isinstance(answer, dict) and "jsonrpc" in answer:
                yield answer
            else:
                _check(response)

    @contextlib.contextmanager
    def _connection_errors(self) -> Iterator[None]:
        try:
            yield
        except httpx2.RequestError as error:
            address = self._http.base_url if self._http else self._url
            reason = str(error) or type(error).__name__
            kind = NotConnected if isinstance(error, httpx2.ConnectError) else Unreachable
            raise kind(
                f"cannot reach the API at {address} ({reason}). Is it running? `{PROGRAM} up` starts it."
            ) from None
        except UnicodeEncodeError:
            raise click.UsageError("the text is not valid Unicode") from None

    def _client(self) -> httpx2.Client:
        if self._http is None:
            base = _checked(self._url or self._stack_url())
            key = self._key or self._local_token(base)
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            self._http = httpx2.Client(
                base_url=base,
                headers=headers,
                timeout=TIMEOUT,
                trust_env=not is_loopback(base.host),  # proxies from the environment are only for other machines
                verify=base.scheme == "https",  # loading the certificates takes long, and plain HTTP needs none
            )
        if self._interrupted:
            raise Unreachable("the request was cancelled")
        return self._http

    def own_stack_runs(self) -> bool:
        from deploy import state
        from deploy.data_dir import locate_data_dir

        with contextlib.suppress(state.StackError):
            return self._url is None and state.running(locate_data_dir(self._settings)) is not None
        return False

    def _local_token(self, base: httpx2.URL) -> str | None:
        """The token of the running stack, but only if we are about to call that stack: no other server may see it."""
        from deploy import state
        from deploy.data_dir import locate_data_dir, token_file

        if not is_loopback(base.host):
            return None
        with contextlib.suppress(state.StackError, OSError):
            home = locate_data_dir(self._settings)
            info = state.running(home)
            if info and httpx2.URL(info.api_url) == base:
                return token_file(home).read_text().strip() or None
        return None

    def _stack_url(self) -> str:
        """The address of this data directory's stack. No other is tried, because it could be somebody else's."""
        from deploy import state  # only needed if no address was given
        from deploy.data_dir import locate_data_dir

        try:
            home = locate_data_dir(self._settings)
            info = state.running(home)
        except state.StackError as error:
            raise Unreachable(str(error)) from None
        if info:
            return info.api_url
        raise Unreachable(
            f"no stack is running on {home}. `{PROGRAM} up` starts it; for an API elsewhere set ERRAND_URL"
        )


def segment(text: str) -> str:
    """Escape the user's text as one segment of a path."""
    return quote(text, safe="")


def _check(response: httpx2.Response) -> None:
    if response.is_success:
        return
    try:
        body = response.json()
    except ValueError:
        body = None
    if not isinstance(body, dict):
        body = {"status": response.status_code, "detail": f"{response.reason_phrase}: {response.text[:300]}"}
    raise refusal(response.status_code, body, response.headers.get("retry-after"))


def _checked(address: str) -> httpx2.URL:
    try:
        url = httpx2.URL(address)
    except httpx2.InvalidURL:
        url = httpx2.URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise click.UsageError(f"{address!r} is not the address of an API; write it like http://127.0.0.1:8700")
    return url

"""The connection of both clients: the server's address, how requests are sent and repeated, and the position in a
stream of events.

Without an address the server is the stack that `errand up` runs on this machine.
"""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

import httpx2

from errand.errors import NoStack, Unexpected, Unreachable, problem_of
from errand.events import Event, event_of
from errand.requests import Answer, Request

# A stream sends something every 15 seconds, so after this silence the connection is dead.
SILENCE = 60.0
TRANSIENT = frozenset({429, 500, 502, 503, 504})  # statuses of a server that is busy or restarting
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 5.0
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
SYSTEM_STATE = Path("/var/lib/errand")  # for stacks that root runs and whose own folder cannot be reached


Http = TypeVar("Http", httpx2.Client, httpx2.AsyncClient)


@dataclass(frozen=True)
class Server:
    url: str
    key: str | None = None


@dataclass(frozen=True)
class Options:
    """How requests are sent."""

    patience: float = 60.0  # seconds for which a request is repeated
    timeout: float | None = None  # seconds of silence after which one attempt has failed
    headers: Mapping[str, str] = field(default_factory=dict)

    def change(self, patience: float | None, timeout: float | None, headers: Mapping[str, str] | None) -> "Options":
        return Options(
            self.patience if patience is None else patience,
            self.timeout if timeout is None else timeout,
            {**self.headers, **(headers or {})},
        )


class Connection(Generic[Http]):
    """The server's address and the HTTP clients for it. The address is looked up at first, and again when the server
    does not answer, because a local stack may move."""

    def __init__(self, find: Callable[[], Server], http: Http | None, make: Callable[..., Http]) -> None:
        self._find = find
        self._given: Http | None = http
        self._make: Callable[..., Http] = make
        self._made: dict[tuple[bool, bool], Http] = {}
        self._server: Server | None = None
        self._closed = False

    @property
    def server(self) -> Server:
        if self._server is None:
            self._server = self._find()
        return self._server

    def http(self) -> Http:
        if self._closed:
            raise Unreachable("the client is closed")
        if self._given is not None:
            return self._given
        base = httpx2.URL(self.server.url)
        kind = (base.host in LOOPBACK, base.scheme == "https")
        if kind not in self._made:
            # proxies from the environment are only for other machines; certificates are slow to load
            self._made[kind] = self._make(trust_env=not kind[0], verify=kind[1])
        return self._made[kind]

    def url(self, path: str) -> str:
        return self.server.url.rstrip("/") + path

    def headers(self, options: Options, more: Mapping[str, str]) -> dict[str, str]:
        key = {"Authorization": f"Bearer {self.server.key}"} if self.server.key else {}
        return {**key, **options.headers, **more}

    def arguments(self, request: Request, options: Options) -> dict[str, Any]:
        """The request as the HTTP client takes it."""
        body = {"content": request.content} if request.content is not None else {}
        body |= {"json": request.json} if request.json is not None else {}
        silence = (SILENCE if options.timeout is None else options.timeout) + request.wait
        return {
            "method": request.method,
            "url": self.url(request.path),
            "params": dict(request.params),
            "headers": self.headers(options, request.headers),
            "timeout": httpx2.Timeout(silence, connect=min(5.0, silence)),
            **body,
        }

    def look_again(self) -> None:
        with contextlib.suppress(Unreachable):  # it is starting, or was not restarted yet
            self._server = self._find()

    def end(self) -> list[Http]:
        """No further request is sent; the HTTP clients that we made, for the caller to close."""
        self._closed = True
        return list(self._made.values())


class Retries:
    """The pause before a request is repeated, and the time to give up."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self.forget()

    def forget(self) -> None:
        """Reset after the server has answered."""
        self._lost_at: float | None = None
        self._pause = FIRST_PAUSE

    @overload
    def pause_after(self, outcome: Exception, request: Request | None = None) -> float: ...
    @overload
    def pause_after(self, outcome: Answer, request: Request | None = None) -> float | None: ...
    def pause_after(self, outcome: Exception | Answer, request: Request | None = None) -> float | None:
        """Seconds to wait; None if it is answered, or refused permanently. A request that must not be sent twice is
        repeated only if it was not sent."""
        asked, once = 0.0, request is not None and not request.repeatable
        if isinstance(outcome, Answer):
            problem = outcome.problem
            if problem is None or problem.status not in TRANSIENT or once:
                return None
            asked = problem.retry_after or 0.0
        elif once and not isinstance(outcome, httpx2.ConnectError):
            raise Unreachable(f"the answer was lost, and the request may have been carried out: {_reason(outcome)}")
        now = time.monotonic()
        self._lost_at = now if self._lost_at is None else self._lost_at
        pause = max(self._pause, asked)
        if now - self._lost_at + pause > self._patience:
            if isinstance(outcome, Answer):
                return None  # the server's own reason is more useful than "busy"
            raise Unreachable(f"no answer for {self._patience:g} seconds: {_reason(outcome)}") from None
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
        return pause


class EventReader:
    """The position in a stream: of a task, up to its last event, or of a conversation, whose stream has no end."""

    def __init__(self, path: str, after: int, patience: float, *, of_conversation: bool = False) -> None:
        self.path = path
        self.after = after
        self.done = False
        self._of_conversation = of_conversation
        self._retries = Retries(patience)
        self._refused: Answer | None = None

    @property
    def refusal(self) -> Exception | None:
        """Why the server did not begin to send events."""
        return self._refused.problem if self._refused else None

    def arguments(self, connection: Connection[Any], options: Options) -> dict[str, Any]:
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": str(self.after)} if self.after else {})
        return {
            "url": connection.url(self.path),
            "headers": connection.headers(options, headers),
            "timeout": httpx2.Timeout(SILENCE, connect=5.0),
        }

    def begins(self, response: httpx2.Response) -> bool:
        """Whether events follow."""
        self._refused = None
        if response.status_code == 204:  # the task has ended, and all its events were seen
            self.done = True
            return False
        if not response.is_success:
            self._refused = answer_of(response)
            return False
        self._retries.forget()
        return True

    def event(self, data: str) -> Event | None:
        """The event, unless it was seen before."""
        if not data:
            return None
        try:
            event = event_of(json.loads(data))
        except ValueError:
            raise Unexpected("the server sent an event that cannot be read") from None
        # a conversation has its own numbers, because `seq` counts in each session
        number = (event.conv_seq or 0) if self._of_conversation else event.seq
        if number <= self.after:
            return None
        self.after, self.done = number, event.ended and not self._of_conversation
        return event

    def pause_after_end(self) -> float:
        """Handle the end of a stream: the task ended, the server stops, or it refused, which is raised."""
        if self.done:
            return 0.0
        if self._refused is None:
            return FIRST_PAUSE
        pause = self._retries.pause_after(self._refused)
        if pause is None:
            self._refused.value()
        return pause or 0.0

    def pause_after(self, error: Exception) -> float:
        return 0.0 if self.done else self._retries.pause_after(error)


def answer_of(response: httpx2.Response) -> Answer:
    body, kind = None, response.headers.get("content-type", "")
    if "json" in kind:
        # a deeply nested answer exhausts the parser's stack; only another program would send one
        with contextlib.suppress(ValueError, RecursionError):
            body = response.json()
    if response.is_success:
        return Answer(body, response.content)
    text = f"{response.reason_phrase}: {response.text[:300]}"
    problem = problem_of(response.status_code, body, text, response.headers.get("retry-after"))
    return Answer(body, response.content, problem)


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def find_server(url: str | None, key: str | None, folders: Sequence[Path] = ()) -> Server:
    """The given address and key, else ERRAND_URL and ERRAND_API_KEY, else the stack of this account; never any other,
    which could be somebody else's. `folders`: where the state of that stack can be."""
    url = url or os.environ.get("ERRAND_URL") or None
    key = key or os.environ.get("ERRAND_API_KEY") or None
    if url and key:
        return Server(url, key)
    local = running_stack(folders or data_folders())
    if url:  # the token is for its own stack, and no other server may see it
        return local if local and local.url.rstrip("/") == url.rstrip("/") else Server(url)
    if local is None:
        raise NoStack("no stack is running here: `errand up` starts it; for an API elsewhere set ERRAND_URL")
    return Server(local.url, key or local.key)


def data_folders() -> list[Path]:
    """Possible folders of the stack's state, the likeliest first; deploy/data_dir.py chooses it in the same way."""
    if given := os.environ.get("ERRAND_DATA_DIR"):
        return [Path(given).expanduser().absolute()]
    package = Path(__file__).resolve().parent
    if (package / "app").is_dir():
        base = os.environ.get("XDG_DATA_HOME") or ""
        folder = (Path(base) if base.startswith("/") else Path("~/.local/share").expanduser()) / "errand"
        return [folder / "data", _of_root(folder)]
    root = package.parents[1]  # in the checkout
    return [root / ".errand" / "data", _of_root(root)]


def _of_root(folder: Path) -> Path:
    return SYSTEM_STATE / hashlib.sha256(str(folder).encode()).hexdigest()[:12]


def running_stack(folders: Sequence[Path]) -> Server | None:
    for folder in folders:
        try:
            state = json.loads((folder / "stack.json").read_bytes())
            if _runs(int(state["pid"]), state["started"]):
                return Server(str(state["api_url"]), _token(folder))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None


def _runs(pid: int, started: str) -> bool:
    """Whether it is still the same process: after a crash another one may have its pid, and a stranger its port."""
    stat = Path(f"/proc/{pid}/stat")
    if Path("/proc/self/stat").exists():
        return stat.exists() and stat.read_text().rpartition(")")[2].split()[19] == started
    with contextlib.suppress(PermissionError):  # the process belongs to another account
        os.kill(pid, 0)
    return True


def _token(folder: Path) -> str | None:
    try:
        return (folder / "token").read_text().strip() or None
    except OSError:
        return None

"""The connection logic of both clients: addresses, retries, and the position in a stream."""

import json
import time
from typing import Any, overload

import httpx2

from errand.errors import Unreachable, problem_of
from errand.events import Event, event_of
from errand.local_stack import Server, find_server
from errand.requests import Answer, Request, path_of

# A stream sends something every 15 seconds and a wait lasts 30 seconds, so after this silence the connection is dead.
TIMEOUT = httpx2.Timeout(5.0, read=60.0, write=60.0)
TRANSIENT = frozenset({429, 500, 502, 503, 504})  # statuses of a server that is busy or restarting
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 5.0
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Connection:
    """The server's address: looked up at first, and again when it does not answer, because a local stack may move."""

    def __init__(self, url: str | None, key: str | None) -> None:
        self._given = (url, key)
        self._server: Server | None = None

    def options(self) -> dict[str, Any]:
        self._server = server = find_server(*self._given)
        headers = {"Authorization": f"Bearer {server.key}"} if server.key else {}
        base = httpx2.URL(server.url)
        # proxies from the environment are only for other machines
        return {"base_url": base, "headers": headers, "timeout": TIMEOUT, "trust_env": base.host not in LOOPBACK}

    def moved(self) -> bool:
        try:
            return find_server(*self._given) != self._server
        except Unreachable:
            return False  # it is starting, or was not restarted yet


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
    def pause_after(self, outcome: Exception) -> float: ...
    @overload
    def pause_after(self, outcome: Answer) -> float | None: ...
    def pause_after(self, outcome: Exception | Answer) -> float | None:
        """Seconds to wait; None if it is answered, or refused permanently."""
        asked = 0.0
        if isinstance(outcome, Answer):
            problem = outcome.problem
            if problem is None or problem.status not in TRANSIENT:
                return None
            asked = problem.retry_after or 0.0
        now = time.monotonic()
        self._lost_at = now if self._lost_at is None else self._lost_at
        pause = max(self._pause, asked)
        if now - self._lost_at + pause > self._patience:
            if isinstance(outcome, Answer):
                return None  # the server's own reason is more useful than "busy"
            raise Unreachable(
                f"no answer for {self._patience:g} seconds: {outcome or type(outcome).__name__}"
            ) from None
        self._pause = min(self._pause * 2, LONGEST_PAUSE)
        return pause


class EventReader:
    """The position in the stream of a task."""

    def __init__(self, task_id: str, after: int, patience: float) -> None:
        self.path = path_of("tasks", task_id, "events")
        self.after = after
        self.done = False
        self._retries = Retries(patience)
        self._refused: Answer | None = None

    @property
    def headers(self) -> dict[str, str]:
        return {"Accept": "text/event-stream"} | ({"Last-Event-ID": str(self.after)} if self.after else {})

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
        event = event_of(json.loads(data))
        if event.seq <= self.after:
            return None
        self.after, self.done = event.seq, event.ended
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


def sent_as(request: Request) -> dict[str, Any]:
    body = {"content": request.content} if request.content is not None else {}
    body |= {"json": request.json} if request.json is not None else {}
    return {"params": dict(request.params), "headers": dict(request.headers), **body}


def answer_of(response: httpx2.Response) -> Answer:
    kind = response.headers.get("content-type", "")
    body = None
    if "json" in kind:
        try:
            body = response.json()
        except ValueError:
            body = None
    if response.is_success:
        return Answer(body, response.content)
    refusal = problem_of(response.status_code, body, response.text, response.headers.get("retry-after"))
    return Answer(body, response.content, refusal)

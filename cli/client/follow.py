"""Following a task or a conversation: events from any number on, each once, over as many connections as it takes."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cli.client.api import Api, part
from cli.client.errors import Refused, Unreachable
from cli.render.output import PROGRAM, duration
from domain.events import ENDED
from domain.sessions.session import TERMINAL

LAST = frozenset(event.type for event in ENDED.values())
PASSING = frozenset({429, 500, 502, 503, 504})  # what a server says that is restarting or busy
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 5.0


def follow(
    api: Api, task_id: str, *, after: int = 0, patience: float, say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Ends after the terminal event, or at once where a finished task has nothing after `after`."""
    place = _Place(after, f"{PROGRAM} attach {task_id} --after {{}}", patience, say)
    finished = False
    while True:
        fresh = 0
        with place.held():
            with api.events(f"/tasks/{part(task_id)}/events", place.after) as source:
                place.reached()
                if source.response.status_code == 204:  # it has ended, and all of it was seen
                    return
                for sent in source:
                    event = _parse(sent.data)
                    if event is None or event["seq"] <= place.after:
                        continue
                    place.after, fresh = event["seq"], fresh + 1
                    yield event
                    if event["type"] in LAST:
                        return
            if finished and not fresh:
                return
            finished = api.task(task_id)["status"] in TERMINAL
            if not fresh:
                time.sleep(FIRST_PAUSE)
        api.forget()


def follow_conversation(
    api: Api, conversation_id: str, *, after: int = 0, patience: float, say: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """What happens in any session of a conversation. There is no last event: the next message may come at any time."""
    place = _Place(after, f"{PROGRAM} chat --conversation {conversation_id}", patience, say)
    while True:
        with place.held(), api.events(f"/conversations/{part(conversation_id)}/events", place.after) as source:
            place.reached()
            for sent in source:
                event = _parse(sent.data)
                if event is not None and sent.id and int(sent.id) > place.after:
                    place.after = int(sent.id)
                    yield event
        api.forget()
        time.sleep(FIRST_PAUSE)


class _Place:
    """How far a feed was read, how long the API has been away, and when to stop hoping."""

    def __init__(self, after: int, way_back: str, patience: float, say: Callable[[str], None]) -> None:
        self.after = after
        self._way_back = way_back
        self._patience = patience
        self._say = say
        self.reached()

    def reached(self) -> None:
        self._since: float | None = None
        self._pause = FIRST_PAUSE

    @contextmanager
    def held(self) -> Iterator[None]:
        """A failure inside that may pass is waited out; the caller then tries again from here."""
        try:
            yield
        except Refused as refused:
            if refused.status not in PASSING:
                raise
            self._wait(refused.message)
        except Unreachable as error:
            self._wait(error.message)

    def _wait(self, cause: str) -> None:
        now = time.monotonic()
        if self._since is None:
            self._since = now
            self._say("connection lost, reconnecting; the task goes on")
        if now - self._since + self._pause > self._patience:
            raise Unreachable(
                f"no connection for {duration(self._patience)}: {cause}\n"
                f"The task goes on; `{self._way_back.format(self.after)}` follows it again."
            )
        time.sleep(self._pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)


def _parse(data: str) -> dict[str, Any] | None:
    if not data:
        return None
    try:
        event = json.loads(data)
        event["seq"], event["type"] = int(event["seq"]), str(event["type"])
    except (ValueError, TypeError, KeyError):
        raise Refused("the server sent an event that cannot be read") from None
    return dict(event)

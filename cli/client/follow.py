"""Following a task or a conversation: yields every event once, from any number on, and reconnects as needed."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from cli.client.api import Api, segment
from cli.client.models import EventData
from cli.errors import Refused, Unreachable
from cli.render.output import PROGRAM, duration
from domain.events import ENDED
from domain.sessions.session import TERMINAL, Status

TERMINAL_EVENTS = frozenset(event.type for event in ENDED.values())
TRANSIENT_STATUSES = frozenset({429, 500, 502, 503, 504})  # statuses of a server that is restarting or busy
WAIT_SECONDS = 30  # per request for a result
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 5.0


def follow(
    api: Api, task_id: str, *, after: int = 0, patience: float, notify: Callable[[str], None]
) -> Iterator[EventData]:
    """Yield a task's events up to its terminal event. A finished task without events after `after` yields none."""
    reader = _StreamReader(after, f"{PROGRAM} attach {task_id} --after {{}}", patience, notify)
    finished = False
    while True:
        received = 0
        with reader.reconnecting():
            with api.events(f"/tasks/{segment(task_id)}/events", reader.after) as source:
                reader.connected()
                if source.response.status_code == 204:  # it has ended, and all of its events were seen
                    return
                for sent in source:
                    event = _parse(sent.data)
                    # seen before the connection was lost: a server might ignore the position in the header
                    if event is None or event["seq"] <= reader.after:
                        continue
                    reader.after, received = event["seq"], received + 1
                    yield event
                    if event["type"] in TERMINAL_EVENTS:
                        return
            if finished and not received:
                return
            # The stream ended without a terminal event, because its process stopped. One more read after the end of the
            # task finds events that were written in between.
            finished = api.task(task_id).status in TERMINAL
            if not received:
                time.sleep(FIRST_PAUSE)
        api.disconnect()


def follow_conversation(
    api: Api, conversation_id: str, *, after: int = 0, patience: float, notify: Callable[[str], None]
) -> Iterator[EventData]:
    """Yield the events of all sessions of a conversation. It never ends, because another message may come at any
    time."""
    reader = _StreamReader(after, f"{PROGRAM} chat --conversation {conversation_id}", patience, notify)
    while True:
        path = f"/conversations/{segment(conversation_id)}/events"
        with reader.reconnecting(), api.events(path, reader.after) as source:
            reader.connected()
            for sent in source:
                event = _parse(sent.data)
                # by the number in the conversation: `seq` counts in each session
                if event is not None and sent.id and int(sent.id) > reader.after:
                    reader.after = int(sent.id)
                    yield event
        api.disconnect()
        time.sleep(FIRST_PAUSE)


def wait_for_result(api: Api, task_id: str, *, patience: float, notify: Callable[[str], None]) -> Any:
    """The result of a task, as soon as it has ended. A notice says if it waits for a person."""
    reader = _StreamReader(0, f"{PROGRAM} result {task_id} --wait", patience, notify)
    seconds, asked = 0, False
    while True:
        with reader.reconnecting():
            try:
                return api.get(f"/tasks/{segment(task_id)}/result", wait=seconds)
            except Refused as refused:
                if refused.kind != "not-terminal":
                    raise
                # the first request does not wait, so that a task that waits for a person is noticed at once
                seconds, before = WAIT_SECONDS, asked
                asked = refused.body.get("task_status") == Status.INPUT_REQUIRED
                if asked and not before:
                    notify(f"the task is waiting for an answer; `{PROGRAM} inbox` shows the question")
            reader.connected()
            continue
        api.disconnect()


def events_so_far(api: Api, task_id: str) -> Iterator[EventData]:
    """The events that a task has now; it does not wait for more."""
    after = 0
    while True:
        path = f"/tasks/{segment(task_id)}/events"
        headers = {"Accept": "application/json"}
        page = api.ask("GET", path, params={"after": str(after), "limit": "1000"}, headers=headers)
        yield from page["items"]
        if page["next_after"] == after:
            return
        after = page["next_after"]


class _StreamReader:
    """The position in a stream, and how long the API has been unreachable."""

    def __init__(self, after: int, resume_command: str, patience: float, notify: Callable[[str], None]) -> None:
        self.after = after
        self._resume_command = resume_command
        self._patience = patience
        self._notify = notify
        self.connected()

    def connected(self) -> None:
        self._lost_at: float | None = None
        self._pause = FIRST_PAUSE

    @contextmanager
    def reconnecting(self) -> Iterator[None]:
        """Wait out a transient failure in the body, so that the caller can reconnect; raise any other."""
        try:
            yield
        except Refused as refused:
            if refused.status not in TRANSIENT_STATUSES:
                raise
            self._wait(refused.message)
        except Unreachable as error:
            self._wait(error.message)

    def _wait(self, cause: str) -> None:
        now = time.monotonic()
        if self._lost_at is None:
            # said once for an outage, not at every attempt
            self._lost_at = now
            self._notify("connection lost, reconnecting; the task continues")
        if now - self._lost_at + self._pause > self._patience:
            raise Unreachable(
                f"no connection for {duration(self._patience)}: {cause}\n"
                f"The task continues; `{self._resume_command.format(self.after)}` follows it again."
            )
        time.sleep(self._pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)


def _parse(data: str) -> EventData | None:
    if not data:
        return None
    try:
        event = json.loads(data)
        event["seq"], event["type"] = int(event["seq"]), str(event["type"])
    except (ValueError, TypeError, KeyError):
        raise Refused("the server sent an event that cannot be read") from None
    return dict(event)

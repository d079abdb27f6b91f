"""The state of a Conversation: ids, counters, and a short preview of each waiting outcome."""

import json
from datetime import datetime, timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from domain.conversations.answers import Fired, RememberedAnswer, SpawnAnswers
from domain.sessions.session import DeliveryMode, Status

MOST_PENDING = 1_000  # outcomes kept in the state; further ones wait in the store
REMEMBERED = 500  # answers kept for repeated requests
REMEMBERED_FOR = timedelta(hours=1)
REMEMBERED_LENGTH = 200_000  # characters of all kept answers: they are carried from run to run


class PendingOutcome(BaseModel):
    """An outcome in the mailbox, with the fields that a person wants to see in the Web UI."""

    model_config = ConfigDict(frozen=True)

    id: str  # of the mailbox message
    agent: str
    name: str | None = None  # of the subagent, where its parent gave it one
    status: Status
    title: str = ""
    preview: str = ""  # of the output, or of the error
    # a running session does not read it, see WaitingMessage
    apart: bool = Field(default=False, exclude_if=lambda apart: not apart)


class WaitingMessage(BaseModel):
    """A message in a thread's inbox, kept until a session has taken it."""

    id: str
    outcome: bool = False  # a subagent's outcome, which is pending again if no session commits it
    # it reports work that began in another thread of the channel than the running session's: a session of its own reads
    # it, and answers there
    apart: bool = Field(default=False, exclude_if=lambda apart: not apart)


class Thread(BaseModel):
    parent: str | None = None  # None: the root thread
    name: str = ""
    depth: int = 0
    live: str | None = None
    last: str | None = None  # the session that ended last
    queue: list[str] = Field(default_factory=list)  # accepted sessions that wait for the live one
    inbox: list[WaitingMessage] = Field(default_factory=list)
    ended: list[str] = Field(default_factory=list)  # after a reload: children of the live session that have ended
    # the session that began last reads a message apart, so that the queue is next
    read_apart: bool = Field(default=False, exclude_if=lambda apart: not apart)

    @property
    def busy(self) -> bool:
        return bool(self.live or self.queue or self.inbox or self.ended)


class Live(BaseModel):
    """A running session."""

    thread: str
    spawned_by: str | None = None
    spawner: str | None = None  # the thread that spawned this session and gets its outcome
    blocking: bool = False
    delivery: DeliveryMode = DeliveryMode.HOLD


class ConversationState(BaseModel):
    """The state of a Conversation that must survive continue-as-new."""

    threads: dict[str, Thread] = Field(default_factory=dict)
    live: dict[str, Live] = Field(default_factory=dict)
    pending: list[PendingOutcome] = Field(default_factory=list)  # the mailbox, in order
    # consumed lately, and by which session, so that a late post of the same outcome changes nothing
    delivered: dict[str, str] = Field(default_factory=dict)
    queued_mail: dict[str, list[str]] = Field(default_factory=dict)  # what queued sessions were opened with
    remembered: dict[str, RememberedAnswer] = Field(default_factory=dict)  # by request id
    terminated: bool = False  # no new session may start, and the workflow waits for none
    title: str = ""  # for the Web UI

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_version(cls, given: Any) -> Any:
        """Read answers of a run that kept them as JSON texts."""
        if isinstance(given, dict) and given.get("answers"):
            at = given.get("answered_at", {})
            known = {
                request_id: {"answer": json.loads(text), "length": len(text), "at": at.get(request_id)}
                for request_id, text in given["answers"].items()
            }
            return {**given, "remembered": known | given.get("remembered", {})}
        return given

    def remember(self, request_id: str, answer: SpawnAnswers | Fired, now: datetime) -> None:
        """Keep an answer for requests that are repeated soon; for later repeats the unique keys of the store answer."""
        length = len(answer.model_dump_json())
        self.remembered[request_id] = RememberedAnswer(answer=answer, length=length, at=now)
        self._forget(now)

    def carried(self, now: datetime) -> "ConversationState":
        """The state for the next run. Idle threads are left out, because they are read from the store when they are
        continued; a thread with a name stays, because a later spawn may refer to it."""
        self._forget(now)
        spawners = {live.spawner for live in self.live.values()}
        threads = {
            name: thread
            for name, thread in self.threads.items()
            if thread.parent is None or thread.name != name or thread.busy or name in spawners
        }
        return self.model_copy(update={"threads": threads})

    def _forget(self, now: datetime) -> None:
        """Drop the oldest answers beyond the limits of number, age and length."""
        length = sum(known.length for known in self.remembered.values())
        for request_id, known in list(self.remembered.items()):
            fresh = known.at is None or now - known.at < REMEMBERED_FOR
            if fresh and len(self.remembered) <= REMEMBERED and length <= REMEMBERED_LENGTH:
                break
            length -= known.length
            del self.remembered[request_id]

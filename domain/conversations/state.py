"""What a Conversation remembers: ids and counters only, never words."""

from datetime import datetime, timedelta

from pydantic import BaseModel, Field

from domain.conversations.mailbox import DeliveryMode

REMEMBERED = 500  # answers
REMEMBERED_FOR = timedelta(hours=1)
REMEMBERED_LENGTH = 200_000  # characters of all of them: they are carried from run to run


class WaitingMessage(BaseModel):
    """A message in a thread's inbox, kept until a session has taken it."""

    id: str
    outcome: bool = False  # it brings a subagent's outcome, which is pending again if nobody commits it


class Thread(BaseModel):
    parent: str | None = None  # None: the root thread
    name: str = ""
    depth: int = 0
    live: str | None = None
    last: str | None = None  # the session that ended last
    queue: list[str] = Field(default_factory=list)  # accepted sessions that wait for the live one
    inbox: list[WaitingMessage] = Field(default_factory=list)
    ended: list[str] = Field(default_factory=list)  # after a reload: children of the live session that have ended

    @property
    def busy(self) -> bool:
        return bool(self.live or self.queue or self.inbox or self.ended)


class Live(BaseModel):
    """A session under way."""

    thread: str
    spawned_by: str | None = None
    spawner: str | None = None  # the thread that gets the outcome: the one that spawned this very session
    blocking: bool = False
    delivery: DeliveryMode = DeliveryMode.HOLD


class ConversationState(BaseModel):
    """All of a Conversation that must survive continue-as-new."""

    threads: dict[str, Thread] = Field(default_factory=dict)
    live: dict[str, Live] = Field(default_factory=dict)
    pending: list[str] = Field(default_factory=list)  # the mailbox: message ids in order
    delivered: dict[str, str] = Field(default_factory=dict)  # consumed lately, and by whom: a late word changes nothing
    queued_mail: dict[str, list[str]] = Field(default_factory=dict)  # what queued sessions were opened with
    answers: dict[str, str] = Field(default_factory=dict)  # request id -> what was answered, as JSON
    answered_at: dict[str, datetime] = Field(default_factory=dict)  # when, for those whose age matters
    terminated: bool = False  # nothing begins any more, and nothing is waited for
    title: str = ""  # for whoever looks at the workflow

    def remember(self, request_id: str, answer: str, now: datetime) -> None:
        """For repeats that come soon; the store's unique keys answer older ones."""
        self.answers[request_id], self.answered_at[request_id] = answer, now
        self._forget(now)

    def carried(self, now: datetime) -> "ConversationState":
        """What the next run must know. A thread on which nothing goes on is read in the store when it is continued,
        unless it is known by a name that may be given again."""
        self._forget(now)
        spawners = {live.spawner for live in self.live.values()}
        threads = {
            name: thread
            for name, thread in self.threads.items()
            if thread.parent is None or thread.name != name or thread.busy or name in spawners
        }
        return self.model_copy(update={"threads": threads})

    def _forget(self, now: datetime) -> None:
        """The oldest beyond what is remembered, by number, by age and by length."""
        length = sum(map(len, self.answers.values()))
        for request_id in list(self.answers):
            fresh = now - self.answered_at.get(request_id, now) < REMEMBERED_FOR
            if fresh and len(self.answers) <= REMEMBERED and length <= REMEMBERED_LENGTH:
                break
            length -= len(self.answers.pop(request_id))
            self.answered_at.pop(request_id, None)

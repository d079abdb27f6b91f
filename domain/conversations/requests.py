"""What a Conversation workflow remembers and is asked: its answers, its state, the requests and signals to it, and
its requests to activities. Only ids, counters and short previews."""

from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import BaseModel, Field

from domain.conversations.mailbox import Attachment
from domain.conversations.subagents import DelegationTool
from domain.frozen import Frozen
from domain.sessions.new_session import NewSession
from domain.sessions.session import DeliveryMode, Status
from domain.sessions.session_state import SessionInput

# Messages that wait in a thread's inbox, by the role with which each enters the context.


class InboxKind(StrEnum):
    USER = "user"
    ASSISTANT = "assistant"  # a reply of another session, which the thread continues from
    OUTCOME = "outcome"  # of a subagent
    SILENT = "silent"  # written by the platform or a subagent; enters the tree as a user message
    SYSTEM = "system"  # from another agent; enters the context as a note
    TOOL = "tool"  # a tool call, which runs before the next model step


# Answers of a Conversation that it remembers, so that a repeated request gets the same one.


class SpawnAnswer(BaseModel):
    session_id: str
    error: str | None = None
    delivery: DeliveryMode = DeliveryMode.HOLD


class SpawnAnswers(BaseModel):
    answers: list[SpawnAnswer]


class Fired(BaseModel):
    session_id: str


class RememberedAnswer(BaseModel):
    answer: SpawnAnswers | Fired
    length: int  # characters, as JSON
    at: datetime


# The state of a Conversation: ids, counters, and a short preview of each waiting outcome.


MOST_PENDING = 1_000  # outcomes kept in the state; further ones wait in the store
REMEMBERED = 500  # answers kept for repeated requests
REMEMBERED_FOR = timedelta(hours=1)
REMEMBERED_LENGTH = 200_000  # characters of all kept answers: they are carried from run to run


class PendingOutcome(Frozen):
    """An outcome in the mailbox, with the fields that a person wants to see in the Web UI."""

    id: str  # of the mailbox message
    agent: str
    name: str | None = None  # of the subagent, where its parent gave it one
    status: Status
    title: str = ""
    preview: str = ""  # of the output, or of the error
    apart: bool = False  # a running session does not read it, see WaitingMessage


class WaitingMessage(BaseModel):
    """A message in a thread's inbox, kept until a session has taken it."""

    id: str
    outcome: bool = False  # a subagent's outcome, which is pending again if no session commits it
    # it reports work that began in another thread of the channel than the running session's: a session of its own reads
    # it, and answers there
    apart: bool = False


class Thread(BaseModel):
    parent: str | None = None  # None: the root thread
    name: str = ""
    depth: int = 0
    live: str | None = None
    last: str | None = None  # the session that ended last
    queue: list[str] = Field(default_factory=list)  # accepted sessions that wait for the live one
    inbox: list[WaitingMessage] = Field(default_factory=list)
    ended: list[str] = Field(default_factory=list)  # after a reload: children of the live session that have ended
    read_apart: bool = False  # the session that began last reads a message apart, so that the queue is next

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

    def remember(self, request_id: str, answer: SpawnAnswers | Fired, now: datetime) -> None:
        """Keep an answer for requests that are repeated soon; for later repeats the unique keys of the store answer."""
        length = len(answer.model_dump_json())
        self.remembered[request_id] = RememberedAnswer(answer=answer, length=length, at=now)
        self._forget(now)

    def carry_over(self, now: datetime) -> "ConversationState":
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
            fresh = now - known.at < REMEMBERED_FOR
            if fresh and len(self.remembered) <= REMEMBERED and length <= REMEMBERED_LENGTH:
                break
            length -= known.length
            del self.remembered[request_id]


class CallRef(BaseModel):
    """A tool call by reference: its arguments are in the assistant node."""

    node: str
    index: int
    field: str | None = "prompt"  # None: see first_message
    within: str | None = None  # the argument that holds them
    kind: InboxKind = InboxKind.USER  # the role with which the message arrives
    attachments: list[Attachment] = Field(default_factory=list)


class StartSession(BaseModel):
    """A session whose row exists already."""

    request_id: str
    session: SessionInput
    thread_id: str
    queued: bool = False


class ConversationInput(BaseModel):
    tenant: str
    conversation_id: str
    renew_after: int | None = None  # events, until it continues as new; None: when the server suggests it
    carried: ConversationState | None = None  # from the run before a continue-as-new


class EndedSession(BaseModel):
    """The `post` signal: a session has ended, with its outcome and the messages it received."""

    session_id: str
    outcome: PendingOutcome | None = None  # its message in the mailbox; None if it leaves none
    returned: list[PendingOutcome] = Field(default_factory=list)  # outcomes it had received and did not commit
    taken: list[str] = Field(default_factory=list)  # inbox messages that entered its context
    held: bool = False  # the tree was cancelled, so its outcome must not wake its spawner


class SpawnChild(BaseModel):
    """One child that a parent asks for. Its id derives from the tool call, so a repeated request means the same
    child."""

    session_id: str
    kind: DelegationTool
    name: str
    thread: str | None = None  # continue this thread; None: by name, else a new one
    prompt: CallRef
    session: NewSession
    delivery: DeliveryMode = DeliveryMode.HOLD


class SpawnerThread(BaseModel):
    """The position of a spawner's thread, for a conversation that has not loaded the thread."""

    parent: str | None = None
    name: str = ""
    depth: int = 0


class SpawnRequest(BaseModel):
    request_id: str
    spawned_by: str
    thread: str  # of the spawner
    children: list[SpawnChild]
    max_depth: int
    max_children: int
    deferred: SpawnerThread | None = None  # the call was made earlier: the session that made it may have ended


class ClaimOutcomes(BaseModel):
    """A session reads outcomes and so consumes them; no other session receives them."""

    request_id: str
    by: str
    mail: list[str]


class Fire(BaseModel):
    request_id: str
    session_id: str
    session: NewSession
    input: str | None = None  # the inbox message with the caller's own text
    queue: bool = False
    live_quota: int | None = None  # of the caller's key


class Steer(BaseModel):
    """A message for the running session of a thread."""

    request_id: str
    thread: str
    message: str  # id of the inbox row
    wake: bool = False  # start a session if none is running
    apart: bool = False  # see WaitingMessage


class Steered(BaseModel):
    session_id: str  # empty: a new session begins


class Promote(BaseModel):
    """Let a blocking child continue in the background."""

    request_id: str
    session_id: str


class InboxMessage(BaseModel):
    """A signal to a Session: this message is in its inbox, or no longer."""

    id: str


class ChildrenEnded(BaseModel):
    """A signal to a Session: these children of its thread have ended. One signal names many."""

    session_ids: list[str]


# requests of a Conversation to its activities


class OpenSession(BaseModel):
    """Write the row of a session, or begin a session that is already queued."""

    session_id: str
    thread_id: str
    parent_thread_id: str | None = None
    thread_name: str = ""
    depth: int = 0
    # None: a queued row begins, or, without one, the thread's newest session is continued
    session: NewSession | None = None
    prompt: CallRef | None = None
    take: list[str] = Field(default_factory=list)
    mail: list[str] | None = None
    fires: bool = False  # it takes all outcomes that wait in the store
    delivery: DeliveryMode | None = None
    queued: bool = False  # only write the row: another session of the thread is running
    deferred: bool = False  # it may begin even if its spawner has ended
    live_quota: int | None = None


class OpenBatch(BaseModel):
    tenant: str
    conversation_id: str
    sessions: list[OpenSession]


class Opened(BaseModel):
    """The session to start, or why none may start."""

    session_id: str
    start: SessionInput | None = None
    spawned_by: str | None = None
    blocking: bool = False
    delivery: DeliveryMode = DeliveryMode.HOLD
    busy: str | None = None
    refused: str | None = None
    mail: list[str] = Field(default_factory=list)  # the outcomes it was opened with; they are no longer pending
    over: bool = False  # it was opened before and has ended already


class OpenedBatch(BaseModel):
    sessions: list[Opened]


class Delivered(BaseModel):
    """Record that a session consumed these messages, or that a child no longer blocks."""

    tenant: str
    conversation_id: str
    by: str | None = None
    mail: list[str] = Field(default_factory=list)
    promoted: str | None = None


class ConversationRef(BaseModel):
    tenant: str
    conversation_id: str


class Nothing(BaseModel):
    """The result of an activity that returns nothing."""

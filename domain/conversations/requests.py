"""Requests and signals to a Conversation, and its requests to activities: ids, counters and short previews."""

from pydantic import BaseModel, Field

from domain.conversations.attachments import Attachment
from domain.conversations.delegation import DelegationTool
from domain.conversations.inbox import InboxKind
from domain.conversations.state import ConversationState, PendingOutcome
from domain.sessions.new_session import SessionPayload
from domain.sessions.session import DeliveryMode
from domain.sessions.session_state import SessionInput


class CallRef(BaseModel):
    """A tool call by reference: its arguments are in the assistant node."""

    node: str
    index: int
    field: str | None = Field(default="prompt", exclude_if=lambda field: field == "prompt")  # None: see first_message
    within: str | None = Field(default=None, exclude_if=lambda within: within is None)  # the argument that holds them
    # the role with which the message arrives
    kind: InboxKind = Field(default=InboxKind.USER, exclude_if=lambda kind: kind is InboxKind.USER)
    attachments: list[Attachment] = Field(default_factory=list, exclude_if=lambda value: not value)


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
    session: SessionPayload
    delivery: DeliveryMode = DeliveryMode.HOLD


class SpawnerThread(BaseModel):
    """The position of a spawner's thread, for a conversation that has not loaded the thread."""

    parent: str | None = None
    name: str = ""
    depth: int = 0


class Spawn(BaseModel):
    request_id: str
    spawned_by: str
    thread: str  # of the spawner
    children: list[SpawnChild]
    max_depth: int
    max_children: int
    # the call was made earlier: the session that made it may have ended
    deferred: SpawnerThread | None = Field(default=None, exclude_if=lambda value: value is None)


class ClaimOutcomes(BaseModel):
    """A session reads outcomes and so consumes them; no other session receives them."""

    request_id: str
    by: str
    mail: list[str]


class Fire(BaseModel):
    request_id: str
    session_id: str
    session: SessionPayload
    input: str | None = None  # the inbox message with the caller's own text
    queue: bool = False
    live_quota: int | None = None  # of the caller's key


class Steer(BaseModel):
    """A message for the running session of a thread."""

    request_id: str
    thread: str
    message: str  # id of the inbox row
    wake: bool = Field(default=False, exclude_if=lambda wake: not wake)  # start a session if none is running
    apart: bool = Field(default=False, exclude_if=lambda apart: not apart)  # see WaitingMessage


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
    session: SessionPayload | None = (
        None  # None: a queued row begins, or, without one, the thread's newest session is continued
    )
    prompt: CallRef | None = None
    take: list[str] = Field(default_factory=list)
    mail: list[str] | None = None
    fires: bool = False  # it takes all outcomes that wait in the store
    delivery: DeliveryMode | None = None
    queued: bool = False  # only write the row: another session of the thread is running
    # it may begin even if its spawner has ended
    deferred: bool = Field(default=False, exclude_if=lambda value: not value)
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

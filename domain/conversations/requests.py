"""What may be asked of a Conversation, and what it asks in its turn: ids and counters only, never words."""

from pydantic import BaseModel, Field

from domain.conversations.delegation import DelegationTool
from domain.conversations.mailbox import DeliveryMode
from domain.conversations.state import ConversationState
from domain.sessions.session import SessionInput, Status, Usage
from domain.sessions.step import Finish, Finished


class CallRef(BaseModel):
    """A tool call by reference: its words are in the assistant node."""

    node: str
    index: int


class StartSession(BaseModel):
    """A submission the API has written down already."""

    request_id: str
    session: SessionInput
    thread_id: str
    queued: bool = False


class ConversationInput(BaseModel):
    tenant: str
    conversation_id: str
    # of runs from before first sessions were started by themselves: what to start, and that there is nothing to load
    first: list[StartSession] = Field(default_factory=list)
    fresh: bool = False
    carried: ConversationState | None = None


class SessionDone(BaseModel):
    """A Session's last word to its Conversation."""

    session_id: str
    status: Status
    head: str | None = None
    usage: Usage = Field(default_factory=Usage)
    committed: bool = True
    mail: str | None = None  # the mailbox message with its outcome
    given_back: list[str] = Field(default_factory=list)  # outcomes it had and did not commit
    taken: list[str] = Field(default_factory=list)  # inbox messages that entered its context
    held: bool = False  # its outcome wakes nobody

    @classmethod
    def of(cls, finish: Finish, finished: Finished) -> "SessionDone":
        return cls(
            session_id=finish.ref.session_id,
            status=finished.status,
            head=finished.head,
            usage=finish.usage,
            committed=finished.committed,
            mail=finished.mail,
            given_back=finished.given_back,
            taken=finish.taken,
            held=finished.held,
        )


class SpawnChild(BaseModel):
    """One child as its parent wants it. The id derives from the tool call, so a repeat means the same child."""

    session_id: str
    door: DelegationTool
    name: str
    thread: str | None = None  # continue this thread; None: by name, else a new one
    prompt: CallRef
    document: str  # JSON: the columns of its row that the conversation does not decide
    delivery: DeliveryMode = DeliveryMode.HOLD


class Spawn(BaseModel):
    request_id: str
    spawned_by: str
    thread: str  # of the spawner
    children: list[SpawnChild]
    max_depth: int
    max_children: int


class SpawnAnswer(BaseModel):
    session_id: str
    error: str | None = None
    delivery: DeliveryMode = DeliveryMode.HOLD


class SpawnAnswers(BaseModel):
    answers: list[SpawnAnswer]


class ClaimOutcomes(BaseModel):
    """A session consumes outcomes by reading them; nobody else will be given them."""

    request_id: str
    by: str
    mail: list[str]


class Fire(BaseModel):
    request_id: str
    session_id: str
    document: str
    pending: list[str] = Field(default_factory=list)  # what the caller read from the rows
    input: str | None = None  # an inbox message with the caller's own words
    queue: bool = False
    live_quota: int | None = None  # of the caller's key


class Fired(BaseModel):
    session_id: str


class Steer(BaseModel):
    """A message for a thread that is at work."""

    request_id: str
    thread: str
    message: str  # id of the inbox row


class Steered(BaseModel):
    session_id: str


class Promote(BaseModel):
    """Let a blocking child go on in the background."""

    request_id: str
    session_id: str


class Taken(BaseModel):
    """What a Session is told of a message in its inbox."""

    id: str


class ChildDone(BaseModel):
    """What a Session is told of children of its thread that have ended."""

    session_id: str
    more: list[str] = Field(default_factory=list)  # others that ended meanwhile: many are told in one word


# what the conversation asks of its activities


class OpenSession(BaseModel):
    """A session to be written down, or to begin if it waits already."""

    session_id: str
    thread_id: str
    parent_thread_id: str | None = None
    thread_name: str = ""
    depth: int = 0
    document: str | None = None  # None: a queued row begins, or, without one, the thread's newest session is continued
    prompt: CallRef | None = None
    take: list[str] = Field(default_factory=list)
    mail: list[str] | None = None
    delivery: DeliveryMode | None = None
    queued: bool = False  # to be written down only: the thread is at work
    live_quota: int | None = None


class OpenBatch(BaseModel):
    tenant: str
    conversation_id: str
    sessions: list[OpenSession]


class Opened(BaseModel):
    """The session to start, or why there is none."""

    session_id: str
    start: SessionInput | None = None
    spawned_by: str | None = None
    blocking: bool = False
    delivery: DeliveryMode = DeliveryMode.HOLD
    busy: str | None = None
    refused: str | None = None
    mail: list[str] = Field(default_factory=list)  # the outcomes it was opened with: no longer pending
    over: bool = False  # it was opened before and has ended already


class OpenedBatch(BaseModel):
    sessions: list[Opened]


class Delivered(BaseModel):
    """Write down that these messages were consumed by a session, or that a child no longer blocks."""

    tenant: str
    conversation_id: str
    by: str | None = None
    mail: list[str] = Field(default_factory=list)
    promoted: str | None = None


class ConversationRef(BaseModel):
    tenant: str
    conversation_id: str


class Nothing(BaseModel):
    """An activity's answer when there is nothing to say."""

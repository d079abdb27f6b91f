"""What the store writes, one model for each SQL function: accepting a session (`accept_session`, `begin_queued`) and
its end (`finish_session`), a model step, a tool call, input requests and acceptance checks. The functions read
exactly these fields; only the store dumps these models."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from errand.models import Source
from pydantic import Field, PlainSerializer, computed_field
from pydantic_core import to_json

from domain.conversations.requests import InboxKind
from domain.conversations.subagents import Successor
from domain.credentials import SealedCredential
from domain.events import CallAttempt, EventRow, ToolCalled, ToolReturned
from domain.faces import FaceRequest
from domain.frozen import Frozen
from domain.ids import derive_id
from domain.json_object import JsonObject
from domain.limits import BudgetLimits
from domain.messages import Node
from domain.pictures import FileBlock
from domain.plan import Plan
from domain.policy.rules import ApprovalRules
from domain.sessions.acceptance import AcceptanceRound
from domain.sessions.input_request import OnExpiry, RequestKind
from domain.sessions.new_session import PlacedSession
from domain.sessions.session import (
    CallState,
    DeliveryMode,
    Effect,
    EffectKind,
    ModelReply,
    Purpose,
    Reason,
    SessionRef,
    Status,
    ToolRequest,
    Usage,
    is_withheld,
    preview,
)

ENDED_FIRST = "The session ended first."

# A document in a column of type text. PostgreSQL's jsonb would refuse what texts of models may contain (\u0000).
AsText = PlainSerializer(lambda value: None if value is None else to_json(value).decode())


class SessionWrite(Frozen):
    """A write of a session's workflow. The store refuses those of an earlier run."""

    tenant: str
    session_id: str
    run: str | None = None  # the run of the session's workflow that writes this; None: another writer


class IdempotencyRecord(Frozen):
    key: str
    digest: str
    status: int
    response: str


class NewMessage(Frozen):
    """A message of the inbox that opens a session."""

    id: str
    kind: InboxKind = InboxKind.USER
    author: str = ""
    parts: str  # JSON
    visible: bool = True


class ThreadMessage(Frozen):
    """A message for the inbox of a thread that exists."""

    id: str
    conversation_id: str
    thread_id: str
    text: str
    files: list[FileBlock] = Field(default_factory=list)
    kind: InboxKind = InboxKind.USER
    author: str = ""
    taken_by: str | None = None  # the session that is about to read it
    unsignalled: bool = False  # a sweep signals its conversation if its writer does not
    visible: bool = True
    wake: bool = True  # false: it stays for the next session that answers


class NewBudget(BudgetLimits):
    def within(self, other: "NewBudget | None") -> "NewBudget":
        """The lower of each limit."""
        own, others = self.model_dump(), other.model_dump() if other is not None else {}
        given = {name: [one for one in (own[name], others.get(name)) if one is not None] for name in own}
        return NewBudget(**{name: min(ones) for name, ones in given.items() if ones})


class Acceptance(Frozen):
    """A session to be accepted, with everything that is written in the same transaction."""

    session: PlacedSession
    inbox: list[NewMessage] = Field(default_factory=list)
    idempotency: IdempotencyRecord | None = None
    live_quota: int | None = None  # how many live tasks the creator may have
    take: list[str] = Field(default_factory=list)  # inbox messages that exist already
    mail: list[str] = Field(default_factory=list)  # mailbox messages that it claims, all of them or none
    queue: bool = False  # it waits until its thread has no live session
    in_order: bool = False  # it does not overtake a session that waits in the queue
    spawns: bool = False  # its spawner must be live, and no tree above it cancelled
    deferred: bool = False  # its spawner may have ended
    budget: NewBudget | None = None  # of the whole conversation, if the task brings one
    delivery: DeliveryMode | None = None  # the new conversation's
    metadata: JsonObject = Field(default_factory=dict)  # the new conversation's
    manifest: Mapping[str, Any] = Field(default_factory=dict)  # what a new workspace starts with, by path
    parent_thread_id: str | None = None
    thread_name: str | None = None
    face: FaceRequest | None = None  # set if the request came through a face
    credentials: list[SealedCredential] = Field(default_factory=list)  # that came with the task


class QueuedBegin(Frozen):
    """A session leaves the queue of its thread."""

    tenant: str
    session_id: str
    take: list[str]  # inbox messages that it reads first


class SessionEnding(Frozen):
    """The end of a session. A field that is None leaves the column as it is."""

    ref: SessionRef
    run: str | None = None  # the run of the session's workflow that ends it; None: another writer
    reason: Reason
    partial: bool = False
    error_type: str | None = None
    error: str | None = None
    output: str | None = None
    typed: bool = False  # the output is JSON that fits the agent's output schema
    replied: bool = False  # the model answered, if only with tool calls
    open_result: str = ENDED_FIRST  # of the tool calls that are still open
    head: str | None = None
    usage: Usage | None = None
    step: int | None = None
    version: int
    seen: int | None = None  # the version of the row that this was computed from; None: of whatever it is
    nodes: list[Node] = Field(default_factory=list)  # results for tool calls that have none
    events: list[EventRow] = Field(default_factory=list)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def status(self) -> Status:
        return self.reason.status

    @computed_field  # type: ignore[prop-decorator]
    @property
    def message_id(self) -> str:
        """The id of the outcome in the spawner's mailbox. A repetition writes the same one."""
        return derive_id(self.ref.session_id, "outcome")


# Writes of the store about a model call: its beginning and its reply. The SQL functions `begin_step` and `commit_step`
# read exactly these fields; only the store dumps these models.


class StepBegin(SessionWrite):
    idem: str  # equal in all attempts of a call
    version: int
    step: int
    attempt: int
    head: str | None = None
    take: list[str] = Field(default_factory=list)  # messages that enter the context
    purpose: Purpose = Purpose.TURN
    events: list[EventRow] = Field(default_factory=list)
    again: list[EventRow] = Field(default_factory=list)  # only in a later attempt


class NewNode(Node):
    """A message with the key of the call that wrote it. The last message of a call also holds the call's reply."""

    idem: str
    reply: Annotated[ModelReply | None, AsText] = None


class BudgetUse(Frozen):
    """The amounts to take from the tree's budget."""

    steps: int = 0
    tokens: int = 0
    cost_usd: float | None = None  # None: the price is not known
    tool_calls: int = 0


class OnceEvent(Frozen):
    """An event that a session emits at most once by this name."""

    name: str
    event: EventRow


class StepCommit(SessionWrite):
    idem: str
    version: int
    head: str
    line: str = "main"
    take: list[str] = Field(default_factory=list)
    usage: Usage  # the session's total, including this call
    used: BudgetUse = BudgetUse()
    progress: str | None = None
    status_text: str | None = None  # the status that the session publishes
    reply: Annotated[ModelReply, AsText]
    nodes: list[NewNode]
    once: list[OnceEvent] = Field(default_factory=list)
    events: list[EventRow] = Field(default_factory=list)


# Writes of the store about a tool call, or a command of the acceptance criteria: its claim before the effect, its
# result after it. The SQL functions `claim_tool` and `commit_tool` read exactly these fields; only the store dumps
# these models.


OUTCOME_UNKNOWN = (
    "The outcome of this call is unknown: it was begun, and then the machine that ran it was lost. "
    "It may have happened in full, in part, or not at all. It was not repeated. Check before you do it again."
)
TOOL_BUDGET_SPENT = "The budget of tool calls that this session shares with its tree is spent. This call was not run."


class ToolCallKey(SessionWrite):
    """The call, and its node in the message tree."""

    node: str
    call_index: int
    actor: str | None = None  # of the audit log; None: the session's agent


class ToolAttempt(ToolCallKey):
    """The attempt that makes the call. A newer attempt, or another holder, fences this one off."""

    tool: str
    effect: Effect
    holder: str
    attempt: int

    @property
    def call_attempt(self) -> CallAttempt:
        return CallAttempt(call=self.holder, attempt=self.attempt)

    @classmethod
    def of(cls, request: ToolRequest, *, run: str | None, holder: str, attempt: int) -> "ToolAttempt":
        return ToolAttempt(
            tenant=request.ref.tenant,
            session_id=request.ref.session_id,
            run=run,
            node=request.node,
            call_index=request.index,
            tool=request.name,
            actor=f"agent {request.agent.name}",
            effect=request.effect,
            holder=holder,
            attempt=attempt,
        )


class ToolClaim(ToolAttempt):
    asks: bool = False  # it asks people a question or checks a result, so no budget of tool calls counts it
    kind: EffectKind | None = None  # for the ledger; None: the call changes nothing
    description: str = ""
    command: str | None = None  # for the audit log, if no message of the model contains it
    withheld: bool = False  # a dry run describes it instead of running it
    called: list[EventRow] = Field(default_factory=list)
    unknown: str = ""  # the result if an earlier attempt may have happened and must not be repeated
    lost: list[EventRow] = Field(default_factory=list)  # emitted with it
    spent: str = ""  # the result if the tree's budget of tool calls is spent
    refused: list[EventRow] = Field(default_factory=list)  # emitted with it

    @classmethod
    def by(
        cls, attempt: ToolAttempt, ref: SessionRef, summary: str, kind: EffectKind | None, *, asks: bool
    ) -> "ToolClaim":
        tool = attempt.tool
        lost = ToolReturned(tool=tool, state=CallState.UNKNOWN, preview=preview(OUTCOME_UNKNOWN))
        refused = ToolReturned(tool=tool, state=CallState.FAILED, preview=TOOL_BUDGET_SPENT)
        return ToolClaim(
            **dict(attempt),
            asks=asks,
            kind=kind,
            description=summary,
            withheld=is_withheld(kind, attempt.effect),
            called=[EventRow.of(ref, ToolCalled(tool=tool, args=summary), by=attempt.call_attempt)],
            unknown=OUTCOME_UNKNOWN,
            lost=[EventRow.of(ref, lost)],
            spent=TOOL_BUDGET_SPENT,
            refused=[EventRow.of(ref, refused)],
        )


class NewFile(Frozen):
    """An artifact whose bytes are stored already."""

    id: str
    sha256: str
    size: int
    name: str
    media_type: str
    type: str
    description: str = ""
    url: str | None = None
    path: str | None = None


class ToolCommit(ToolCallKey):
    holder: str
    attempt: int
    state: CallState
    result: str
    description: str = ""  # empty: the one given with the claim
    progress: str | None = None
    status_text: str | None = None  # the status that the session publishes
    plan: Annotated[Plan | None, AsText] = None
    files: list[NewFile] = Field(default_factory=list)
    shown: Annotated[list[FileBlock], AsText] = Field(default_factory=list)  # those that the model is shown
    sources: Annotated[list[Source], AsText] = Field(default_factory=list)
    used: BudgetUse | None = None
    usage: Annotated[Usage | None, AsText] = None  # the same, for an attempt that finds this result
    denied: bool = False
    rule: str | None = None  # the rule that denied it
    handed_to: Annotated[Successor | None, AsText] = None  # the agent that has the session from here on
    events: list[EventRow] = Field(default_factory=list)


# Writes of the store about input requests and acceptance checks. The SQL functions `open_request`, `answer_request`,
# `settle_request` and `record_acceptance` read exactly these fields; only the store dumps these models.


class SpentSoFar(Frozen):
    """The usage of the session, for the person who is asked."""

    cost_usd: float | None
    tokens: int
    steps: int


class ShownRequest(Frozen):
    """The text that people are shown, and the form that their answer must have."""

    question: str
    details: JsonObject = Field(default_factory=dict)
    answer_schema: JsonObject | None = None
    default_answer: Any = None
    gate: ApprovalRules | None = None  # the rules that bind changes to the call


class NewRequest(ShownRequest):
    """The row of an input request."""

    id: str
    conversation_id: str
    session_id: str
    kind: RequestKind
    deadline: datetime
    on_expiry: OnExpiry
    event_key: str | None = None  # an event with this key answers it


class RequestOpening(Frozen):
    tenant: str
    run: str | None = None  # the run of the session's workflow that writes this; None: another writer
    request: NewRequest
    most: int | None = None  # most requests of its kind in one session; None: any number
    events: list[EventRow] = Field(default_factory=list)


class RequestAnswer(Frozen):
    tenant: str
    id: str
    session_id: str
    answer: str  # JSON
    by: str  # the name that people are shown
    actor: str | None = None  # of the audit log; None: `by`
    events: list[EventRow] = Field(default_factory=list)


class RequestSettlement(Frozen):
    tenant: str
    run: str | None = None  # the run of the session's workflow that writes this; None: another writer
    id: str
    expired: list[EventRow]  # emitted if nobody has answered


class AcceptanceRecord(SessionWrite):
    """One check of a session's acceptance criteria."""

    round: int
    version: int
    acceptance: AcceptanceRound
    usage: Usage  # the session's total, including this check
    used: BudgetUse
    message: NewMessage | None = None  # sends the agent back
    events: list[EventRow]

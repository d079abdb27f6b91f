"""Writes of the store about a tool call: its claim before the effect, its result after it. The SQL functions
`claim_tool`, `commit_tool`, `begin_check` and `end_check` read exactly these fields; only the store dumps these
models."""

from typing import Annotated

from pydantic import Field, PlainSerializer

from domain.conversations.handoff import Successor
from domain.events import CallAttempt, EventRow, ToolCalled, ToolReturned
from domain.plan import Plan
from domain.sessions.effects import EffectKind, Source, withheld
from domain.sessions.remote_call import RemoteCall
from domain.sessions.session import SessionRef
from domain.sessions.session_writes import AsText, Write
from domain.sessions.step import CallState, Effect, ToolRequest, preview

UNKNOWN = (
    "The outcome of this call is unknown: it was begun, and then the machine that ran it was lost. "
    "It may have happened in full, in part, or not at all. It was not repeated. Check before you do it again."
)
SPENT = "The budget of tool calls that this session shares with its tree is spent. This call was not run."


class ToolCallKey(Write):
    """The call, and its node in the message tree."""

    tenant: str
    session_id: str
    run: str | None = None  # the run of the session's workflow that writes this; None: another writer
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
    asks: bool = False  # it asks people a question, so no budget of tool calls counts it
    kind: EffectKind | None = None  # for the ledger; None: the call changes nothing
    description: str = ""
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
        lost = ToolReturned(tool=tool, state=CallState.UNKNOWN, preview=preview(UNKNOWN))
        refused = ToolReturned(tool=tool, state=CallState.FAILED, preview=SPENT)
        return ToolClaim(
            **dict(attempt),
            asks=asks,
            kind=kind,
            description=summary,
            withheld=withheld(kind, attempt.effect),
            called=[EventRow.of(ref, ToolCalled(tool=tool, args=summary), by=attempt.call_attempt)],
            unknown=UNKNOWN,
            lost=[EventRow.of(ref, lost)],
            spent=SPENT,
            refused=[EventRow.of(ref, refused)],
        )


class ToolHold(Write):
    """The handle of a call that continues elsewhere."""

    tenant: str
    session_id: str
    run: str | None = None
    node: str
    call_index: int
    holder: str
    attempt: int
    remote: Annotated[RemoteCall, PlainSerializer(lambda remote: remote.model_dump_json(exclude_defaults=True))]

    @classmethod
    def by(cls, attempt: ToolAttempt, remote: RemoteCall) -> "ToolHold":
        return cls(**attempt.model_dump(exclude={"actor", "tool", "effect"}), remote=remote)


class NewFile(Write):
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
    sources: Annotated[list[Source], AsText] = Field(default_factory=list)
    denied: bool = False
    rule: str | None = None  # the rule that denied it
    handed_to: Annotated[Successor | None, AsText] = None  # the agent that has the session from here on
    events: list[EventRow] = Field(default_factory=list)


class CheckBegin(ToolCallKey):
    """A command of the acceptance criteria, before it runs."""

    tool: str
    kind: EffectKind = EffectKind.COMMAND
    description: str
    command: str


class CheckEnd(ToolCallKey):
    state: CallState
    result: str

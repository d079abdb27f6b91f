"""What the store writes about input requests and acceptance checks. The fields are those that the SQL functions
`open_request`, `answer_request`, `settle_request` and `record_acceptance` read; only the store dumps these models."""

from datetime import datetime
from typing import Any

from pydantic import Field

from domain.events.base import EventRow
from domain.json_object import JsonObject
from domain.policy.approval_rules import ApprovalRules
from domain.sessions.acceptance import AcceptanceRound
from domain.sessions.input_request import OnExpiry, RequestKind
from domain.sessions.session import Usage
from domain.sessions.session_writes import NewMessage, Write
from domain.sessions.step_writes import BudgetUse


class SpentSoFar(Write):
    """What the session has used, for the person who is asked."""

    cost_usd: float | None
    tokens: int
    steps: int


class ShownRequest(Write):
    """What people are shown, and what their answer must look like."""

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
    event_key: str | None = None  # the event with this key answers it


class RequestOpening(Write):
    tenant: str
    run: str | None = None  # of the session's workflow that writes it; None: somebody else does
    request: NewRequest
    most: int | None = None  # how many of its kind the session may open; None: any number
    events: list[EventRow] = Field(default_factory=list)


class RequestAnswer(Write):
    tenant: str
    id: str
    session_id: str
    answer: str  # JSON
    by: str  # the name that people are shown
    actor: str | None = None  # of the audit log; None: `by`
    events: list[EventRow] = Field(default_factory=list)


class RequestSettlement(Write):
    tenant: str
    run: str | None = None  # of the session's workflow that writes it; None: somebody else does
    id: str
    expired: list[EventRow]  # emitted if nobody has answered


class AcceptanceRecord(Write):
    """One check of a session's acceptance criteria."""

    tenant: str
    run: str | None = None  # of the session's workflow that writes it; None: somebody else does
    session_id: str
    round: int
    version: int
    acceptance: AcceptanceRound
    usage: Usage  # of the session, with this check
    used: BudgetUse
    message: NewMessage | None = None  # sends the agent back
    events: list[EventRow]

"""Writes of the store about input requests and acceptance checks. The SQL functions `open_request`, `answer_request`,
`settle_request` and `record_acceptance` read exactly these fields; only the store dumps these models."""

from datetime import datetime
from typing import Any

from pydantic import Field

from domain.events import EventRow
from domain.json_object import JsonObject
from domain.policy.approval_rules import ApprovalRules
from domain.sessions.acceptance import AcceptanceRound
from domain.sessions.input_request import OnExpiry, RequestKind
from domain.sessions.session import Usage
from domain.sessions.session_writes import NewMessage, Write
from domain.sessions.step_writes import BudgetUse


class SpentSoFar(Write):
    """The usage of the session, for the person who is asked."""

    cost_usd: float | None
    tokens: int
    steps: int


class ShownRequest(Write):
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


class RequestOpening(Write):
    tenant: str
    run: str | None = None  # the run of the session's workflow that writes this; None: another writer
    request: NewRequest
    most: int | None = None  # most requests of its kind in one session; None: any number
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
    run: str | None = None  # the run of the session's workflow that writes this; None: another writer
    id: str
    expired: list[EventRow]  # emitted if nobody has answered


class AcceptanceRecord(Write):
    """One check of a session's acceptance criteria."""

    tenant: str
    run: str | None = None  # the run of the session's workflow that writes this; None: another writer
    session_id: str
    round: int
    version: int
    acceptance: AcceptanceRound
    usage: Usage  # the session's total, including this check
    used: BudgetUse
    message: NewMessage | None = None  # sends the agent back
    events: list[EventRow]

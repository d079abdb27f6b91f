"""Input requests: the one mechanism by which a session waits for people, whatever it needs from them."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from errand import models
from pydantic import BaseModel, Field, PlainSerializer

from domain.frozen import Frozen
from domain.json_object import JsonObject
from domain.redaction import mask_sealed
from domain.sessions.session import AgentRef, SessionRef


class RequestKind(StrEnum):
    CLARIFICATION = "clarification"
    TOOL_APPROVAL = "tool_approval"
    PLAN_APPROVAL = "plan_approval"
    EXTERNAL_RESULT = "external_result"
    MISSING_VARIABLES = "missing_variables"
    EXTERNAL_EVENT = "external_event"  # nobody is asked: an event with the request's key answers it


APPROVALS = frozenset({RequestKind.TOOL_APPROVAL, RequestKind.PLAN_APPROVAL})
DEFERRED = frozenset({RequestKind.TOOL_APPROVAL, RequestKind.EXTERNAL_RESULT})  # tool calls that wait


class OnExpiry(StrEnum):
    """What happens if nobody answers in time. A session never simply continues."""

    CANCEL = "cancel"
    DENY = "deny"
    DEFAULT = "default"


class RequestStatus(StrEnum):
    OPEN = "open"
    ANSWERED = "answered"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"


class RequestOrder(StrEnum):
    NEWEST = "newest"
    DEADLINE = "deadline"  # of open ones: the nearest first
    ANSWERED = "answered"  # of answered ones: the latest answer first


class ApprovedFile(Frozen):
    """A file that a command names, with its content at the time when people were asked."""

    path: str
    sha256: str
    size: int
    text: str | None = None  # None: it is not text, or too long to be shown


class MoreFiles(BaseModel):
    """Files beyond those that are shown. They are bound all the same."""

    count: int
    sha256: str  # over their paths and digests


class ApprovedFiles(BaseModel):
    """In the details of a request."""

    files: list[ApprovedFile] = Field(default_factory=list)
    more_files: MoreFiles | None = None


class InputRequest(models.RequestFields):
    """A request as its row has it."""

    kind: RequestKind
    status: RequestStatus = RequestStatus.OPEN
    answer: Annotated[Any, PlainSerializer(mask_sealed)] = None
    on_expiry: OnExpiry
    gate: JsonObject | None = Field(default=None, exclude=True)  # for a call: the rules that bind changes to it


PLAN_SCHEMA: JsonObject = {
    "type": "array",
    "minItems": 1,
    "maxItems": 50,
    "items": {"type": "string", "minLength": 1, "maxLength": 300},
    "description": "the steps as they should be instead",
}


ALWAYS_SCHEMA: JsonObject = {
    "type": "array",
    "minItems": 1,
    "maxItems": 50,
    "items": {"type": "string", "minLength": 1, "maxLength": 1_000},
    "description": "patterns; further calls of this tool that match one need no approval in this conversation",
}


def approval_schema(**changes: JsonObject) -> JsonObject:
    """Yes or no, with notes. With a yes, `changes` may replace some of the requested fields."""
    # An id, so that references inside such as #/$defs/x are looked up there and not in the whole.
    changes = {name: {"$id": f"errand:{name}", **one} if "$defs" in one else one for name, one in changes.items()}
    return {
        "type": "object",
        "properties": {
            "approved": {"type": "boolean"},
            "notes": {"type": "string", "maxLength": 5_000},
            **changes,
        },
        "required": ["approved"],
        "additionalProperties": False,
        "if": {"properties": {"approved": {"const": False}}},
        "then": {"properties": dict.fromkeys(changes, {"not": {}})},
    }


class OpenRequest(BaseModel):
    """A session's request for input, to be opened and then settled; the text stays in the tool call or the plan."""

    ref: SessionRef
    id: str
    kind: RequestKind
    node: str
    index: int = 0
    deadline: datetime  # the session's; the request's own may be earlier
    agents: list[AgentRef]  # from the session's own to the one that asks
    external: bool = False  # for a call: the caller brought the tool, which may have the same name as a built-in one
    form: int = 0  # of a call that continues elsewhere: which of the other side's forms it is about, counted from 1


class OpenedRequest(BaseModel):
    deadline: datetime
    settled: bool = False  # answered before the session began to wait
    refused: bool = False  # nobody is asked; the call's result says why
    described: bool = False  # nobody is asked: a dry run, whose result says what would have happened
    remind_at: datetime | None = None
    escalate_at: datetime | None = None
    shown: str = ""  # question and rule, for the Web UI

    def nudges(self) -> list[tuple[datetime, bool]]:
        """The times of reminders and of the escalation, in order; True marks the escalation."""
        moments = [(self.remind_at, False), (self.escalate_at, True)]
        return sorted((at, escalate) for at, escalate in moments if at is not None and at < self.deadline)


class RemindRequest(BaseModel):
    ref: SessionRef
    id: str
    escalate: bool = False


class SettledRequest(BaseModel):
    status: RequestStatus
    approved: bool = False
    cancel: bool = False  # nobody answered, which ends the session
    note: str = ""  # for the model
    preview: str = ""


class RequestAnswered(BaseModel):
    """Signal to a session: one of its requests was answered. The answer is in the row."""

    id: str

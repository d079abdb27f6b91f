"""Notifications: subscriptions, deliveries, the text for people, the retry schedule, and webhook signatures."""

import base64
import binascii
import hashlib
import hmac
import itertools
import secrets
import time
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, ClassVar
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, StringConstraints

from domain.frozen import Frozen
from domain.json_object import JsonObject
from domain.limits import figure
from domain.missions import MissionStatus
from domain.task import Strict

PREFIX = "whsec_"
ROTATION_HOURS = 24  # during which the old secret signs too
MOST_PATIENCE = 86_400.0  # the longest pause that a receiver may ask for, in seconds
_PAUSES = (5, 30, 300, 1_800, 7_200, 18_000, 36_000)  # seconds; the last one repeats


class NotificationSubject(StrEnum):
    """The events to which one can subscribe. Reminders belong to input_required; an escalation names its own
    recipient."""

    TASK_COMPLETED = "task_completed"
    TASK_FAILED = "task_failed"
    TASK_CANCELLED = "task_cancelled"
    INPUT_REQUIRED = "input_required"
    BUDGET_LOW = "budget_low"
    ANOMALY = "anomaly"
    SUBSCRIPTION_DISABLED = "subscription_disabled"
    SCHEDULE_PAUSED = "schedule_paused"
    MISSION_ENDED = "mission_ended"
    REPLY_FAILED = "reply_failed"


class ChannelName(StrEnum):
    WEBHOOK = "webhook"
    OPENAI = "openai"  # a webhook with OpenAI's events about background responses
    SLACK = "slack"
    EMAIL = "email"
    PUSH = "push"


SIGNED = frozenset({ChannelName.WEBHOOK, ChannelName.OPENAI})  # their requests are signed with a secret


class SubscriptionStatus(StrEnum):
    ACTIVE = "active"
    DISABLED = "disabled"


class DeliveryStatus(StrEnum):
    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"


class NewSubscription(Strict):
    """The body that creates a subscription."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
    channel: ChannelName = Field(strict=False)
    target: Annotated[str, StringConstraints(min_length=1, max_length=2_048)] = Field(
        description="a URL, or for email an address"
    )
    events: list[Annotated[NotificationSubject, Field(strict=False)]] = Field(
        default_factory=lambda: list(NotificationSubject), min_length=1, max_length=20
    )
    every_task: bool = Field(default=True, description="false: only for tasks that name it in config.notify")
    subagents: bool = Field(default=False, description="true: also when a subagent has ended")


def shorten_target(channel: ChannelName, target: str) -> str:
    """An address as listings show it: a URL's host, or the first letter and the domain of an e-mail address."""
    if channel == ChannelName.EMAIL:
        name, _, domain = target.rpartition("@")
        return f"{name[:1]}…@{domain}"
    url = urlsplit(target)
    return f"{url.scheme}://{url.hostname or ''}{f':{url.port}' if url.port else ''}/…"


class AttemptRecord(Frozen):
    """One attempt of a delivery, as the SQL function `record_attempt` takes it."""

    tenant: str
    id: str
    attempt: str  # equal when it is recorded again
    status: DeliveryStatus
    error: str | None = None
    gone: bool = False  # the receiver no longer exists
    pause_s: float | None = None  # until the next attempt


class DeliveryInput(BaseModel):
    """Input of a NotificationDelivery workflow. Text, address and secret stay in the store."""

    tenant: str
    lane: str  # the id of a delivery, or the conversation of an address: its replies are sent one after the other
    span_s: float  # seconds during which to retry a delivery
    asked: bool = False  # the receiver asked to wait, which only a caller may cut short


class DeliveryAttempt(DeliveryInput):
    """An attempt to send the first delivery that waits in a lane."""

    now: datetime


class DeliveryOutcome(BaseModel):
    id: str | None = None  # the delivery that was tried; None: none waits
    status: DeliveryStatus | None = None
    note: str = ""
    wait_s: float | None = None  # before the next attempt: as planned, or as the receiver asked; None: none waits
    asked: bool = False


class SendError(Exception):
    """A notification did not arrive. The message is shown with the delivery, so it holds neither address nor secret."""

    def __init__(self, message: str, *, gone: bool = False, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.gone = gone  # the receiver no longer exists: do not try again
        self.retry_after_s = retry_after_s


class Notice(Frozen):
    """The content of a notification; a webhook's body is this model as JSON."""

    type: str
    timestamp: str
    data: JsonObject

    @property
    def subject(self) -> str:
        """One line for people."""
        head = _HEADS.get(self.type, self.type.replace("_", " "))
        about = " ".join(str(self.data.get("title") or self.data.get("name") or "").split())
        return f"{head}: {about}"[:200] if about else head

    @property
    def text(self) -> str:
        """The body for people: the event, and how they can react."""
        data = self.data
        lines = [str(data[key]) for key in ("question", "error", "output") if data.get(key)]
        if "left" in data:
            kind = str(data.get("budget"))
            left, limit = (figure(kind, data.get(name, 0)) for name in ("left", "limit"))
            lines.append(f"{kind} of the {data.get('scope')}: {left} left of {limit}")
        if "threshold" in data:
            lines.append(f"{data.get('kind')}: {data.get('value', 0):g}, expected at most {data['threshold']:g}")
        if reason := data.get("reason"):
            lines.append(f"Reason: {reason}" + (", with a partial result" if data.get("partial") else ""))
        if request_id := data.get("request_id"):
            verb, value = _ANSWERS.get(str(data.get("kind")), ("approve", ""))
            lines.append(f"Answer with: errand {verb} {data.get('task_id')} {request_id}{value}")
            lines.append(f"Until: {data.get('deadline')}")
        elif task_id := data.get("task_id"):
            lines.append(f"Task: {task_id}")
        return "\n".join(lines)


_ANSWERS = {
    "clarification": ("answer", ' "…"'),
    "external_result": ("answer", " --json-value '…'"),
    "missing_variables": ("answer", " --json-value '…'"),
}
_HEADS = {
    "task_completed": "Completed",
    "task_failed": "Failed",
    "task_cancelled": "Cancelled",
    "input_required": "Waits for you",
    "input_reminder": "Still waits for you",
    "input_escalated": "Nobody has answered",
    "budget_low": "Budget is low",
    "anomaly": "Out of line",
    "subscription_disabled": "Subscription switched off",
    "schedule_paused": "Schedule paused",
    "mission_ended": "Mission ended",
    "reply_failed": "Answer not delivered",
}


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def is_secret(text: str) -> bool:
    """Whether a text has the form of a Standard Webhooks secret, with at least 16 bytes."""
    try:
        return text.startswith(PREFIX) and len(_key(text)) >= 16
    except ValueError:
        return False


def signature(signing: list[str], id: str, timestamp: int, body: bytes) -> str:
    """The value of the header `webhook-signature` (Standard Webhooks), with one signature for each secret."""
    signed = f"{id}.{timestamp}.".encode() + body
    digests = [hmac.digest(_key(secret), signed, hashlib.sha256) for secret in signing]
    return " ".join("v1," + base64.b64encode(digest).decode() for digest in digests)


def signed_headers(signing: list[str], id: str, body: bytes) -> dict[str, str]:
    """The headers of a signed webhook that is sent now; the id is equal in every attempt."""
    now = int(time.time())
    return {
        "content-type": "application/json",
        "webhook-id": id,
        "webhook-timestamp": str(now),
        "webhook-signature": signature(signing, id, now, body),
    }


def _key(secret: str) -> bytes:
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        raise ValueError("this is not a webhook secret") from None


def pause_after(tried_s: float, span_s: float) -> float | None:
    """Seconds until the next attempt, given those since it was due: few, then hours. None: the span is over."""
    due = 0.0
    for pause in itertools.chain(_PAUSES, itertools.repeat(_PAUSES[-1])):
        due = min(due + pause, span_s)
        if due - tried_s >= 1:  # an attempt that was made a little early has no second one at its time
            return due - tried_s
        if due == span_s:
            return None
    raise AssertionError


# Notices: news for a tenant that are not events of a session; their texts, and a notice as it is written.


class NoticeContent(Frozen):
    type: ClassVar[str]


class ConversationUpdated(NoticeContent):
    type = "conversation_updated"

    changed: list[str]


class SchedulePaused(NoticeContent):
    type = "schedule_paused"

    name: str
    schedule_id: str
    reason: str


class MissionEnded(NoticeContent):
    type = "mission_ended"

    name: str
    schedule_id: str
    status: MissionStatus
    reason: str
    summary: str


class NewNotice(Frozen):
    """A notice as the SQL function `give_notice` takes it."""

    tenant: str
    conversation_id: str | None
    type: str
    at: datetime = Field(default_factory=lambda: datetime.now(UTC))
    data: str  # JSON
    session_id: str | None = None  # set together with the event's number if the notice is about a session's event
    seq: int | None = None

    @classmethod
    def of(cls, tenant: str, conversation_id: str | None, content: NoticeContent) -> "NewNotice":
        return cls(tenant=tenant, conversation_id=conversation_id, type=content.type, data=content.model_dump_json())

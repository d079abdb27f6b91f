"""Input requests: opened, answered, expired, and the reminders in between."""

from datetime import datetime

from pydantic import Field

from domain.events.base import Event


class InputRequired(Event):
    """The session waits for a person."""

    type = "input_required"
    decisive = True
    request_id: str
    kind: str
    question: str
    options: list[str] = Field(default_factory=list, exclude_if=lambda options: not options)  # to choose from
    deadline: datetime


class InputReceived(Event):
    type = "input_received"
    decisive = True
    request_id: str
    kind: str
    by: str


class InputExpired(Event):
    type = "input_expired"
    decisive = True
    request_id: str
    kind: str


class InputReminder(InputRequired):
    """Nobody has answered yet: the same subscriptions are notified again."""

    type = "input_reminder"
    decisive = False


class InputEscalated(InputRequired):
    """Nobody has answered yet: the subscription named `to` is notified, whatever events it otherwise asks for."""

    type = "input_escalated"
    decisive = False
    to: str

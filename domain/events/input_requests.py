"""What watchers are told of input requests."""

from datetime import datetime

from domain.events.events import Event


class InputRequired(Event):
    """The session waits for people."""

    type = "input_required"
    request_id: str
    kind: str
    question: str
    deadline: datetime


class InputReceived(Event):
    type = "input_received"
    request_id: str
    kind: str
    by: str


class InputExpired(Event):
    type = "input_expired"
    request_id: str
    kind: str


class InputReminder(InputRequired):
    """It still waits: those who were told are told again."""

    type = "input_reminder"


class InputEscalated(InputRequired):
    """It still waits: the subscription named `to` is told, whatever it otherwise wants to know."""

    type = "input_escalated"
    to: str

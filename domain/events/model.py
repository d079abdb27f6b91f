"""The model's replies, call by call. Deltas are events too; the whole `message` or `thinking` follows them."""

from datetime import datetime

from pydantic import Field

from domain.events.base import Event
from domain.sessions.session import Usage


class TextDelta(Event):
    """A piece of a text while the model writes it. The function `is_delta` of the database lists the same types."""

    step: int
    text: str


class ThinkingDelta(TextDelta):
    type = "thinking_delta"


class MessageDelta(TextDelta):
    type = "message_delta"


class AttemptReset(Event):
    """The deltas of this step so far are void: a new attempt begins."""

    type = "attempt_reset"
    step: int
    attempt: int


class Thinking(Event):
    type = "thinking"
    step: int
    text: str


class Message(Event):
    """The whole text of one model reply; it replaces the deltas of its step."""

    type = "message"
    step: int
    text: str
    interrupted: bool = False
    # for an agent with two AI sides: the side that spoke, and its label
    side: str = Field(default="a", exclude_if=lambda side: side == "a")
    speaker: str | None = Field(default=None, exclude_if=lambda speaker: speaker is None)


class UsageUpdated(Event):
    type = "usage_updated"
    model: str
    step: int
    call: Usage
    total: Usage
    calls: int = Field(default=0, exclude_if=lambda calls: calls == 0)  # how many tool calls of the reply run now


class ModelRetry(Event):
    type = "model_retry"
    step: int
    attempt: int
    model: str
    reason: str
    next_at: datetime


class ModelSwitched(Event):
    type = "model_switched"
    decisive = True
    step: int
    from_model: str
    to_model: str
    reason: str


class ContextCompacted(Event):
    type = "context_compacted"
    step: int
    summary: str


class ContextLost(Event):
    """Earlier messages can no longer be read: the context starts empty, and people are notified."""

    type = "context_lost"
    decisive = True
    head: str  # the last message that should have been read
    text: str = "Earlier messages could not be restored. The conversation starts again with your message."

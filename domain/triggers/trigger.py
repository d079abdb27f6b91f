"""A trigger: the signed events it accepts, the text that an agent reads of them, and their conversation."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from domain.sessions.new_session import NewSession
from domain.task import Id, Strict
from domain.triggers.event import Condition, KeyTemplate, Template

TRIGGER_NAME = r"^[a-z0-9][a-z0-9._-]{0,62}$"
TriggerName = Annotated[str, StringConstraints(pattern=TRIGGER_NAME)]
EMITTED = "emit"  # the source of events that agents emit; no trigger has this name


class SignatureKind(StrEnum):
    STANDARD = "standard_webhooks"
    GITHUB = "github"
    SLACK = "slack"


class TriggerContext(StrEnum):
    """The conversation for an event that no session waits for."""

    SHARED = "shared"  # one for all events of the trigger
    PER_KEY = "per_key"  # one for each correlation key
    ISOLATED = "isolated"  # one for each event


class TriggerRules(Strict):
    """The settings of a trigger that a caller chooses, besides the task and the secret."""

    signature: SignatureKind = Field(strict=False)
    filter: list[Condition] = Field(default_factory=list, max_length=20, description="all of them must hold")
    template: Template | None = Field(
        default=None, description="what the agent reads of the event, with {{payload.field}}; null: its payload as JSON"
    )
    correlation: KeyTemplate | None = Field(
        default=None, description="the event's key, such as order:{{payload.order.id}}; wait_for_event waits for it"
    )
    context: TriggerContext = Field(default=TriggerContext.SHARED, strict=False)
    conversation_id: Id | None = Field(default=None, description="whose messages the events are; null: their own")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.context is TriggerContext.PER_KEY and self.correlation is None:
            raise PydanticCustomError("needs", "per_key needs a correlation")
        if self.conversation_id is not None and self.context is not TriggerContext.SHARED:
            raise PydanticCustomError("excluded", "one conversation is named, so the context is shared")
        return self


class EventTrigger(BaseModel):
    """One row of the table `triggers`; the secret is stored apart. Without a session, events only reach those who wait
    for them."""

    model_config = ConfigDict(frozen=True)

    tenant: str
    id: str
    name: str
    rules: TriggerRules
    session: NewSession | None
    prompt: str
    created_by: str
    created_at: datetime
    deleted_at: datetime | None = None


class EventOutcome(StrEnum):
    ACCEPTED = "accepted"  # it became a session
    DELIVERED = "delivered"  # a session that waited for its key has it
    FILTERED = "filtered"  # a condition did not hold
    KEPT = "kept"  # a session that waits for its key later gets it


class EventAccepted(BaseModel):
    """The result of an event. A repetition of the event gets the same result."""

    event_id: str
    outcome: EventOutcome
    session_id: str | None = Field(default=None, description="the session that it became, or that waited for it")
    conversation_id: str | None = None


class EventRecord(EventAccepted):
    type: str
    key: str | None = Field(description="by which a wait finds it")
    created_at: datetime

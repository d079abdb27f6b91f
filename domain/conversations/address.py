"""Addresses: where a message goes that does not name a conversation. The first message to one opens its
conversation."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal, Self
from urllib.parse import quote, unquote

from pydantic import BaseModel, ConfigDict, Field

from domain.sessions.new_session import NewSession
from domain.sessions.session_writes import IdempotencyRecord, NewBudget


class AddressKind(StrEnum):
    CHANNEL = "channel"  # connector, channel and user
    SCHEDULE = "schedule"
    TRIGGER = "trigger"


class Address(BaseModel):
    """The key of an address: equal for equal parts, also after a restart, and different for any other list of parts."""

    model_config = ConfigDict(frozen=True)

    kind: AddressKind
    parts: tuple[str, ...] = Field(min_length=1)

    @classmethod
    def channel(cls, connector: str, channel_id: str, user_id: str) -> Self:
        return cls(kind=AddressKind.CHANNEL, parts=(connector, channel_id, user_id))

    @classmethod
    def schedule(cls, schedule_id: str) -> Self:
        return cls(kind=AddressKind.SCHEDULE, parts=(schedule_id,))

    @classmethod
    def trigger(cls, trigger_id: str, *key: str) -> Self:
        """The address of a trigger: of all its events, or of those with one correlation key."""
        return cls(kind=AddressKind.TRIGGER, parts=(trigger_id, *key))

    @classmethod
    def of_key(cls, kind: str, key: str) -> Self:
        return cls(kind=AddressKind(kind), parts=tuple(unquote(part) for part in key.split("/")))

    @property
    def key(self) -> str:
        """The address as it is stored. A slash inside a part is escaped."""
        return "/".join(quote(part, safe="") for part in self.parts)


class ArrivingMessage(BaseModel):
    """One message for an address, with the session that it starts. A second message with the same `key` is ignored."""

    model_config = ConfigDict(frozen=True)

    key: str = Field(min_length=1, max_length=500)
    text: str
    author: str = ""
    visible: bool = True  # false: no record for people shows it
    session: NewSession  # checked already: agent, models, limits, rules
    files: Mapping[str, Any] = Field(default_factory=dict)  # entries for the workspace, by path
    if_busy: Literal["queue", "reject"] = "queue"
    idempotency: IdempotencyRecord | None = None  # of the request that brings it
    live_quota: int | None = None
    budget: NewBudget | None = None  # of the conversation, from this message on
    metadata: Mapping[str, Any] = Field(default_factory=dict)  # of the conversation, if this message opens it

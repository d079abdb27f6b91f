"""Bodies and responses of /connectors and /channels."""

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field, StringConstraints

from domain.channels import MAX_DEBOUNCE_MS, ChannelRef, ConnectorKind
from domain.task import Strict

# printable, because the token is sent as a header
Secret = Annotated[str, StringConstraints(min_length=1, max_length=1_000, pattern=r"^[!-~]+$")]


class ConnectorBody(Strict):
    """The body of PUT /connectors/{connector}."""

    kind: ConnectorKind = Field(strict=False)
    agent: Annotated[str, StringConstraints(min_length=1, max_length=63)] = Field(description="answers the messages")
    target: Annotated[str, StringConstraints(max_length=2_048)] = Field(
        default="", description="URL of a webhook for answers; without one they are read at the address"
    )
    signing_secret: Secret | None = Field(default=None, description="of Slack; a webhook gets one from us")
    token: Secret | None = Field(default=None, description="the bot token of Slack")
    debounce_ms: int = Field(
        default=0,
        ge=0,
        le=MAX_DEBOUNCE_MS,
        description="a message waits so long for the next one, at most 10 s in all; they are answered together",
    )
    merge: bool = Field(default=False, description="messages that wait for their turn are answered together")


class ConnectorRecord(BaseModel):
    id: str
    name: str
    kind: ConnectorKind
    agent: str
    target: str = Field(description="of a URL only the host, because the rest may be secret")
    debounce_ms: int
    merge: bool
    hook: str = Field(description="path for the service's own signed requests")
    created_by: str
    created_at: datetime


class CreatedConnector(ConnectorRecord):
    secret: str | None = Field(
        description="of a new webhook: signs what you send and verifies what you get. Shown once"
    )


class ConnectorPage(BaseModel):
    items: list[ConnectorRecord]


class ChannelAccepted(BaseModel):
    """The session that answers a message."""

    conversation_id: str
    session_id: str | None = Field(description="null: it waits for the next message, as it is not to wake the agent")
    stream_key: str | None
    queued: bool = Field(description="it waits until the running session ends")
    merged: bool = Field(description="a session that has not begun answers it together with earlier messages")
    duplicate: bool = Field(description="this message was accepted before; nothing was changed")
    answered: str | None = Field(default=None, description="the input request of the session that it answers")
    rejected: str | None = Field(
        default=None, description="why it does not answer the open question; the person is asked again"
    )


class AddressRecord(ChannelRef):
    conversation_id: str


class HookAccepted(BaseModel):
    accepted: list[ChannelAccepted]
    answered: int = Field(description="input requests that got an answer")

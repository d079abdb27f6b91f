"""Channels: a connector's configuration, and the messages between people on another service and their conversation."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, Self
from urllib.parse import quote, unquote

from errand.models import Made
from pydantic import BaseModel, Field, StringConstraints

from domain.frozen import Frozen
from domain.pictures import FileBlock
from domain.sessions.new_session import NewSession
from domain.sessions.writes import IdempotencyRecord, NewBudget
from domain.task import Id, Strict, Text

CONNECTOR_NAME = r"^[a-z0-9][a-z0-9._-]{0,62}$"
NO_MESSAGE = "NO_MESSAGE"  # an answer that is exactly this is not sent: the agent has nothing to say now
REPLY = "reply"
MAX_DEBOUNCE_MS = 10_000

# a connector's id of a channel, user, thread or message; never blank
NAME = r"^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f][^\x00-\x1f\x7f]*$"
Name = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=NAME)]


_MESSAGE_KEY = "message/"


def message_key(message_id: str) -> str:
    """The key by which a message of a service is accepted once."""
    return _MESSAGE_KEY + message_id


def service_id(key: str) -> str | None:
    """The service's own id in the key of a message; None if it gave none."""
    return key.removeprefix(_MESSAGE_KEY) if key.startswith(_MESSAGE_KEY) else None


class ConnectorKind(StrEnum):
    WEBHOOK = "webhook"
    SLACK = "slack"
    EMAIL = "email"


class ConnectorRules(Frozen):
    """How messages of one service reach an agent, and how its answers leave; the secrets are kept elsewhere."""

    kind: ConnectorKind
    agent: str
    target: str = Field(description="of a webhook, where answers go: only the host of a URL; empty: nowhere")
    debounce_ms: int


class ConnectorConfig(Made, ConnectorRules):
    pass


class ConnectorSecrets(BaseModel):
    """The secrets that only the hook and the sender read. They are stored encrypted."""

    target: str = Field(default="", repr=False)  # of a webhook: a URL, which may hold a token
    signing: str = Field(default="", repr=False)  # verifies what arrives; a webhook's answers are signed with it too
    token: str = Field(default="", repr=False)  # lets us send


class ChannelRef(Frozen):
    """Who writes, and where. Together they are the address of one conversation."""

    connector: str
    channel_id: Name
    user_id: Name


class ChannelMessage(Strict):
    """One message of a person. A second one with the same `message_id` is not accepted again."""

    text: Text
    files: list[Id] = Field(default_factory=list, max_length=100, description="ids of uploaded files")
    message_id: Name | None = Field(default=None, description="the service's own id of the message")
    thread: Name | None = Field(default=None, description="the answer is sent to this thread of the channel")
    visible: bool = Field(default=True, description="false: the agent reads it, and no record for people shows it")
    wake: bool = Field(default=True, description="false: it waits for the next message, and causes no answer itself")


class IncomingMessage(ChannelMessage):
    """A message as a connector reads it from a signed request."""

    channel_id: Name
    user_id: Name


class IncomingAnswer(Strict):
    """A person's answer to an input request, for instance given with a button."""

    channel_id: Name
    user_id: Name
    request_id: str
    value: Any


class ChannelReply(Frozen):
    """A message to a channel: an answer, or an input request. A webhook's body is this model as JSON."""

    type: str
    timestamp: str
    data: "ReplyData"


class ReplyData(Frozen, extra="allow"):
    connector: str
    channel_id: str
    user_id: str
    thread: str | None = None
    in_reply_to: str | None = None  # the message_id of the message that it answers
    conversation_id: str
    task_id: str
    text: str
    request_id: str | None = None
    kind: str | None = None  # of the input request


# Addresses: where a message goes that does not name a conversation. The first message to one opens its
# conversation.


class AddressKind(StrEnum):
    CHANNEL = "channel"  # connector, channel and user
    SCHEDULE = "schedule"
    TRIGGER = "trigger"


class Address(Frozen):
    """The key of an address: equal for equal parts, also after a restart, and different for any other list of parts."""

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


class ArrivingMessage(Frozen):
    """One message for an address, with the session that it starts. A second message with the same `key` is ignored."""

    key: str = Field(min_length=1, max_length=500)
    text: str
    author: str = ""
    visible: bool = True  # false: no record for people shows it
    session: NewSession  # checked already: agent, models, limits, rules
    files: Mapping[str, Any] = Field(default_factory=dict)  # entries for the workspace, by path
    shown: list[FileBlock] = Field(default_factory=list)  # those of them that the model is shown
    if_busy: Literal["queue", "reject"] = "queue"
    idempotency: IdempotencyRecord | None = None  # of the request that brings it
    live_quota: int | None = None
    budget: NewBudget | None = None  # of the conversation, from this message on
    metadata: Mapping[str, Any] = Field(default_factory=dict)  # of the conversation, if this message opens it

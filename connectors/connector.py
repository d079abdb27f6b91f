"""A connector: it reads the requests of a service, and sends the answers of an agent."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from domain.channels import ChannelReply, ConnectorSecrets, IncomingAnswer, IncomingMessage


@dataclass(frozen=True)
class SignedRequest:
    """A request of the service as it arrived; header names are in lower case."""

    headers: Mapping[str, str]
    body: bytes
    now: float  # seconds since 1970


@dataclass(frozen=True)
class Received:
    """The content of a request: messages in order, answers to input requests, and a text that the service expects
    back."""

    messages: list[IncomingMessage] = field(default_factory=list)
    answers: list[IncomingAnswer] = field(default_factory=list)
    response: str = ""


@dataclass(frozen=True)
class Outgoing:
    """One reply to send. Its id and body are equal in every attempt, so that a receiver can drop repeats."""

    id: str
    body: bytes = field(repr=False)
    secrets: ConnectorSecrets

    @property
    def reply(self) -> ChannelReply:
        return ChannelReply.model_validate_json(self.body)


@dataclass(frozen=True)
class SenderPorts:
    """The network access of a connector, through the guard. Each port raises SendError if the receiver did not
    accept."""

    post: Callable[[str, dict[str, str], bytes], Awaitable[bytes]]  # url, headers, content; returns the answer's body
    mail: Callable[[str, str, str, str], Awaitable[None]]  # message id, recipient, subject, text
    slack_url: str  # of Slack's Web API, set by the operator: a tenant's choice would be a free target


class Connector(Protocol):
    def receive(self, request: SignedRequest, secrets: ConnectorSecrets) -> Received:
        """Check the signature, then parse the request. Raise a Refusal if either fails; have no side effects."""

    async def send(self, outgoing: Outgoing, ports: SenderPorts) -> None:
        """Send, and return once the receiver has accepted; raise SendError otherwise."""

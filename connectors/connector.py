"""What a connector is: it reads what a service sends, and sends what an agent answers."""

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
    """What a request brings: messages in their order, answers to input requests, and a text the service waits for."""

    messages: list[IncomingMessage] = field(default_factory=list)
    answers: list[IncomingAnswer] = field(default_factory=list)
    response: str = ""


@dataclass(frozen=True)
class Outgoing:
    """One reply on its way. Id and body are the same at every attempt, so that a receiver can drop a repeat."""

    id: str
    body: bytes = field(repr=False)
    secrets: ConnectorSecrets

    @property
    def reply(self) -> ChannelReply:
        return ChannelReply.model_validate_json(self.body)


@dataclass(frozen=True)
class SenderPorts:
    """How a connector reaches the world. Each port raises SendError if the receiver did not accept."""

    post: Callable[[str, dict[str, str], bytes], Awaitable[None]]  # url, headers, content
    mail: Callable[[str, str, str, str], Awaitable[None]]  # message id, recipient, subject, text


class Connector(Protocol):
    def receive(self, request: SignedRequest, secrets: ConnectorSecrets) -> Received:
        """Check the signature, then read the request. Raise a Refusal if either fails; touch nothing."""

    async def send(self, outgoing: Outgoing, ports: SenderPorts) -> None:
        """Return when the receiver has accepted it; raise SendError otherwise."""

"""A channel: one way to notify somebody, and the error of a failed attempt."""

from dataclasses import dataclass, field
from typing import Protocol

from activities.egress import Fetched, Fetcher, FetchError
from domain.notifications import Notice, SendError


@dataclass(frozen=True)
class Envelope:
    """One notification for one address. Its id and body are equal in every attempt."""

    id: str
    target: str = field(repr=False)
    body: bytes = field(repr=False)
    signing: list[str] = field(default_factory=list, repr=False)

    @property
    def notice(self) -> Notice:
        return Notice.model_validate_json(self.body)


class Channel(Protocol):
    async def send(self, envelope: Envelope) -> None:
        """Send, and return once the receiver has accepted; raise SendError otherwise."""


async def post(fetcher: Fetcher, url: str, headers: dict[str, str], content: bytes) -> bytes:
    """Send a POST, and return the body of the answer; only 2xx counts as accepted. A redirect is a failure: a receiver
    that moved needs a new subscription."""
    try:
        answer = await fetcher.send("POST", url, headers, content)
    except FetchError as error:
        raise SendError(str(error)) from None
    if not 200 <= answer.status < 300:
        gone = answer.status == 410
        raise SendError(f"It answered {answer.status}.", gone=gone, retry_after_s=_retry_after(answer))
    return answer.body


def _retry_after(answer: Fetched) -> float:
    given = answer.headers.get("retry-after", "").strip()
    return float(given) if given.isascii() and given.isdecimal() and len(given) < 9 else 0.0

"""What a channel is: one way to notify somebody, and the error that says that this failed."""

from dataclasses import dataclass, field
from typing import Protocol

from activities.tools.support.egress import Fetched, Fetcher, FetchError
from domain.notification import Notice, SendError


@dataclass(frozen=True)
class Envelope:
    """One notification for one address. Id and body are the same at every attempt."""

    id: str
    target: str = field(repr=False)
    body: bytes = field(repr=False)
    signing: list[str] = field(default_factory=list, repr=False)

    @property
    def notice(self) -> Notice:
        return Notice.model_validate_json(self.body)


class Channel(Protocol):
    async def send(self, envelope: Envelope) -> None:
        """Return when the receiver has accepted it; raise SendError otherwise."""


async def post(fetcher: Fetcher, url: str, headers: dict[str, str], content: bytes) -> None:
    """Send a POST; accepted means 2xx. A redirect is a failure: a receiver that moves needs a changed subscription."""
    try:
        answer = await fetcher.send("POST", url, headers, content)
    except FetchError as error:
        raise SendError(str(error)) from None
    if not 200 <= answer.status < 300:
        gone = answer.status == 410
        raise SendError(f"It answered {answer.status}.", gone=gone, retry_after_s=_retry_after(answer))


def _retry_after(answer: Fetched) -> float:
    given = answer.headers.get("retry-after", "").strip()
    return float(given) if given.isascii() and given.isdecimal() and len(given) < 9 else 0.0

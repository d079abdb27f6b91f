"""What a channel is: one way to tell somebody outside, and how it says that this did not work."""

from dataclasses import dataclass, field
from typing import Protocol

from activities.tools.support.egress import Fetched, Fetcher, FetchError
from domain.notification import Notice


class SendError(Exception):
    """It did not arrive; the message is fit for the record of the delivery: no address, no secret."""

    def __init__(self, message: str, *, gone: bool = False, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.gone = gone  # there is no use in trying again
        self.retry_after_s = retry_after_s


@dataclass(frozen=True)
class Envelope:
    """One notice for one address. The id is the same at every attempt, and so is the body."""

    id: str
    target: str = field(repr=False)
    body: bytes = field(repr=False)
    signing: list[str] = field(default_factory=list, repr=False)

    @property
    def notice(self) -> Notice:
        return Notice.model_validate_json(self.body)


class Channel(Protocol):
    async def send(self, envelope: Envelope) -> None:
        """Returns when the other side has taken it; raises SendError otherwise."""


async def post(fetcher: Fetcher, url: str, headers: dict[str, str], content: bytes) -> None:
    """Taken means 2xx. A redirect is not followed: whoever moves changes the subscription."""
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

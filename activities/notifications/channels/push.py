"""Push services with a plain HTTP interface such as ntfy: the text is the body, the title a header."""

from email.header import Header

from activities.egress import Fetcher
from activities.notifications.channels.channel import Envelope, post


class Push:
    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher

    async def send(self, envelope: Envelope) -> None:
        notice = envelope.notice
        subject = notice.subject
        headers = {
            "content-type": "text/plain; charset=utf-8",
            "title": subject if subject.isascii() else Header(subject, "utf-8", maxlinelen=10_000).encode(),
            "priority": "high" if notice.urgent else "default",
        }
        await post(self._fetcher, envelope.target, headers, notice.text.encode())

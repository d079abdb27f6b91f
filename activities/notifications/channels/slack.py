"""Slack, and services with the same interface: an incoming webhook that takes a text."""

import json

from activities.egress import Fetcher
from activities.notifications.channels.channel import Envelope, post


class Slack:
    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher

    async def send(self, envelope: Envelope) -> None:
        notice = envelope.notice
        text = f"*{_plain(notice.subject)}*\n{_plain(notice.text)}"
        body = json.dumps({"text": text, "unfurl_links": False}).encode()
        await post(self._fetcher, envelope.target, {"content-type": "application/json"}, body)


def _plain(text: str) -> str:
    """Escape the text, so that text of an agent cannot become links or mentions."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

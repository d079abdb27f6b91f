"""Webhooks by the Standard Webhooks convention: a stable id, a time per attempt, and a signature for each secret."""

import time

from activities.egress import Fetcher
from activities.notifications.channels.channel import Envelope, post
from domain.notifications import signature


class Webhook:
    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher

    async def send(self, envelope: Envelope) -> None:
        now = int(time.time())
        headers = {
            "content-type": "application/json",
            "webhook-id": envelope.id,
            "webhook-timestamp": str(now),
            "webhook-signature": signature(envelope.signing, envelope.id, now, envelope.body),
        }
        await post(self._fetcher, envelope.target, headers, envelope.body)

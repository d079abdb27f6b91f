"""The outbox and the feed: written together with their events, numbered without gaps, attempts counted once."""

import asyncio
from typing import Any

import pytest
from errand.models import Delivery

from domain.events import EventRow, MailboxUpdated, TaskCompleted
from domain.ids import is_id, new_id
from domain.notifications import AttemptRecord, ChannelName, DeliveryStatus, NewSubscription
from domain.sealing import KeyRing
from domain.sessions.session import Reason, SessionRef, Status, Usage
from store import events, notices, notifications
from store.database import Pool
from tests.behaviour.store.conftest import Accept
from tests.support.launch import SECRET_KEYS

KEYS = KeyRing.parse(SECRET_KEYS)
DONE = TaskCompleted(
    status=Status.COMPLETED, reason=Reason.GOAL_REACHED, partial=False, usage=Usage(), output="x" * 9_999
)


async def subscribed(pool: Pool) -> str:
    spec = NewSubscription(name=new_id(), channel=ChannelName.WEBHOOK, target="x")
    made = await notifications.create_subscription(pool, "default", spec, "whsec_", "", KEYS)
    assert made is not None
    return made.id


async def found(pool: Pool, subscription_id: str) -> list[Delivery]:
    filters = {"status": None, "session_id": None, "before_id": None, "limit": 100}
    return await notifications.find_deliveries(pool, "default", subscription_id=subscription_id, **filters)  # type: ignore[arg-type]


async def tried(pool: Pool, one: Delivery, attempt: str, status: str, **more: Any) -> DeliveryStatus:
    record = AttemptRecord(
        tenant="default", id=one.id, attempt=attempt, status=DeliveryStatus(status), error="Oh.", **more
    )
    return await notifications.record_attempt(pool, record)


async def test_an_event_and_its_delivery_are_written_together_and_once(pool: Pool, accept: Accept) -> None:
    mine = await subscribed(pool)
    ref = await accept()
    head = (await notices.ends(pool, "default"))[1]
    for _ in range(2):  # the second append is late: the session's log is closed
        await events.append(pool, new_id(), [EventRow.of(ref, DONE)])
    [one] = await found(pool, mine)
    assert is_id(one.id) and (one.event, one.task_id) == ("task_completed", ref.session_id)
    job = await notifications.load_first(pool, "default", one.id, KEYS)
    assert job is not None and 2_000 < len(job.body) < 3_000
    [notice] = await notices.after(pool, "default", head, 10, None)
    assert (notice.type, notice.session_id) == ("session_completed", ref.session_id)
    assert "output" not in notice.model_dump()


@pytest.mark.exactly_once
async def test_feed_has_no_gap_with_concurrent_writers(pool: Pool, accept: Accept) -> None:
    refs = [await accept() for _ in range(4)]
    head = (await notices.ends(pool, "default"))[1]
    read: list[int] = []

    async def write(writer: int) -> None:
        for number in range(15):
            mixed: list[SessionRef] = [refs[(writer + number + place) % 4] for place in range(3)]
            await events.append(pool, new_id(), [EventRow.of(ref, MailboxUpdated()) for ref in mixed])

    async def follow() -> None:
        while len(read) < 8 * 15 * 3:
            read.extend(
                one.number for one in await notices.after(pool, "default", read[-1] if read else head, 50, None)
            )
            await asyncio.sleep(0)

    async with asyncio.timeout(60):
        await asyncio.gather(follow(), *(write(writer) for writer in range(8)))
    assert read == list(range(head + 1, head + 1 + 8 * 15 * 3))


async def test_attempt_reported_twice_counts_once_and_a_final_status_stays(pool: Pool, accept: Accept) -> None:
    mine = await subscribed(pool)
    await events.append(pool, new_id(), [EventRow.of(await accept(), DONE)])
    [one] = await found(pool, mine)
    for _ in range(2):
        assert await tried(pool, one, "run/1", "pending", pause_s=5) is DeliveryStatus.PENDING
    assert (await found(pool, mine))[0].attempts == 1
    assert await tried(pool, one, "run/2", "delivered") is DeliveryStatus.DELIVERED
    assert await tried(pool, one, "run/3", "failed") is DeliveryStatus.DELIVERED
    assert (await found(pool, mine))[0].attempts == 2

"""Crashes of any process at any time: every event is delivered at least once, with one id."""

import asyncio
import signal
from typing import Any

import pytest
import pytest_asyncio

from domain.events import BudgetLow, EventRow
from domain.sessions.session import Scope, SessionRef
from store import events
from tests.behaviour.notifications.receivers import Receiver
from tests.behaviour.notifications.subscribers import Subscribers
from tests.behaviour.supervision.people import agent, ask, waiting
from tests.support.stack import Stack, calls

pytestmark = pytest.mark.exactly_once


@pytest_asyncio.fixture(scope="module")
async def task_id(stack: Stack) -> Any:
    """A task that waits for a person, so that only these tests write events."""
    assert (await stack.http.put("/agents/asker", json=agent("asker", may_ask=True))).is_success
    task_id = await stack.submit(calls(ask("Which?")), "asker")
    await waiting(stack, task_id)
    yield task_id
    await stack.cancel(task_id)


async def happens(stack: Stack, task_id: str) -> None:
    """Write an event as an activity would."""
    ref = SessionRef(tenant="default", session_id=task_id, conversation_id=task_id)
    low = BudgetLow(scope=Scope.SESSION, budget="tokens", limit=1, left=0)
    await events.append(stack.pool, "", [EventRow.of(ref, low)])


async def test_delivery_waits_for_temporal_while_that_is_away(
    subscribers: Subscribers, receiver: Receiver, task_id: str
) -> None:
    """At that time only the outbox row exists. A killed worker has a test with the replies in a channel."""
    made = await subscribers.subscribe(f"{receiver.url}/away")
    before = subscribers.stack.pid("temporal")
    with subscribers.stack.frozen_supervisor():
        subscribers.stack.signal("temporal", signal.SIGKILL)
        await happens(subscribers.stack, task_id)
        await asyncio.sleep(0.3)
        assert [one["status"] for one in await subscribers.deliveries(made)] == ["pending"]
    await subscribers.stack.back("temporal", before)
    [request] = await receiver.got("/away")
    assert request.json["type"] == "budget_low" and request.json["data"]["budget"] == "tokens"

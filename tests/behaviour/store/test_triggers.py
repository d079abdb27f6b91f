"""Which event answers which wait, whom an event reaches, how many there may be, and when they are forgotten."""

from datetime import UTC, datetime, timedelta

import pytest

from domain.ids import new_id
from domain.sessions.input_request import OnExpiry, RequestKind, RequestStatus
from domain.sessions.session import Reason, SessionRef
from domain.sessions.writes import NewRequest, RequestOpening
from domain.triggers import EMITTED, EventTrigger, TriggerRules
from store import sessions, triggers
from store.database import Pool
from store.sessions import SessionRow
from store.triggers import NewEvent
from tests.behaviour.store.conftest import Accept
from tests.behaviour.store.test_deliveries import KEYS
from tests.behaviour.store.test_sessions import end

LONG_AGO, FAR = datetime(2020, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)


async def create(pool: Pool, tenant: str = "default", signature: str = "standard_webhooks") -> EventTrigger:
    rules = TriggerRules.model_validate({"signature": signature, "correlation": "{{payload.key}}"})
    return await triggers.put_trigger(pool, tenant, f"t{new_id()}", rules, None, "", "secret", "ann", KEYS)


def event_of(trigger: EventTrigger, key: str | None) -> NewEvent:
    return NewEvent(trigger.id, trigger.name, new_id(), "paid", key, "the text")


async def wait(
    pool: Pool, ref: SessionRef, key: str, origin: str | None = None, since: datetime = LONG_AGO
) -> RequestStatus | str | None:
    """Wait for a key; the status of the wait, or the session that holds the key."""
    request = NewRequest(
        id=new_id(),
        session_id=ref.session_id,
        conversation_id=ref.conversation_id,
        kind=RequestKind.EXTERNAL_EVENT,
        question="wait",
        details={"trigger": origin},
        deadline=FAR,
        on_expiry=OnExpiry.DENY,
        event_key=key,
    )
    found = await triggers.open_wait(pool, RequestOpening(tenant=ref.tenant, request=request), origin, since)
    return found.held_by if found.opened is None else found.opened.status


@pytest.mark.parametrize("first", ["event", "wait"])
@pytest.mark.parametrize(
    ("differs", "received"),
    [
        (None, True),
        ("named", True),  # the wait names the trigger
        ("other trigger", False),
        ("key", False),
        ("tenant", False),
        ("ended", False),
    ],
)
async def test_a_wait_gets_the_event_of_its_key_and_trigger(
    pool: Pool, accept: Accept, first: str, differs: str | None, received: bool
) -> None:
    ref, key = await accept(), new_id()
    trigger = await create(pool, "elsewhere" if differs == "tenant" else "default")
    origin = {"named": trigger.name, "other trigger": "another"}.get(differs or "")
    event = event_of(trigger, "other" if differs == "key" else key)
    if first == "wait":
        assert await wait(pool, ref, key, origin) is RequestStatus.OPEN
    if differs == "ended":
        await end(pool, ref, Reason.GOAL_REACHED)
    receipt = await triggers.receive(pool, trigger, event, None)
    assert receipt.accepted is not None
    if first == "wait":
        assert (receipt.accepted.outcome == "delivered") is (receipt.answered is not None) is received
        assert receipt.accepted.session_id == (ref.session_id if received else None)
    else:
        assert receipt.accepted.outcome == "kept" and receipt.answered is None
        expected = RequestStatus.ANSWERED if received else None if differs == "ended" else RequestStatus.OPEN
        assert await wait(pool, ref, key, origin) == expected
    again = await triggers.receive(pool, trigger, event, None)  # its sender repeats it
    assert again.accepted is not None and again.answered is None
    assert (again.accepted.outcome == "delivered") is received


async def test_an_event_is_received_once_and_a_key_is_waited_for_once(pool: Pool, accept: Accept) -> None:
    first, second, key = await accept(), await accept(), new_id()
    trigger = await create(pool)
    await triggers.receive(pool, trigger, event_of(trigger, key), None)
    assert await wait(pool, first, key) is RequestStatus.ANSWERED
    assert await wait(pool, first, key) is RequestStatus.OPEN  # the event is spent
    assert await wait(pool, second, key) == first.session_id
    late = await triggers.receive(pool, trigger, event_of(trigger, key), None)
    assert late.answered is not None and late.answered.session_id == first.session_id
    assert await wait(pool, second, key) is RequestStatus.OPEN
    without = await triggers.receive(pool, trigger, event_of(trigger, None), None)
    assert without.accepted is not None and without.accepted.outcome == "filtered"


@pytest.mark.parametrize(("minutes", "status"), [(-1, RequestStatus.ANSWERED), (1, RequestStatus.OPEN)])
async def test_an_event_from_before_the_session_is_not_for_it(
    pool: Pool, accept: Accept, minutes: int, status: RequestStatus
) -> None:
    ref, trigger, key = await accept(), await create(pool), new_id()
    await triggers.receive(pool, trigger, event_of(trigger, key), None)
    assert await wait(pool, ref, key, since=datetime.now(UTC) + timedelta(minutes=minutes)) is status


async def row_of(pool: Pool, ref: SessionRef) -> SessionRow:
    found = await sessions.get(pool, ref.tenant, ref.session_id)
    assert found is not None
    return found


def emitted(name: str, key: str | None = None) -> NewEvent:
    return NewEvent(EMITTED, EMITTED, new_id(), name, key, "the text")


@pytest.mark.parametrize(
    ("who", "pattern", "reached"),
    [
        ("other", "build:*", True),
        ("other", "test:*", False),
        ("sender", "build:*", False),
        ("closed", "build:*", False),
        ("tenant", "build:*", False),
        ("unsubscribed", "build:*", False),
    ],
)
async def test_an_agents_event_reaches_those_who_subscribed_and_never_itself(
    pool: Pool, accept: Accept, who: str, pattern: str, reached: bool
) -> None:
    sender = await row_of(pool, await accept())
    receiver = await row_of(pool, await accept("elsewhere" if who == "tenant" else "default"))
    subscriber = sender if who == "sender" else receiver
    for _ in range(2):
        assert await triggers.subscribe(pool, subscriber, pattern)
    if who == "closed":
        await pool.execute("UPDATE conversations SET status = 'terminated' WHERE id = $1", receiver.conversation_id)
    if who == "unsubscribed":
        await triggers.unsubscribe(pool, receiver, pattern)
    event = emitted("build:done")
    found = await triggers.emit_event(pool, sender, event, 100)
    assert found is not None and found.receivers == len(found.messages) == reached
    again = await triggers.emit_event(pool, sender, event, 100)
    assert again is not None and (again.receivers, list(again.messages)) == (None, [])
    read = await pool.fetchval("SELECT count(*) FROM inbox WHERE thread_id = $1", subscriber.thread_id)
    assert read == reached
    await triggers.unsubscribe(pool, subscriber, pattern)  # the tests share a database


async def test_an_agents_event_answers_the_waits_of_others_only(pool: Pool, accept: Accept) -> None:
    one, other, key = await accept(), await accept(), new_id()
    sender, event = await row_of(pool, one), emitted("build:done", key)
    assert await wait(pool, one, key) is RequestStatus.OPEN
    own = await triggers.emit_event(pool, sender, event, 100)
    assert own is not None and own.answered is None
    assert await wait(pool, other, key) == one.session_id
    await end(pool, one, Reason.GOAL_REACHED)
    assert await wait(pool, other, key) is RequestStatus.ANSWERED  # the event was kept
    assert await wait(pool, other, key) is RequestStatus.OPEN
    found = await triggers.emit_event(pool, sender, emitted("build:done", key), 100)
    assert found is not None and found.answered is not None and found.answered.session_id == other.session_id


async def test_events_and_subscriptions_have_their_most(pool: Pool, accept: Accept) -> None:
    sender, other = await row_of(pool, await accept()), await row_of(pool, await accept())
    answers = [await triggers.emit_event(pool, sender, emitted("a"), 2) for _ in range(3)]
    assert [one is not None for one in answers] == [True, True, False]
    assert await triggers.emit_event(pool, other, emitted("a"), 2) is not None
    await pool.execute(
        "UPDATE external_events SET created_at = now() - interval '61 minutes' WHERE conversation_id = $1",
        sender.conversation_id,
    )
    assert await triggers.emit_event(pool, sender, emitted("a"), 2) is not None
    asked = [await triggers.subscribe(pool, sender, f"most:{number}") for number in range(triggers.MAX_PATTERNS + 1)]
    assert asked == [True] * triggers.MAX_PATTERNS + [False]
    assert await triggers.subscribe(pool, sender, "most:0") and await triggers.subscribe(pool, other, "most:0")


@pytest.mark.parametrize("removed", [False, True])
@pytest.mark.parametrize("signature", ["standard_webhooks", "github", "slack"])
@pytest.mark.parametrize("days", [29, 31])
async def test_old_events_are_forgotten_except_those_whose_repetition_nothing_else_shows(
    pool: Pool, signature: str, removed: bool, days: int
) -> None:
    trigger = await create(pool, signature=signature)
    await triggers.receive(pool, trigger, event_of(trigger, new_id()), None)
    aged = "UPDATE external_events SET created_at = now() - make_interval(days => $2) WHERE source = $1"
    await pool.execute(aged, trigger.id, days)
    if removed:
        await triggers.remove_trigger(pool, "default", trigger.name, "ann")
    await triggers.forget_old_events(pool, 30)
    left = await pool.fetch("SELECT key, body FROM external_events WHERE source = $1", trigger.id)
    if days < 30:
        assert [bool(row["key"] and row["body"]) for row in left] == [True]
    elif signature == "github" and not removed:
        assert [tuple(row) for row in left] == [(None, None)]  # no wait gets it
    else:
        assert left == []

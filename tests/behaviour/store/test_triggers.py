"""Which event answers which wait, whom an event reaches, how many there may be, and when they are forgotten."""

from datetime import UTC, datetime

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


async def row_of(pool: Pool, ref: SessionRef) -> SessionRow:
    found = await sessions.get(pool, ref.tenant, ref.session_id)
    assert found is not None
    return found


def emitted(name: str, key: str | None = None) -> NewEvent:
    return NewEvent(EMITTED, EMITTED, new_id(), name, key, "the text")


async def test_events_and_subscriptions_have_their_most(pool: Pool, accept: Accept) -> None:
    sender, other = await row_of(pool, await accept()), await row_of(pool, await accept())
    made = [emitted("a") for _ in range(3)]
    answers = [await triggers.emit_event(pool, sender, one, 2) for one in (*made, made[1])]
    assert [one is not None for one in answers] == [True, True, False, True]  # the last is a repetition
    assert await triggers.emit_event(pool, other, emitted("a"), 2) is not None
    await pool.execute(
        "UPDATE external_events SET created_at = now() - interval '61 minutes' WHERE conversation_id = $1",
        sender.conversation_id,
    )
    assert await triggers.emit_event(pool, sender, emitted("a"), 2) is not None
    asked = [await triggers.subscribe(pool, sender, f"most:{number}") for number in range(triggers.MAX_PATTERNS + 1)]
    assert asked == [True] * triggers.MAX_PATTERNS + [False]
    assert await triggers.subscribe(pool, sender, "most:0") and await triggers.subscribe(pool, other, "most:0")

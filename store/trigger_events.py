"""Events of triggers. Each is decided once, in one transaction: it answers a wait for its key, or becomes a message."""

from dataclasses import dataclass

from domain.channels import Address, ArrivingMessage
from domain.missions import Hold
from domain.sessions.new_session import Trigger
from domain.triggers import EventAccepted, EventOutcome, EventTrigger, TriggerContext
from store import addresses, mission_admission, missions
from store.database import Connection, Pool
from store.event_waits import Answered, answer_wait
from store.external_events import NewEvent, decided, insert, known
from store.new_sessions import Accepted
from store.sessions import SessionRow


@dataclass(frozen=True)
class Receipt:
    """The result of an event: what the caller must still start or signal; or the reason why nothing was written, in
    `refused` or, if its mission held it back, in `held`."""

    accepted: EventAccepted | None = None
    session: SessionRow | None = None
    answered: Answered | None = None
    refused: Accepted | None = None
    held: Hold | None = None


async def receive(pool: Pool, trigger: EventTrigger, event: NewEvent, message: ArrivingMessage | None) -> Receipt:
    """Decide on a trigger's event; `message` is used if no session waits for the event. If it is None the event is
    kept, or filtered if it has no key."""
    async with pool.acquire() as connection:
        transaction = connection.transaction()
        await transaction.start()
        try:
            receipt = await _receive(connection, trigger, event, message)
        except BaseException:
            await transaction.rollback()
            raise
        # Roll back, so that a refused event leaves no trace and its sender can send it again.
        await (transaction.commit() if receipt.accepted is not None else transaction.rollback())
        return receipt


async def _receive(
    connection: Connection, trigger: EventTrigger, event: NewEvent, message: ArrivingMessage | None
) -> Receipt:
    tenant = trigger.tenant
    if not await insert(connection, tenant, event):
        before = await known(connection, tenant, event)
        return Receipt(EventAccepted(**before.model_dump(include=set(EventAccepted.model_fields))))
    answered = await answer_wait(connection, tenant, event)
    if answered is not None:
        return Receipt(
            await decided(connection, tenant, event, EventOutcome.DELIVERED, answered.whose), answered=answered
        )
    if message is None:
        outcome = EventOutcome.KEPT if event.key is not None else EventOutcome.FILTERED
        return Receipt(await decided(connection, tenant, event, outcome))
    address, named = _address(trigger, event)
    if named is not None:
        admitted = await _admitted(connection, tenant, named, message)
        if isinstance(admitted, Hold):
            return Receipt(held=admitted)
        message = admitted
    await addresses.locked(connection, tenant, address, named)
    arrival = await addresses.accept_in(connection, tenant, address, message)
    if arrival.session is None:
        return Receipt(refused=arrival.refused)
    whose = arrival.session.id, arrival.session.conversation_id
    accepted = await decided(connection, tenant, event, EventOutcome.ACCEPTED, whose)
    return Receipt(accepted, session=None if arrival.duplicate else arrival.session)


async def _admitted(
    connection: Connection, tenant: str, conversation_id: str, message: ArrivingMessage
) -> ArrivingMessage | Hold:
    """Apply a mission's pauses, budgets and risks to its events, as they apply to its ticks."""
    mission = await missions.of_conversation(connection, tenant, conversation_id, lock=True)
    if mission is None:
        return message
    admitted = await mission_admission.admit(connection, mission, conversation_id)
    if isinstance(admitted, Hold):
        return admitted
    session = mission_admission.marked(message.session, mission)
    return message.model_copy(update={"session": session, "budget": admitted})


def _address(trigger: EventTrigger, event: NewEvent) -> tuple[Address, str | None]:
    rules = trigger.rules
    if rules.context is TriggerContext.ISOLATED:
        return Address.trigger(trigger.id, "event", event.event_id), None
    if rules.context is TriggerContext.PER_KEY and event.key is not None:
        return Address.trigger(trigger.id, "key", event.key), None
    named = rules.conversation_id
    return (Address.trigger(trigger.id, "conversation", named) if named else Address.trigger(trigger.id)), named


def arriving(trigger: EventTrigger, event: NewEvent, prompt: str) -> ArrivingMessage | None:
    """The message for an event; None if the trigger has no task."""
    if trigger.session is None:
        return None
    session = trigger.session.model_copy(update={"trigger": Trigger.EVENT})
    text = f"{prompt}\n\n{event.text}"
    return ArrivingMessage(
        key=f"{trigger.id}:{event.event_id}", text=text, author=f"trigger {trigger.name}", session=session
    )

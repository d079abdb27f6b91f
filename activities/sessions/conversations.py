"""Small records of a conversation: which session consumed which outcome, and the state for reopening it."""

from temporalio import activity

from activities.attempt import with_heartbeats
from domain import events as ev
from domain.conversations.requests import ConversationRef, Delivered, Nothing
from domain.conversations.state import ConversationState
from domain.events import EventRow
from domain.sessions.session import SessionRef
from store import children, conversation_state, mailbox
from store.database import Pool


class ConversationRecords:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    @activity.defn(name="record_delivery")
    @with_heartbeats
    async def record_delivery(self, delivered: Delivered) -> Nothing:
        if delivered.by is not None:
            ref = SessionRef(
                tenant=delivered.tenant, session_id=delivered.by, conversation_id=delivered.conversation_id
            )
            event = EventRow.of(ref, ev.MailboxUpdated())
            await mailbox.deliver(self._pool, ref.tenant, delivered.mail, ref.session_id, event)
        if delivered.promoted is not None:
            await children.promote(self._pool, delivered.tenant, delivered.promoted)
        return Nothing()

    @activity.defn(name="load_conversation")
    @with_heartbeats
    async def load_conversation(self, ref: ConversationRef) -> ConversationState:
        return await conversation_state.load_state(self._pool, ref.tenant, ref.conversation_id)

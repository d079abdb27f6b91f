"""Remind a background agent, once, that has ended without a report to the agent that started it."""

from activities.definitions import Definitions
from activities.tools.builtin.agents import SEND_AGENT_MESSAGE
from domain.conversations.inbox import InboxKind
from domain.conversations.requests import Steer
from domain.errors import NotFound, Unavailable
from domain.ids import derive_id
from domain.sessions.session import DeliveryMode, SessionRef
from domain.sessions.session_writes import ThreadMessage
from store import agent_messages, conversations, sessions
from store.agent_messages import REMINDER
from store.database import Pool
from workflows.client import WorkflowClient

TEXT = (
    "You have ended without a report to the agent that started you. If there is something to report, send it now with "
    "send_agent_message; otherwise just end."
)


class ReportReminder:
    def __init__(self, pool: Pool, workflows: WorkflowClient, definitions: Definitions) -> None:
        self._pool = pool
        self._workflows = workflows
        self._definitions = definitions

    async def remind(self, ref: SessionRef) -> None:
        """Wake the session's agent with a reminder, unless it has reported or this session itself answered a reminder.
        The message is stored first; if it does not reach the conversation now, the sweeper delivers it."""
        own = await sessions.get(self._pool, ref.tenant, ref.session_id)
        if own is None or own.delivery is not DeliveryMode.REPORT:
            return
        tools = own.tools if own.tools is not None else (await self._definitions.load(own.agent_ref)).tools
        if SEND_AGENT_MESSAGE.name not in tools or await agent_messages.has_reported(self._pool, own):
            return
        message_id = derive_id(ref.session_id, REMINDER)
        message = ThreadMessage(
            id=message_id,
            conversation_id=own.conversation_id,
            thread_id=own.thread_id,
            text=TEXT,
            kind=InboxKind.SYSTEM,
            author=REMINDER,
            unsignalled=True,
        )
        await conversations.add_message(self._pool, ref.tenant, message)
        steer = Steer(request_id=message_id, thread=own.thread_id, message=message_id, wake=True)
        try:
            await self._workflows.steer(ref.tenant, own.conversation_id, steer)
        except (Unavailable, NotFound):
            return
        await conversations.mark_signalled(self._pool, ref.tenant, message_id)

"""Events between agents: an event is stored with everything that it causes, then its receivers are signalled."""

import json
from typing import Any

from domain.amounts import counted
from domain.conversations.requests import Steer
from domain.errors import Unavailable
from domain.ids import derive_id
from domain.sessions.session import SessionRef
from domain.triggers import EMITTED, ExternalEvent, untrusted
from store import agent_events, conversations, sessions
from store.agent_events import MAX_PATTERNS, SentMessage
from store.database import Pool
from store.external_events import NewEvent
from store.sessions import SessionRow
from workflows.client import WorkflowClient

MAX_DATA_CHARS = 20_000
PER_HOUR = 200  # per conversation, so that agents cannot answer each other's events without end


class AgentEvents:
    def __init__(self, pool: Pool, conversations: WorkflowClient) -> None:
        self._pool = pool
        self._conversations = conversations

    async def emit(self, ref: SessionRef, name: str, data: dict[str, Any], key: str) -> tuple[str, bool]:
        """The answer for the model, and whether it failed."""
        if len(json.dumps(data)) > MAX_DATA_CHARS:
            return f"The data may have {MAX_DATA_CHARS} characters as JSON. Nothing was emitted.", True
        sender = await self._session(ref)
        event_id = derive_id(ref.session_id, "event", key)
        source = f"agent {sender.agent} {sender.thread_id}"
        text = untrusted(ExternalEvent(id=event_id, type=name, payload=data), source)
        event = NewEvent(source=EMITTED, origin=EMITTED, event_id=event_id, type=name, key=name, text=text)
        emitted = await agent_events.emit(self._pool, sender, event, PER_HOUR)
        if emitted is None:
            return f"This conversation has emitted {PER_HOUR} events within an hour. Nothing was emitted.", True
        if emitted.answered is not None:  # if this fails, the sweeper signals it
            await self._conversations.answered(emitted.answered.session_id, emitted.answered.request_id)
        for message in emitted.messages:
            if message.wake:
                await self._wake(ref.tenant, message)
        reached = "" if emitted.receivers is None else f" It reached {counted(emitted.receivers, 'agent')}."
        return f"Emitted {name}.{reached}", False

    async def subscribe(self, ref: SessionRef, pattern: str, wanted: bool) -> tuple[str, bool]:
        session = await self._session(ref)
        if not wanted:
            await agent_events.unsubscribe(self._pool, session, pattern)
        elif not await agent_events.subscribe(self._pool, session, pattern):
            return f"You have subscribed to {MAX_PATTERNS} patterns, as many as you may.", True
        patterns = await agent_events.patterns(self._pool, session)
        return f"You are subscribed to: {', '.join(patterns) or 'nothing'}.", False

    async def _session(self, ref: SessionRef) -> SessionRow:
        session = await sessions.get(self._pool, ref.tenant, ref.session_id)
        assert session is not None
        return session

    async def _wake(self, tenant: str, message: SentMessage) -> None:
        steer = Steer(request_id=message.message_id, thread=message.thread_id, message=message.message_id, wake=True)
        try:
            await self._conversations.steer(tenant, message.conversation_id, steer)
        except Unavailable:  # it is stored, so the sweeper will deliver it
            return
        await conversations.mark_signalled(self._pool, tenant, message.message_id)

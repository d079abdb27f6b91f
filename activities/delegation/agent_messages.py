"""Messages between agents: stored first, so that none is lost, then delivered to the conversation of the receiver."""

import asyncio
import time

from domain.conversations.inbox import InboxKind
from domain.conversations.mailbox import page
from domain.conversations.requests import Steer
from domain.errors import Unavailable
from domain.ids import derive_id, is_id
from domain.sessions.session import SessionRef, Status
from domain.sessions.session_writes import ThreadMessage
from store import agent_messages, channels, conversations, mission_admission, outcomes, sessions
from store.agent_messages import AgentAddress
from store.database import Pool
from workflows.client import WorkflowClient

POLL_S = 0.3


class NoReceiver(Exception):
    """There is no receiver for the message; the text is for the model."""


class AgentMessages:
    def __init__(self, pool: Pool, conversations: WorkflowClient) -> None:
        self._pool = pool
        self._conversations = conversations

    async def send(self, ref: SessionRef, agent_id: str | None, text: str, key: str) -> tuple[str, bool]:
        """The result for the sender, and whether it is an error."""
        try:
            target, _ = await self._send(ref, agent_id, text, key)
        except NoReceiver as error:
            return str(error), True
        return f"Sent to the agent (agent_id: {target.thread_id}).", False

    async def ask(self, ref: SessionRef, agent_id: str, text: str, key: str, seconds: float) -> tuple[str, bool]:
        """The reply of the session that received the message."""
        try:
            target, message_id = await self._send(ref, agent_id, text, key)
        except NoReceiver as error:
            return str(error), True
        give_up = time.monotonic() + seconds
        while time.monotonic() < give_up:
            taken = await conversations.message_taken(self._pool, ref.tenant, message_id)
            session = await sessions.get(self._pool, ref.tenant, taken.by) if taken and taken.by else None
            if session is not None and session.status.terminal:
                [outcome] = await outcomes.of_sessions(self._pool, ref.tenant, [session.id])
                if outcome.status is not Status.COMPLETED:
                    return f"The agent (agent_id: {target.thread_id}) failed: {outcome.failure_so_far}", True
                return page(outcome, 0) if outcome.output else "(no output)", False
            await asyncio.sleep(POLL_S)
        return f"No reply within {seconds:g} seconds. The message was delivered; a reply may still come.", True

    async def _send(self, ref: SessionRef, agent_id: str | None, text: str, key: str) -> tuple[AgentAddress, str]:
        own = await sessions.get(self._pool, ref.tenant, ref.session_id)
        assert own is not None
        target = await self._target(ref, own.spawned_by, agent_id)
        if target.thread_id == own.thread_id:
            raise NoReceiver("That is you: an agent cannot send messages to itself.")
        if target.terminated:
            raise NoReceiver("That agent, or its conversation, was terminated.")
        message_id = derive_id(ref.session_id, "agent_message", key)
        await self._check_mission(ref, target, message_id)
        message = ThreadMessage(
            id=message_id,
            conversation_id=target.conversation_id,
            thread_id=target.thread_id,
            text=text,
            kind=InboxKind.SYSTEM,
            author=own.thread_id,
            unsignalled=True,
        )
        await conversations.add_message(self._pool, ref.tenant, message)
        apart = bool(await channels.apart(self._pool, ref.tenant, [message_id]))
        steer = Steer(request_id=message_id, thread=target.thread_id, message=message_id, wake=True, apart=apart)
        try:
            await self._conversations.steer(ref.tenant, target.conversation_id, steer)
        except Unavailable:  # it is stored, so the sweeper will deliver it
            return target, message_id
        await conversations.mark_signalled(self._pool, ref.tenant, message_id)
        return target, message_id

    async def _check_mission(self, ref: SessionRef, target: AgentAddress, message_id: str) -> None:
        """A mission that may not run now is not woken by other conversations; what was sent before stays sent."""
        if target.conversation_id == ref.conversation_id or await conversations.has_message(
            self._pool, ref.tenant, message_id
        ):
            return
        hold = await mission_admission.wake_hold(self._pool, ref.tenant, target.conversation_id, target.thread_id)
        if hold is not None:
            raise NoReceiver(f"Nothing was sent, as that agent does not run now: {hold.text}.")

    async def _target(self, ref: SessionRef, parent: str | None, agent_id: str | None) -> AgentAddress:
        """The agent with this id; without an id the sender's parent, else the agent that people wrote to last."""
        wanted = agent_id or parent
        if wanted is not None:
            found = await agent_messages.address(self._pool, ref.tenant, wanted) if is_id(wanted) else None
            if found is None:
                raise NoReceiver(f"There is no agent {wanted!r}.")
            return found
        recent = await agent_messages.recent_foreground(self._pool, ref.tenant, ref.conversation_id)
        if recent is None:
            raise NoReceiver("no recent foreground agent")
        return recent

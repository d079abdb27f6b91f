"""What a session does with the children of its thread and with other agents: results, messages, stops and events. A
message is stored first, so that none is lost, then delivered to the conversation of its receiver."""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from activities.schedules.own import OwnSchedules
from domain.agents.definition import ReceivingSide
from domain.amounts import format_count
from domain.conversations.mailbox import (
    Attachment,
    AttachmentRefused,
    attach_files,
    list_attachments,
    manifest_of,
    paths_of,
    quote,
    render_page,
    rewrite_paths,
)
from domain.conversations.requests import ClaimOutcomes, InboxKind, Steer
from domain.conversations.subagent_texts import from_subagent, listing_line, not_found, result, running
from domain.conversations.subagents import SubagentTerms
from domain.errors import ForModel, NotFound, Unavailable
from domain.ids import derive_id, is_id
from domain.messages import QueuedTool
from domain.sessions.session import Reason, RecordedStop, Scope, SessionRef, Status, StopRequest
from domain.sessions.writes import ThreadMessage
from domain.triggers import EMITTED, ExternalEvent, mark_untrusted
from store import channels, conversations, mailbox, missions, sessions, threads, triggers, workspaces
from store.database import Pool
from store.threads import AgentAddress, Child
from store.triggers import MAX_PATTERNS, NewEvent
from store.workspaces import Manifest
from workflows.client import WorkflowClient

POLL_S = 0.3
MAX_DATA_CHARS = 20_000
PER_HOUR = 200  # per conversation, so that agents cannot answer each other's events without end


def message_id_of(ref: SessionRef, key: str) -> str:
    """The id of a message to an instance; `key` names the call that sends it."""
    return derive_id(ref.session_id, "message", key)


def message_kind(terms: SubagentTerms | None) -> InboxKind:
    """The role with which a parent's message arrives. If it is addressed to side B, it arrives as a message of side
    A."""
    return InboxKind.ASSISTANT if terms and terms.receives_messages is ReceivingSide.SIDE_B else InboxKind.USER


async def wake_thread(pool: Pool, workflows: WorkflowClient, tenant: str, conversation_id: str, steer: Steer) -> None:
    """Deliver a message that is stored. If it does not reach its conversation now, a sweep delivers it."""
    try:
        await workflows.steer(tenant, conversation_id, steer)
    except (Unavailable, NotFound):
        return
    await conversations.mark_signalled(pool, tenant, steer.message)


@dataclass
class Subagents:
    _pool: Pool
    _workflows: WorkflowClient
    schedules: OwnSchedules

    async def _find_thread(self, ref: SessionRef) -> str:
        """The session's thread. The check of a schedule runs before there is a session, for the conversation's own."""
        own = await sessions.get(self._pool, ref.tenant, ref.session_id)
        return own.thread_id if own else ref.conversation_id

    # children: their results, messages to them, and their end

    async def child(self, ref: SessionRef, session_id: str) -> Child | None:
        """A child of this session's thread; children of other threads are not found."""
        if not is_id(session_id):
            return None
        return await threads.get_child(self._pool, ref.tenant, await self._find_thread(ref), session_id)

    async def instance(self, ref: SessionRef, target: str) -> Child | None:
        """A child of this session's thread, by its reference or its name."""
        place = self._pool, ref.tenant, await self._find_thread(ref)
        found = await threads.find_child_by_thread(*place, target) if is_id(target) else None
        return found or await threads.find_child_by_name(*place, target)

    async def listing(self, ref: SessionRef) -> str:
        found = await threads.children_of_thread(self._pool, ref.tenant, await self._find_thread(ref))
        lines = [
            listing_line(child.name, child.agent, child.session_id, child.status, child.progress) for child in found
        ]
        return "\n".join(lines) or "You have started no subagents in this conversation."

    async def result(self, ref: SessionRef, session_id: str, key: str, offset: int = 0) -> tuple[str, bool]:
        """The text of a result, starting at `offset` if it is long, and whether it is an error. Reading the result of
        an ended child consumes its outcome."""
        child = await self.child(ref, session_id)
        if child is None:
            return not_found(session_id), True
        if child.live:
            return running(session_id, threads.retry_text(child.retry)), False
        await self.claim(ref, [session_id], key)
        [outcome] = await mailbox.outcomes_of_sessions(self._pool, ref.tenant, [session_id])
        if offset:
            return render_page(outcome, offset), False
        return result(outcome, child.error_type), outcome.status is not Status.COMPLETED

    async def claim(self, ref: SessionRef, session_ids: list[str], key: str) -> None:
        """Deliver outcomes to the session that reads them; no fire or wake repeats them."""
        mail = [await mailbox.of_source(self._pool, ref.tenant, session_id) for session_id in session_ids]
        pending = [message.message_id for message in mail if message is not None and message.delivered_to is None]
        if pending:
            # By a retry more children may have ended: it is then a different request, not a repetition of the first.
            claim = ClaimOutcomes(
                request_id=derive_id(ref.session_id, "claim", key, *pending), by=ref.session_id, mail=pending
            )
            await self._workflows.claim(ref.tenant, ref.conversation_id, claim)

    async def steer(self, ref: SessionRef, session_id: str, text: str, key: str) -> tuple[str, bool]:
        child = await self.child(ref, session_id)
        if child is None:
            return not_found(session_id), True
        if not await self._queue(ref, child.thread_id, derive_id(ref.session_id, "steer", key), text):
            return f"The subagent (session: {session_id}) is not running; give it a new task instead.", True
        return f"Sent to the subagent (session: {session_id}); it reads it before its next step.", False

    async def send(
        self,
        ref: SessionRef,
        child: Child,
        text: str,
        key: str,
        workspace_id: str | None = None,
        files: Sequence[Attachment] = (),
    ) -> bool:
        """Send a message with its files to the running session of an instance; False if none is running."""
        gained = (workspace_id, manifest_of(files)) if workspace_id else None
        kind = message_kind(child.terms)
        return await self._queue(ref, child.thread_id, message_id_of(ref, key), text, kind=kind, files=gained)

    async def cancel(self, ref: SessionRef, session_id: str, reason: str) -> tuple[str, bool]:
        child = await self.child(ref, session_id)
        if child is None:
            return not_found(session_id), True
        if not child.live:
            return f"The subagent (session: {session_id}) has ended already ({child.status}).", False
        stop = StopRequest(reason=Reason.CALLER_CANCEL, by=f"session {ref.session_id}", note=reason)
        await self._stop(ref, session_id, stop)
        return f"The subagent (session: {session_id}) is stopping.", False

    async def terminate(self, ref: SessionRef, target: str, reason: str) -> tuple[str, bool]:
        """Terminate the thread of a child and the threads below it, and stop their sessions."""
        child = await self.instance(ref, target)
        place = await threads.get(self._pool, ref.tenant, child.thread_id) if child else None
        if child is None or place is None:
            return f"There is no subagent {target!r}. Nothing was terminated.", True
        by = f"session {ref.session_id}"
        stop = StopRequest(reason=Reason.TERMINATED, by=by, note=reason)
        for session_id in await threads.terminate(self._pool, ref.tenant, place, by):
            await self._stop(ref, session_id, stop, Scope.TREE)
        return f"Subagent '{child.name}' (reference: {child.thread_id}) was terminated.", False

    async def _stop(
        self, ref: SessionRef, session_id: str, stop: StopRequest, scope: Literal[Scope.TREE] | None = None
    ) -> None:
        """Stop a session below this one. If the signal is lost, a worker finds the stop in the row."""
        session = await sessions.load(self._pool, ref.model_copy(update={"session_id": session_id}))
        recorded = RecordedStop(**dict(stop), at=datetime.now(UTC), scope=scope)
        if await sessions.record_stop(self._pool, session, recorded):
            await self._workflows.stop(session_id, stop)

    # messages to its parent and to its own thread

    async def notify_parent(
        self,
        ref: SessionRef,
        content: str,
        needs_answer: bool,
        key: str,
        attachments: Sequence[str] = (),
        *,
        waits: bool = False,
    ) -> tuple[str, bool]:
        """Send a silent message to the thread that started this one. It begins a turn there if none is running, unless
        it may wait for the next turn. Files are copied to the parent's workspace first, so that the message can name
        them."""
        own = await sessions.get(self._pool, ref.tenant, ref.session_id)
        spawner = await sessions.get(self._pool, ref.tenant, own.spawned_by) if own and own.spawned_by else None
        if own is None or spawner is None:
            return "You have no parent: nobody started you.", True
        conversation = await conversations.get(self._pool, ref.tenant, ref.conversation_id)
        if conversation is None or conversation.status == "terminated":
            return "The conversation was terminated; nothing was sent.", True
        message_id = derive_id(ref.session_id, "notify", key)
        try:
            _, manifest = await workspaces.get(self._pool, ref.tenant, own.workspace_id)
            shared = own.workspace_id == spawner.workspace_id
            files = attach_files(paths_of(list(attachments)), manifest, None if shared else message_id[-8:])
        except AttachmentRefused as error:
            return str(error), True
        content = list_attachments(quote(rewrite_paths(content, files)), [file.path for file in files])
        text = from_subagent(own.thread_id, content, needs_answer=needs_answer)
        gained = (spawner.workspace_id, manifest_of(files))
        await self._queue(
            ref, spawner.thread_id, message_id, text, kind=InboxKind.SILENT, wake=True, waits=waits, files=gained
        )
        return "Left for your parent's next turn." if waits else "Sent to your parent.", False

    async def queue_tool(self, ref: SessionRef, tool: QueuedTool, key: str) -> bool:
        """Queue a tool call for this session's own thread; it begins a turn if none is running."""
        own = await sessions.get(self._pool, ref.tenant, ref.session_id)
        conversation = await conversations.get(self._pool, ref.tenant, ref.conversation_id)
        if own is None or conversation is None or conversation.status == "terminated":
            return False
        message_id = derive_id(ref.session_id, "tool", key)
        text = tool.model_dump_json()
        return await self._queue(ref, own.thread_id, message_id, text, kind=InboxKind.TOOL, wake=True)

    async def _queue(
        self,
        ref: SessionRef,
        thread_id: str,
        message_id: str,
        text: str,
        *,
        kind: InboxKind = InboxKind.USER,
        wake: bool = False,
        waits: bool = False,  # it is for the thread's next session, even if one is running now
        files: tuple[str, Manifest] | None = None,
    ) -> bool:
        message = ThreadMessage(
            id=message_id,
            conversation_id=ref.conversation_id,
            thread_id=thread_id,
            text=text,
            author=ref.session_id,
            kind=kind,
            wake=not waits,
        )
        await conversations.add_message(self._pool, ref.tenant, message, files)
        if waits:
            return True
        steer = Steer(request_id=message_id, thread=thread_id, message=message_id, wake=wake)
        try:
            await self._workflows.steer(ref.tenant, ref.conversation_id, steer)
        except NotFound:
            await conversations.drop_message(self._pool, ref.tenant, message_id)
            return False
        return True

    # messages to any other agent of the tenant, and events that agents emit

    async def send_to_agent(self, ref: SessionRef, agent_id: str | None, text: str, key: str) -> tuple[str, bool]:
        """The result for the sender, and whether it is an error."""
        target, _ = await self._send_to(ref, agent_id, text, key)
        return f"Sent to the agent (agent_id: {target.thread_id}).", False

    async def ask_agent(self, ref: SessionRef, agent_id: str, text: str, key: str, seconds: float) -> tuple[str, bool]:
        """The reply of the session that received the message."""
        target, message_id = await self._send_to(ref, agent_id, text, key)
        give_up = time.monotonic() + seconds
        while time.monotonic() < give_up:
            taken = await conversations.get_message_state(self._pool, ref.tenant, message_id)
            session = await sessions.get(self._pool, ref.tenant, taken.by) if taken and taken.by else None
            if session is not None and session.status.terminal:
                [outcome] = await mailbox.outcomes_of_sessions(self._pool, ref.tenant, [session.id])
                if outcome.status is not Status.COMPLETED:
                    return f"The agent (agent_id: {target.thread_id}) failed: {outcome.failure_so_far}", True
                return render_page(outcome, 0) if outcome.output else "(no output)", False
            await asyncio.sleep(POLL_S)
        return f"No reply within {seconds:g} seconds. The message was delivered; a reply may still come.", True

    async def _send_to(self, ref: SessionRef, agent_id: str | None, text: str, key: str) -> tuple[AgentAddress, str]:
        own = await sessions.load(self._pool, ref)
        target = await self._find_receiver(ref, own.spawned_by, agent_id)
        if target.thread_id == own.thread_id:
            raise ForModel("That is you: an agent cannot send messages to itself.")
        if target.terminated:
            raise ForModel("That agent, or its conversation, was terminated.")
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
        apart = bool(await channels.find_apart(self._pool, ref.tenant, [message_id]))
        steer = Steer(request_id=message_id, thread=target.thread_id, message=message_id, wake=True, apart=apart)
        await wake_thread(self._pool, self._workflows, ref.tenant, target.conversation_id, steer)
        return target, message_id

    async def _check_mission(self, ref: SessionRef, target: AgentAddress, message_id: str) -> None:
        """A mission that may not run now is not woken by other conversations; what was sent before stays sent."""
        if target.conversation_id == ref.conversation_id or await conversations.has_message(
            self._pool, ref.tenant, message_id
        ):
            return
        hold = await missions.find_wake_hold(self._pool, ref.tenant, target.conversation_id, target.thread_id)
        if hold is not None:
            raise ForModel(f"Nothing was sent, as that agent does not run now: {hold.text}.")

    async def _find_receiver(self, ref: SessionRef, parent: str | None, agent_id: str | None) -> AgentAddress:
        """The agent with this id; without an id the sender's parent, else the agent that people wrote to last."""
        wanted = agent_id or parent
        if wanted is not None:
            found = await threads.find_address(self._pool, ref.tenant, wanted) if is_id(wanted) else None
            if found is None:
                raise ForModel(f"There is no agent {wanted!r}.")
            return found
        recent = await threads.find_recent_foreground(self._pool, ref.tenant, ref.conversation_id)
        if recent is None:
            raise ForModel("no recent foreground agent")
        return recent

    async def emit(self, ref: SessionRef, name: str, data: dict[str, Any], key: str) -> tuple[str, bool]:
        """The answer for the model, and whether it failed."""
        if len(json.dumps(data)) > MAX_DATA_CHARS:
            return f"The data may have {MAX_DATA_CHARS} characters as JSON. Nothing was emitted.", True
        sender = await sessions.load(self._pool, ref)
        event_id = derive_id(ref.session_id, "event", key)
        source = f"agent {sender.agent} {sender.thread_id}"
        text = mark_untrusted(ExternalEvent(id=event_id, type=name, payload=data), source)
        event = NewEvent(source=EMITTED, origin=EMITTED, event_id=event_id, type=name, key=name, text=text)
        emitted = await triggers.emit_event(self._pool, sender, event, PER_HOUR)
        if emitted is None:
            return f"This conversation has emitted {PER_HOUR} events within an hour. Nothing was emitted.", True
        if emitted.answered is not None:  # if this fails, a sweep signals it
            await self._workflows.signal_answer(emitted.answered.session_id, emitted.answered.request_id)
        for message in emitted.messages:
            if message.wake:
                steer = Steer(
                    request_id=message.message_id, thread=message.thread_id, message=message.message_id, wake=True
                )
                await wake_thread(self._pool, self._workflows, ref.tenant, message.conversation_id, steer)
        reached = "" if emitted.receivers is None else f" It reached {format_count(emitted.receivers, 'agent')}."
        return f"Emitted {name}.{reached}", False

    async def subscribe(self, ref: SessionRef, pattern: str, wanted: bool) -> tuple[str, bool]:
        session = await sessions.load(self._pool, ref)
        if not wanted:
            await triggers.unsubscribe(self._pool, session, pattern)
        elif not await triggers.subscribe(self._pool, session, pattern):
            return f"You have subscribed to {MAX_PATTERNS} patterns, as many as you may.", True
        patterns = await triggers.list_patterns(self._pool, session)
        return f"You are subscribed to: {', '.join(patterns) or 'nothing'}.", False

"""Starts sessions: an activity writes their rows, then each is started as a child workflow that outlives this one."""

import asyncio
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError

from domain.conversations.requests import (
    ConversationInput,
    ConversationRef,
    OpenBatch,
    Opened,
    OpenedBatch,
    OpenSession,
    StartSession,
)
from domain.conversations.state import ConversationState, Live, Thread
from domain.sessions.session_state import SessionInput
from domain.wire import session_workflow_id
from workflows import activity_calls
from workflows.session.workflow import Session
from workflows.ui import start_options


class SessionStarter:
    def __init__(self, start: ConversationInput, state: ConversationState) -> None:
        self._start = start
        self._state = state
        self.reload_needed = False  # the store is ahead of the state: a session to start had already been started

    async def start_accepted(self, submission: StartSession) -> None:
        """Start a session whose row exists; a repetition finds it started."""
        session_id = submission.session.ref.session_id
        thread = self._state.threads.setdefault(submission.thread_id, Thread(name=submission.session.agent.name))
        if session_id in thread.queue:
            return
        if submission.queued:
            thread.queue.append(session_id)
            return
        # A conversation that was reopened for this session has loaded its row, where it is already live.
        known = self._state.live.get(session_id)
        await self._start_child(submission.session, known or Live(thread=submission.thread_id))

    async def open_one(self, opening: OpenSession, queue: bool = False) -> Opened:
        """Write one session and start it. With `queue` it waits for the running session of its thread."""
        thread = self._state.threads[opening.thread_id]
        if queue and thread.live is not None:
            opening = opening.model_copy(update={"queued": True})
        [opened] = await self.open_all([opening])
        if queue and opened.busy:  # the store has a running session that is not in the state yet
            opening = opening.model_copy(update={"queued": True})
            [opened] = await self.open_all([opening])
        if opening.queued and opened.refused is None:
            thread.queue.append(opening.session_id)
        return opened

    async def open_all(self, openings: list[OpenSession]) -> list[Opened]:
        batch = OpenBatch(tenant=self._start.tenant, conversation_id=self._start.conversation_id, sessions=openings)
        written = await self._write(batch)
        self.reload_needed = self.reload_needed or any(opened.over for opened in written.sessions)
        await asyncio.gather(
            *(
                self._start_child(
                    opened.start,
                    Live(
                        thread=opening.thread_id,
                        spawned_by=opened.spawned_by,
                        spawner=opening.parent_thread_id,
                        blocking=opened.blocking,
                        delivery=opened.delivery,
                    ),
                )
                for opening, opened in zip(openings, written.sessions, strict=True)
                if opened.start is not None
            )
        )
        return written.sessions

    async def signal(self, session_id: str, name: str, argument: Any) -> None:
        """Signal a session. A session that has just ended cannot receive it; its own post settles what it missed."""
        handle = workflow.get_external_workflow_handle(session_workflow_id(session_id))
        try:
            await handle.signal(name, argument)
        except ApplicationError as error:
            workflow.logger.info("session %s did not receive %s: %s", session_id, name, error.message)

    async def _write(self, batch: OpenBatch) -> OpenedBatch:
        return await activity_calls.open_sessions(batch)

    async def _start_child(self, session: SessionInput, live: Live) -> None:
        session_id = session.ref.session_id
        # Before the await, so that even a very early post of the session finds it.
        self._state.live[session_id] = live
        self._state.threads[live.thread].live = session_id
        try:
            # The start is awaited: a child whose start is only scheduled is lost if this run completes or continues
            # as new in the same workflow task, whatever its policy says. Once started, ABANDON (when this run closes,
            # and when it is cancelled) lets the session outlive it.
            await workflow.start_child_workflow(
                Session.run,
                session,
                id=session_workflow_id(session_id),
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
                cancellation_type=workflow.ChildWorkflowCancellationType.ABANDON,
                **start_options(session, workflow.info().namespace),
            )
        except WorkflowAlreadyStartedError:
            workflow.logger.info("session %s was started before", session_id)
            self.reload_needed = True
            await self._forget_if_ended(session_id, live.thread)

    async def _forget_if_ended(self, session_id: str, thread_id: str) -> None:
        """A session that an earlier run started will post its end here; if it has ended, it posted before this run."""
        rows = await activity_calls.load_conversation(
            ConversationRef(tenant=self._start.tenant, conversation_id=self._start.conversation_id)
        )
        if session_id in rows.live or self._state.live.pop(session_id, None) is None:
            return
        thread = self._state.threads[thread_id]
        thread.live = None if thread.live == session_id else thread.live
        thread.last = session_id

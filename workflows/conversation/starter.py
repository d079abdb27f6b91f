"""Starts sessions: writes them down through an activity, then starts the child workflow that outlives us."""

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
from domain.sessions.session import SessionInput
from workflows import activity_calls as steps
from workflows.appearance import appearance
from workflows.session.workflow import Session


class SessionStarter:
    def __init__(self, start: ConversationInput, state: ConversationState) -> None:
        self._start = start
        self._state = state
        self.behind = False  # a session we were to start was started before: the store knows more than we do

    async def start_accepted(self, submission: StartSession) -> None:
        """A session whose row the API has written; a repeat finds it started."""
        session_id = submission.session.ref.session_id
        thread = self._state.threads.setdefault(submission.thread_id, Thread(name=submission.session.agent.name))
        if session_id in thread.queue:
            return
        if submission.queued:
            thread.queue.append(session_id)
            return
        # a conversation that was reopened for this session has read of it in the store, where it is live already
        known = self._state.live.get(session_id)
        await self._start_child(submission.session, known or Live(thread=submission.thread_id))

    async def open_one(self, opening: OpenSession, queue: bool = False) -> Opened:
        """Write one session down and start it. With `queue` a busy thread keeps it for later."""
        thread = self._state.threads[opening.thread_id]
        if queue and thread.live is not None:
            opening = opening.model_copy(update={"queued": True})
        [opened] = await self.open_all([opening])
        if queue and opened.busy:  # the store knows of one that we were not told of yet
            opening = opening.model_copy(update={"queued": True})
            [opened] = await self.open_all([opening])
        if opening.queued and opened.refused is None:
            thread.queue.append(opening.session_id)
        return opened

    async def open_all(self, openings: list[OpenSession]) -> list[Opened]:
        batch = OpenBatch(tenant=self._start.tenant, conversation_id=self._start.conversation_id, sessions=openings)
        answer = await self._write(batch)
        self.behind = self.behind or any(opened.over for opened in answer.sessions)
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
                for opening, opened in zip(openings, answer.sessions, strict=True)
                if opened.start is not None
            )
        )
        return answer.sessions

    async def tell(self, session_id: str, name: str, message: Any) -> None:
        """Signal a session. One that has just ended cannot hear it: its own last word settles what it missed."""
        handle = workflow.get_external_workflow_handle(f"session/{session_id}")
        try:
            await handle.signal(name, message)
        except ApplicationError as error:
            workflow.logger.info("session %s did not hear %s: %s", session_id, name, error.message)

    async def _write(self, batch: OpenBatch) -> OpenedBatch:
        return await steps.open_sessions(batch)

    async def _start_child(self, session: SessionInput, live: Live) -> None:
        ref = session.ref
        self._state.live[ref.session_id] = live
        self._state.threads[live.thread].live = ref.session_id
        try:
            # ABANDON twice and an awaited start: the session outlives this run whatever becomes of it
            await workflow.start_child_workflow(
                Session.run,
                session,
                id=f"session/{ref.session_id}",
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
                cancellation_type=workflow.ChildWorkflowCancellationType.ABANDON,
                **appearance(session),
            )
        except WorkflowAlreadyStartedError:
            workflow.logger.info("session %s was started before", ref.session_id)
            self.behind = True
            await self._forget_if_ended(ref.session_id, live.thread)

    async def _forget_if_ended(self, session_id: str, thread_id: str) -> None:
        """A session that an earlier run of ours started tells its end by itself; one that has ended said it before."""
        rows = await steps.load_conversation(
            ConversationRef(tenant=self._start.tenant, conversation_id=self._start.conversation_id)
        )
        if session_id in rows.live or self._state.live.pop(session_id, None) is None:
            return
        thread = self._state.threads[thread_id]
        thread.live = None if thread.live == session_id else thread.live
        thread.last = session_id

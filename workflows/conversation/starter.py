"""Starts sessions: an activity writes their rows, then each is started as a child workflow that outlives this one."""

import asyncio
from dataclasses import dataclass
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError

from domain.conversations.requests import (
    ConversationInput,
    ConversationRef,
    ConversationState,
    Live,
    OpenBatch,
    Opened,
    OpenedBatch,
    OpenSession,
    SpawnAnswer,
    SpawnAnswers,
    SpawnChild,
    SpawnRequest,
    StartSession,
    Thread,
)
from domain.conversations.subagents import DelegationTool
from domain.ids import session_workflow_id
from domain.sessions.session import DeliveryMode
from domain.sessions.session_state import SessionInput
from domain.wire import SessionRefusal
from workflows import activity_calls
from workflows.conversation.router import StopChild
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


# Spawning: which children of a step may start, on which thread, and how their outcomes are delivered.


REFUSED: dict[str, str] = {
    SessionRefusal.CANCELLED: "This session was cancelled or has ended; nothing new begins below it.",
    SessionRefusal.TERMINATED: "It was terminated, so that nothing can be started there any more.",
    SessionRefusal.BUDGET_SPENT: "The budget shared with all subagents is spent; nothing was started.",
}


@dataclass(frozen=True)
class SpawnPlan:
    """The sessions to open, and the result for each child if its session opens."""

    openings: list[OpenSession]
    answers: dict[str, SpawnAnswer]


def plan_spawn(state: ConversationState, spawn: SpawnRequest) -> SpawnPlan:
    """Decide which children may start and reserve their threads; a refused child leaves nothing behind."""
    if spawn.deferred is not None and spawn.thread not in state.threads:
        state.threads[spawn.thread] = Thread(**spawn.deferred.model_dump())
    # an unknown one is refused below, because its session cannot be live
    parent = state.threads.get(spawn.thread, Thread())
    own = {child.session_id for child in spawn.children}  # already live if this is a repetition that was forgotten
    active = sum(1 for child, live in state.live.items() if live.spawned_by is not None and child not in own)
    plan = SpawnPlan([], {})
    for child in spawn.children:
        thread_id = _thread_of(state, spawn, child)
        error = _refusal(state, spawn, parent, active + len(plan.openings))
        if error is None and any(opening.thread_id == thread_id for opening in plan.openings):
            error = f"'{child.name}' was just given another task in this very step. Wait for it, or use another name."
        if error is not None:
            plan.answers[child.session_id] = SpawnAnswer(session_id=child.session_id, error=error)
            continue
        if thread_id not in state.threads:
            state.threads[thread_id] = Thread(parent=spawn.thread, name=_thread_name(child), depth=parent.depth + 1)
        # only the root can be fired: a deeper spawner must be woken
        delivery = (
            DeliveryMode.WAKE if parent.parent is not None and child.delivery is DeliveryMode.HOLD else child.delivery
        )
        plan.openings.append(
            OpenSession(
                session_id=child.session_id,
                thread_id=thread_id,
                parent_thread_id=spawn.thread,
                thread_name=_thread_name(child),
                depth=parent.depth + 1,
                session=child.session,
                prompt=child.prompt,
                delivery=delivery,
                deferred=spawn.deferred is not None,
            )
        )
        plan.answers[child.session_id] = SpawnAnswer(session_id=child.session_id, delivery=delivery)
    return plan


def answer_spawn(
    state: ConversationState, spawn: SpawnRequest, plan: SpawnPlan, opened: list[Opened]
) -> tuple[SpawnAnswers, list[StopChild]]:
    """The result for each child, in the order of the request; stop children whose parent has ended in between.

    The store is ahead of the state: a session's end may reach it before the post reaches us.
    """
    names = {child.session_id: child.name for child in spawn.children}
    answers, stops = dict(plan.answers), []
    for session in opened:
        if session.busy is not None:
            error = _still_running(names[session.session_id], session.busy)
            answers[session.session_id] = SpawnAnswer(session_id=session.session_id, error=error)
        elif session.refused is not None:
            error = REFUSED.get(session.refused, f"refused ({session.refused})")
            answers[session.session_id] = SpawnAnswer(session_id=session.session_id, error=error)
        elif session.blocking and spawn.spawned_by not in state.live:
            # The parent's post came while the child was being written, so it could not stop a child it did not know.
            stops.append(StopChild(session.session_id))
    return SpawnAnswers(answers=[answers[child.session_id] for child in spawn.children]), stops


def _thread_of(state: ConversationState, spawn: SpawnRequest, child: SpawnChild) -> str:
    if child.thread is not None:
        return child.thread
    if child.kind is DelegationTool.ASYNC_DELEGATE:
        for thread_id, thread in state.threads.items():
            if thread.parent == spawn.thread and thread.name == child.name:
                return thread_id
    return child.session_id  # a new thread has the id of its first session


_NAMED = (DelegationTool.ASYNC_DELEGATE, DelegationTool.SUBAGENT_CREATE, DelegationTool.SUBAGENT_MESSAGE)


def _thread_name(child: SpawnChild) -> str:
    return child.name if child.kind in _NAMED else child.session_id


def _refusal(state: ConversationState, spawn: SpawnRequest, parent: Thread, active: int) -> str | None:
    if spawn.spawned_by not in state.live and spawn.deferred is None:
        return "The session that asked for it has ended."
    if parent.depth + 1 > spawn.max_depth:
        return f"Subagents may not be nested deeper than {spawn.max_depth}. Do this part yourself."
    if active >= spawn.max_children:
        return f"As many subagents as may are running ({active}). Wait for some of them first."
    return None


def _still_running(name: str, session_id: str) -> str:
    return (
        f"'{name}' is still running (session: {session_id}). "
        "Wait for its outcome, or send it a message with steer_subagent."
    )

"""Conversation: the entity that starts every session of its tree but the first, and routes every outcome.

The API starts the first session directly. This workflow begins with the first decision: a subagent, a message, a fire.

Everything that awaits runs under one lock, so that two requests never see each other's unfinished decisions. A decision
changes the state before its first await, so that no signal can change it in between.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError

from domain import wire
from domain.conversations.requests import (
    ChildrenEnded,
    ClaimOutcomes,
    ConversationInput,
    ConversationRef,
    ConversationState,
    Delivered,
    EndedSession,
    Fire,
    Fired,
    InboxMessage,
    Live,
    OpenBatch,
    Opened,
    OpenedBatch,
    OpenSession,
    PendingOutcome,
    Promote,
    SpawnAnswer,
    SpawnAnswers,
    SpawnChild,
    SpawnRequest,
    StartSession,
    Steer,
    Steered,
    Thread,
    WaitingMessage,
)
from domain.conversations.subagents import DelegationTool
from domain.ids import session_workflow_id
from domain.sessions.session import PARENT_ENDED, DeliveryMode
from domain.sessions.session_state import SessionInput
from domain.wire import SessionRefusal
from workflows import activity_calls
from workflows.conversation.router import (
    Action,
    DeliverOutcome,
    OutcomeRouter,
    Reload,
    Resume,
    SignalEnded,
    StopChild,
    WithdrawMessage,
)
from workflows.session.workflow import Session
from workflows.ui import conversation_details, start_options

Answer = TypeVar("Answer", SpawnAnswers, Fired)


@workflow.defn(name=wire.CONVERSATION)
class Conversation:
    @workflow.init
    def __init__(self, start: ConversationInput) -> None:
        self.start = start
        self.state = start.carried or ConversationState()
        self.starter = SessionStarter(start, self.state)
        self.router = OutcomeRouter(self.state)
        self.actions: deque[Action] = deque()  # decided but not yet carried out
        self.ready = start.carried is not None
        self.lock = asyncio.Lock()
        self.early: list[EndedSession] = []  # posts that came before the state was loaded

    @workflow.run
    async def run(self, start: ConversationInput) -> None:
        """Run while anything is live or waits, then close; the next message starts the workflow again."""
        if start.carried is None:
            await self._load()
        while True:
            await workflow.wait_condition(lambda: self._has_work() or self._closes() or self._renews())
            if self.starter.reload_needed:
                async with self._exclusive():
                    await self._load()
            elif self.actions:
                async with self._exclusive():
                    await self.work_off()
            else:
                # Actions that are added while handlers run do not wait for those handlers.
                await workflow.wait_condition(lambda: workflow.all_handlers_finished() or self._has_work())
                if self._has_work() or not workflow.all_handlers_finished():
                    continue
                if self._closes():
                    return
                if self._renews():
                    carried = self.state.carry_over(workflow.now())
                    workflow.continue_as_new(start.model_copy(update={"carried": carried}))

    # signals and the query

    @workflow.signal(name=wire.POST, description="A session of this conversation has ended; its outcome may wait here.")
    def post(self, ended: EndedSession) -> None:
        if not self.ready:
            self.early.append(ended)
            return
        self.actions.extend(self.router.close_session(ended))
        self._show()

    @workflow.signal(name=wire.RELOAD, description="Read the state from the database again.")
    def reload(self) -> None:
        self.starter.reload_needed = True

    @workflow.signal(name=wire.TERMINATED, description="Close as soon as nothing runs, although outcomes wait.")
    def terminated(self) -> None:
        self.state.terminated = True

    @workflow.query(name=wire.MAILBOX, description="The outcomes that wait for a fire, in order.")
    def mailbox(self) -> list[PendingOutcome]:
        return self.state.pending

    # updates

    @workflow.update(name=wire.SUBMIT, description="Start a session that was accepted and written to the database.")
    async def submit(self, submission: StartSession) -> None:
        async with self._exclusive():
            await self.starter.start_accepted(submission)
            self.actions.extend(self.router.resume_queued(submission.thread_id))

    @workflow.update(name=wire.SPAWN, description="Start the subagents of one step; each gets an id or a refusal.")
    async def spawn(self, spawn: SpawnRequest) -> SpawnAnswers:
        return await self._once(spawn.request_id, SpawnAnswers, lambda: self.spawn_children(spawn))

    @workflow.update(name=wire.CLAIM, description="Consume outcomes by reading them.")
    async def claim(self, claim: ClaimOutcomes) -> None:
        async with self._exclusive():
            # Wait for this before the caller continues: its next model call must not repeat what it has just read.
            await self.carry_out(self.router.withdraw(claim.mail, claim.by))
            await self._record(by=claim.by, mail=claim.mail)

    @workflow.update(name=wire.FIRE, description="Drain the mailbox into one continuation.")
    async def fire(self, fire: Fire) -> Fired:
        return await self._once(fire.request_id, Fired, lambda: self.fire_mailbox(fire))

    @workflow.update(name=wire.STEER, description="Hand a message to the running session of a thread.")
    async def steer(self, steer: Steer) -> Steered:
        async with self._exclusive():
            return await self.steer_thread(steer)

    @workflow.update(name=wire.PROMOTE, description="Let a blocking subagent continue in the background.")
    async def promote(self, promote: Promote) -> None:
        async with self._exclusive():
            live = self.state.live.get(promote.session_id)
            if live is None or not live.blocking or live.spawned_by is None:
                raise _refusal_of(wire.NOT_RUNNING, "No blocking subagent runs by that id.")
            live.blocking = False
            await self._record(promoted=promote.session_id)
            await self.starter.signal(live.spawned_by, wire.PROMOTED, promote)

    async def spawn_children(self, spawn: SpawnRequest) -> SpawnAnswers:
        openings, planned = plan_spawn(self.state, spawn)
        opened = await self.starter.open_all(openings) if openings else []
        answers, stops = answer_spawn(self.state, spawn, planned, opened)
        await self.carry_out(stops)
        return answers

    async def steer_thread(self, steer: Steer) -> Steered:
        await self.work_off()  # the rows that were just read may have the message, and a session that begins with it
        reader = self.router.find_reader(steer.thread, steer.message)  # first, because it may end while it is signalled
        if reader is None and not (steer.wake or self.router.has_received(steer.thread, steer.message)):
            raise _refusal_of(wire.NOT_RUNNING, "Nothing is running there.")
        self.starter.reload_needed |= steer.thread not in self.state.threads  # an idle thread is only in the store
        await self._deliver(steer.thread, WaitingMessage(id=steer.message, apart=steer.apart))
        return Steered(session_id=reader or self.router.find_reader(steer.thread, steer.message) or "")

    async def fire_mailbox(self, fire: Fire) -> Fired:
        self.state.threads.setdefault(self.start.conversation_id, Thread())
        known = [waiting.id for waiting in self.state.pending]
        opening = OpenSession(
            session_id=fire.session_id,
            thread_id=self.start.conversation_id,
            session=fire.session,
            fires=True,
            take=[fire.input] if fire.input else [],
            live_quota=fire.live_quota,
        )
        opened = await self.starter.open_one(opening, queue=fire.queue)
        if opened.start is None and not (fire.queue and opened.refused is None):
            kind = wire.CONVERSATION_BUSY if opened.busy else opened.refused or wire.REFUSED
            raise _refusal_of(kind, "The continuation was refused.", {"session_id": opened.busy})
        self.router.record_fire(opened, known)
        self.actions.extend(self.router.resume_queued(opening.thread_id))
        return Fired(session_id=fire.session_id)

    async def _once(self, request_id: str, kind: type[Answer], answer: Callable[[], Awaitable[Answer]]) -> Answer:
        """Answer a repeated request from memory, also in a later run of this conversation."""
        async with self._exclusive():
            known = self.state.remembered.get(request_id)
            if known is not None and isinstance(known.answer, kind):
                return known.answer
            made = await answer()
            self.state.remember(request_id, made, workflow.now())
            return made

    # actions

    async def work_off(self) -> None:
        """Carry out all planned actions, including those that are added in between."""
        while self.actions:
            await self._act(self.actions.popleft())

    async def carry_out(self, actions: Iterable[Action]) -> None:
        for action in actions:
            await self._act(action)

    async def _act(self, action: Action) -> None:
        match action:
            case StopChild(session_id):
                await self.starter.signal(session_id, wire.STOP, PARENT_ENDED)
            case SignalEnded(session_id):
                await self._signal_ended(session_id, self.router.take_ended(session_id))
            case WithdrawMessage(session_id, message_id):
                await self.starter.signal(session_id, wire.WITHDRAWN, InboxMessage(id=message_id))
            case DeliverOutcome(thread_id, message_id, apart):
                await self._deliver(thread_id, WaitingMessage(id=message_id, outcome=True, apart=apart))
            case Resume(thread_id):
                await self._resume(thread_id)
            case Reload():
                self.starter.reload_needed = True

    async def _deliver(self, thread_id: str, message: WaitingMessage) -> None:
        """Deliver a message to the running session, or begin one with it. One that is read apart waits for its end."""
        if not self.router.receive(thread_id, message):
            return
        if (live := self.router.find_live(thread_id)) is None:
            await self._start_next(thread_id)
        elif not message.apart:
            await self.starter.signal(live, wire.MESSAGE, InboxMessage(id=message.id))

    async def _resume(self, thread_id: str) -> None:
        missed = self.router.find_missed(thread_id)
        if missed is None:
            await self._start_next(thread_id)
            return
        session_id, messages, children = missed
        for message_id in messages:
            await self.starter.signal(session_id, wire.MESSAGE, InboxMessage(id=message_id))
        await self._signal_ended(session_id, children)

    async def _signal_ended(self, session_id: str, children: list[str]) -> None:
        if children:
            await self.starter.signal(session_id, wire.CHILDREN_ENDED, ChildrenEnded(session_ids=children))

    async def _start_next(self, thread_id: str) -> None:
        if (opening := self.router.next_opening(thread_id)) is not None:
            opened = await self.starter.open_one(opening)
            self.actions.extend(self.router.record_opening(opening, opened))

    # state

    @asynccontextmanager
    async def _exclusive(self) -> AsyncIterator[None]:
        """Handle one request at a time, and none before the state is loaded."""
        await workflow.wait_condition(lambda: self.ready)
        async with self.lock:
            yield
        self._show()

    async def _load(self) -> None:
        """Read the state from the store if this run cannot know it: when it begins, and after a reset."""
        self.ready, self.starter.reload_needed = False, False
        ref = ConversationRef(tenant=self.start.tenant, conversation_id=self.start.conversation_id)
        self.actions.extend(self.router.adopt(await activity_calls.load_conversation(ref)))
        self.ready = True
        early, self.early = self.early, []
        for ended in early:
            self.actions.extend(self.router.close_session(ended))
        self._show()

    async def _record(self, by: str | None = None, mail: list[str] | None = None, promoted: str | None = None) -> None:
        tenant, conversation_id = self.start.tenant, self.start.conversation_id
        await activity_calls.record_delivery(
            Delivered(tenant=tenant, conversation_id=conversation_id, by=by, mail=mail or [], promoted=promoted)
        )

    def _show(self) -> None:
        workflow.set_current_details(conversation_details(self.state, workflow.info().namespace))

    def _has_work(self) -> bool:
        return self.starter.reload_needed or bool(self.actions)

    def _closes(self) -> bool:
        waits = self.state.pending or any(thread.queue or thread.inbox for thread in self.state.threads.values())
        return not self.state.live and not self._has_work() and (self.state.terminated or not waits)

    def _renews(self) -> bool:
        info, most = workflow.info(), self.start.renew_after
        return info.is_continue_as_new_suggested() or (most is not None and info.get_current_history_length() >= most)


def _refusal_of(kind: str, message: str, *details: object) -> ApplicationError:
    return ApplicationError(message, *details, type=kind, non_retryable=True)


# Starting sessions: an activity writes their rows, then each is started as a child workflow that outlives this one.


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
        # A subagent that is not known, because Temporal has lost later data: only its row has its parent.
        self.reload_needed |= known is None and submission.session.spawned_by is not None
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

    async def _write(self, batch: OpenBatch) -> OpenedBatch:
        return await activity_calls.open_sessions(batch)

    async def signal(self, session_id: str, name: str, argument: Any) -> None:
        """Signal a session. A session that has just ended cannot receive it; its own post settles what it missed."""
        handle = workflow.get_external_workflow_handle(session_workflow_id(session_id))
        try:
            await handle.signal(name, argument)
        except ApplicationError as error:
            workflow.logger.info("session %s did not receive %s: %s", session_id, name, error.message)

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


def plan_spawn(state: ConversationState, spawn: SpawnRequest) -> tuple[list[OpenSession], dict[str, SpawnAnswer]]:
    """Decide which children may start and reserve their threads; a refused child leaves nothing behind. The sessions to
    open, and the result for each child if its session opens."""
    if spawn.deferred is not None and spawn.thread not in state.threads:
        state.threads[spawn.thread] = Thread(**spawn.deferred.model_dump())
    # an unknown one is refused below, because its session cannot be live
    parent = state.threads.get(spawn.thread, Thread())
    own = {child.session_id for child in spawn.children}  # already live if this is a repetition that was forgotten
    active = sum(1 for child, live in state.live.items() if live.spawned_by is not None and child not in own)
    openings: list[OpenSession] = []
    answers: dict[str, SpawnAnswer] = {}
    for child in spawn.children:
        thread_id = _thread_of(state, spawn, child)
        error = _refusal(state, spawn, parent, active + len(openings))
        if error is None and any(opening.thread_id == thread_id for opening in openings):
            error = f"'{child.name}' was just given another task in this very step. Wait for it, or use another name."
        if error is not None:
            answers[child.session_id] = SpawnAnswer(session_id=child.session_id, error=error)
            continue
        if thread_id not in state.threads:
            state.threads[thread_id] = Thread(parent=spawn.thread, name=_thread_name(child), depth=parent.depth + 1)
        # only the root can be fired: a deeper spawner must be woken
        delivery = (
            DeliveryMode.WAKE if parent.parent is not None and child.delivery is DeliveryMode.HOLD else child.delivery
        )
        openings.append(
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
        answers[child.session_id] = SpawnAnswer(session_id=child.session_id, delivery=delivery)
    return openings, answers


def answer_spawn(
    state: ConversationState, spawn: SpawnRequest, planned: dict[str, SpawnAnswer], opened: list[Opened]
) -> tuple[SpawnAnswers, list[StopChild]]:
    """The result for each child, in the order of the request; stop children whose parent has ended in between.

    The store is ahead of the state: a session's end may reach it before the post reaches us.
    """
    names = {child.session_id: child.name for child in spawn.children}
    answers, stops = dict(planned), []
    for session in opened:
        if session.busy is not None:
            error = (
                f"'{names[session.session_id]}' is still running (session: {session.busy}). "
                "Wait for its outcome, or send it a message with steer_subagent."
            )
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

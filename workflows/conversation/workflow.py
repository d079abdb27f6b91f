"""Conversation: the entity that starts every session of its tree but the first, and decides where each outcome goes.

The first session is started by itself, unless the sweeper has to see to it. This begins when there is something to
decide: a subagent, a further message, a steer, a fire.

All that awaits happens under one lock, so that two requests never see each other's half-made decisions; all state is
changed before the first await of a decision, so that no signal can slip in between.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from pydantic import BaseModel
from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from domain.conversations.requests import (
    ClaimOutcomes,
    ConversationInput,
    ConversationRef,
    Delivered,
    Fire,
    Fired,
    OpenSession,
    Promote,
    SessionDone,
    Spawn,
    SpawnAnswers,
    StartSession,
    Steer,
    Steered,
)
from domain.conversations.state import ConversationState, Thread
from workflows import activity_calls as steps
from workflows.conversation.router import OutcomeRouter
from workflows.conversation.spawning import spawn_children
from workflows.conversation.starter import SessionStarter
from workflows.ui import conversation_details

Answer = TypeVar("Answer", bound=BaseModel)


@workflow.defn(name="Conversation")
class Conversation:
    @workflow.init
    def __init__(self, start: ConversationInput) -> None:
        self.start = start
        self.state = start.carried or ConversationState()
        self.starter = SessionStarter(start, self.state)
        self.mail = OutcomeRouter(start, self.state, self.starter)
        self.ready = start.carried is not None
        self.turn = asyncio.Lock()
        self.early: list[SessionDone] = []  # words that came before the state was known
        self.rejected = 0

    @workflow.run
    async def run(self, start: ConversationInput) -> None:
        """Lives while anything is live or waits, then closes; the next message starts it again."""
        if start.carried is None:
            for submission in start.first:
                await self.starter.start_accepted(submission)
            await self._learn(always=not start.fresh)
        while True:
            await workflow.wait_condition(lambda: self._has_work() or self._closes() or self._renews())
            if self.starter.behind:
                async with self.turn:
                    await self._learn(always=True)
            elif self.mail.todo:
                async with self.turn:
                    await self.mail.work()
            else:
                # what comes up while requests are being answered is not kept waiting for them
                await workflow.wait_condition(lambda: workflow.all_handlers_finished() or self._has_work())
                if self._has_work() or not workflow.all_handlers_finished():
                    continue
                if self._closes():
                    return
                if self._renews():
                    carried = self.state.carried(workflow.now())
                    workflow.continue_as_new(start.model_copy(update={"first": [], "carried": carried}))

    async def _learn(self, always: bool) -> None:
        """Take over what the store knows, where this run cannot know it: after a reopening, and after a reset."""
        self.ready = False
        if always or self.starter.behind:
            self.starter.behind = False
            ref = ConversationRef(tenant=self.start.tenant, conversation_id=self.start.conversation_id)
            self.mail.adopt(await steps.load_conversation(ref))
        self.ready = True
        workflow.set_current_details(conversation_details(self.state))
        early, self.early = self.early, []
        for done in early:
            self.mail.session_done(done)

    def _has_work(self) -> bool:
        return self.starter.behind or bool(self.mail.todo)

    def _closes(self) -> bool:
        waits = self.state.pending or any(thread.queue or thread.inbox for thread in self.state.threads.values())
        idle = not self.state.live and not self._has_work()
        return idle and (self.state.terminated or not waits)

    def _renews(self) -> bool:
        return workflow.info().is_continue_as_new_suggested()

    @workflow.update(description="Start a session that was accepted and written down.")
    async def submit(self, submission: StartSession) -> None:
        async with self._in_turn():
            await self.starter.start_accepted(submission)
            self.mail.look(submission.thread_id)

    @workflow.update(description="Start the subagents of one step; each gets an id or a reason why not.")
    async def spawn(self, spawn: Spawn) -> SpawnAnswers:
        return await self._once(spawn.request_id, SpawnAnswers, lambda: spawn_children(self.state, self.starter, spawn))

    @workflow.update(description="Consume outcomes by reading them.")
    async def claim(self, claim: ClaimOutcomes) -> None:
        async with self._in_turn():
            await self.mail.withdraw(claim.mail, claim.by)
            await steps.record_delivery(
                Delivered(
                    tenant=self.start.tenant,
                    conversation_id=self.start.conversation_id,
                    by=claim.by,
                    mail=claim.mail,
                )
            )

    @workflow.update(description="Drain the mailbox into one continuation.")
    async def fire(self, fire: Fire) -> Fired:
        return await self._once(fire.request_id, Fired, lambda: self._fire(fire))

    @workflow.update(description="Hand a message to the session at work on a thread.")
    async def steer(self, steer: Steer) -> Steered:
        async with self._in_turn():
            return await self._steer(steer)

    @workflow.update(description="Let a blocking subagent go on in the background.")
    async def promote(self, promote: Promote) -> None:
        async with self._in_turn():
            live = self.state.live.get(promote.session_id)
            if live is None or not live.blocking or live.spawned_by is None:
                raise ApplicationError("No blocking subagent runs by that id.", type="not_running", non_retryable=True)
            live.blocking = False
            await steps.record_delivery(
                Delivered(
                    tenant=self.start.tenant,
                    conversation_id=self.start.conversation_id,
                    promoted=promote.session_id,
                )
            )
            await self.starter.tell(live.spawned_by, "promoted", promote)

    @workflow.query(description="The ids of the outcomes that wait for a fire, in order.")
    def mailbox(self) -> list[str]:
        return list(self.state.pending)

    @workflow.signal(dynamic=True, description="session_done, post: a session has ended; an outcome waits.")
    def on_signal(self, name: str, args: Sequence[RawValue]) -> None:
        # one handler that cannot raise: a malformed signal must never wedge the conversation
        try:
            if name == "terminated":
                self.state.terminated = True
                return
            if name == "look":
                self.starter.behind = True
                return
            if name not in ("session_done", "post"):
                raise ValueError(name)
            done = workflow.payload_converter().from_payload(args[0].payload, SessionDone)
        except Exception:
            self.rejected += 1
            workflow.logger.warning("signal %s was malformed or is unknown", name)
            return
        if self.ready:
            self.mail.session_done(done)
        else:
            self.early.append(done)

    async def _steer(self, steer: Steer) -> Steered:
        thread = self.state.threads.get(steer.thread)
        live = thread.live if thread is not None else None  # it may end while it is told
        if live is None:
            raise ApplicationError("Nothing is running there.", type="not_running", non_retryable=True)
        await self.mail.deliver(steer.thread, steer.message)
        return Steered(session_id=live)

    async def _fire(self, fire: Fire) -> Fired:
        self.state.threads.setdefault(self.start.conversation_id, Thread())
        batch = self.mail.pending(fire.pending)
        if not batch:
            raise ApplicationError("The mailbox is empty.", type="mailbox_empty", non_retryable=True)
        opening = OpenSession(
            session_id=fire.session_id,
            thread_id=self.start.conversation_id,
            document=fire.document,
            mail=batch,
            take=[fire.input] if fire.input else [],
            live_quota=fire.live_quota,
        )
        opened = await self.starter.open_one(opening, queue=fire.queue)
        if opened.start is None and not (fire.queue and opened.refused is None):
            kind = "conversation_busy" if opened.busy else opened.refused or "refused"
            raise ApplicationError(
                "The continuation was refused.", {"session_id": opened.busy}, type=kind, non_retryable=True
            )
        self.mail.take(opened.mail, fire.session_id, batch)
        if opened.start is None:
            self.state.queued_mail[fire.session_id] = opened.mail
        return Fired(session_id=fire.session_id)

    async def _once(self, request_id: str, kind: type[Answer], deed: Callable[[], Awaitable[Answer]]) -> Answer:
        """A repeated request is answered from memory, also in a later run of this conversation."""
        async with self._in_turn():
            if (known := self.state.answers.get(request_id)) is not None:
                return kind.model_validate_json(known)
            answer = await deed()
            self.state.remember(request_id, answer.model_dump_json(), workflow.now())
            return answer

    def _in_turn(self) -> "InTurn":
        return InTurn(self)


class InTurn:
    """One request at a time, and none before the state is loaded."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation

    async def __aenter__(self) -> None:
        await workflow.wait_condition(lambda: self._conversation.ready)
        await self._conversation.turn.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._conversation.turn.release()

"""The beginning of sessions: open_sessions writes them for the conversation that decided on them, each id once;
restore_session gives one to a run that does not know its state; and the records of a conversation."""

import logging
from dataclasses import dataclass
from datetime import timedelta

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from activities.attempt import check_current, with_heartbeats
from domain import events as ev
from domain import wire
from domain.conversations.mailbox import (
    Outcome,
    caller_block,
    list_attachments,
    manifest_of,
    render_outcomes,
    rewrite_paths,
)
from domain.conversations.requests import (
    ConversationRef,
    ConversationState,
    Delivered,
    InboxKind,
    Nothing,
    OpenBatch,
    Opened,
    OpenedBatch,
    OpenSession,
)
from domain.conversations.subagents import first_message
from domain.errors import Invalid
from domain.events import EventRow
from domain.ids import derive_id
from domain.messages import calls_of
from domain.missions import Hold
from domain.sessions.new_session import NewSession
from domain.sessions.session import DeliveryMode, SessionRef, Status, preview
from domain.sessions.session_state import SessionState
from domain.sessions.writes import Acceptance, NewMessage, QueuedBegin
from domain.task import parts_of
from store import (
    channels,
    conversation_state,
    conversations,
    mailbox,
    messages,
    missions,
    runs,
    sessions,
    threads,
    variables,
    workspaces,
)
from store.agents import UnreadableAgent
from store.database import Pool
from store.sessions import SessionRow
from store.variables import SharedVariables

log = logging.getLogger("errand.worker")


@dataclass
class OpenSessions:
    _pool: Pool
    _client: Client
    _shared: SharedVariables

    @activity.defn(name="open_sessions")
    @with_heartbeats
    async def open_sessions(self, batch: OpenBatch) -> OpenedBatch:
        """Open all sessions in one transaction, because the children of one step may be many."""
        known = await sessions.by_ids(self._pool, batch.tenant, [opening.session_id for opening in batch.sessions])
        answers: dict[str, Opened] = {}
        new: list[tuple[OpenSession, Acceptance]] = []
        for opening in batch.sessions:
            if opening.session_id in known:
                answers[opening.session_id] = await self._open_again(batch, opening)
            elif (acceptance := await self._plan_acceptance(batch, opening)) is None:
                answers[opening.session_id] = Opened(session_id=opening.session_id, refused=wire.MAILBOX_EMPTY)
            else:
                new.append((opening, acceptance))
        answers |= await self._accept(batch, new) if new else {}
        if below := [opening.thread_id for opening in batch.sessions if opening.parent_thread_id is not None]:
            await variables.renew_threads(self._pool, batch.tenant, batch.conversation_id, below)
        return OpenedBatch(sessions=[answers[opening.session_id] for opening in batch.sessions])

    async def _open_again(self, batch: OpenBatch, opening: OpenSession) -> Opened:
        """Begin the first session of a queue, unless a risk has paused its mission: then it waits until that is
        resumed. The rows decide which one is the first: the conversation may not know it yet, or know it only since
        later ones. If it was opened before, return its row."""
        busy, session_id = None, opening.session_id
        if opening.session is None and not await self._is_held(batch, opening):
            await self._drop_delivered(batch, opening)
            async with self._pool.acquire() as connection, connection.transaction():
                session_id = await sessions.first_queued(connection, batch.tenant, session_id)
                begin = QueuedBegin(tenant=batch.tenant, session_id=session_id, take=opening.take)
                busy = await sessions.begin_queued(connection, begin)
                if busy is None:
                    await sessions.enter_queued_files(connection, batch.tenant, session_id)
        session = await sessions.get(self._pool, batch.tenant, busy or session_id)
        assert session is not None
        # Without messages left to take, one that has not begun is the first: an earlier attempt has made it live and
        # died. A second start of it is refused.
        if busy not in (None, session_id) and (session.status is not Status.SUBMITTED or opening.take):
            return Opened(session_id=session_id, busy=busy)
        return _answer_opened(session, await mailbox.find_delivered_to(self._pool, session.ref))

    async def _is_held(self, batch: OpenBatch, opening: OpenSession) -> bool:
        if opening.parent_thread_id is not None:  # it belongs to a run that has begun
            return False
        mission = await missions.of_conversation(self._pool, batch.tenant, batch.conversation_id)
        return mission is not None and mission.paused_by_risk

    async def _plan_acceptance(self, batch: OpenBatch, opening: OpenSession) -> Acceptance | None:
        """The acceptance to write; None if nothing is left to open it, or it waits for its mission's next run."""
        fired: dict[str, Outcome] = {}
        if opening.session is None:
            await self._drop_delivered(batch, opening)
            if not opening.take:
                return None
        elif opening.fires:
            fired = await mailbox.outcomes_held(self._pool, batch.tenant, batch.conversation_id)
            opening.mail = list(fired)
            if not fired:
                return None
        budget = None
        if opening.prompt is None:  # subagents use what the session has that starts them
            new_run = opening.session is None and opening.parent_thread_id is None  # a fire was admitted by the API
            where = batch.tenant, batch.conversation_id
            admitted = await missions.admit_wake(self._pool, *where, opening.take, new_run=new_run)
            if isinstance(admitted, Hold):
                return None
            budget = admitted
        if opening.parent_thread_id is not None and opening.thread_id != opening.session_id:
            # A deeper thread cannot be fired, so mail that its last session did not commit opens the next one.
            left = await mailbox.find_given_back(self._pool, batch.tenant, batch.conversation_id, opening.thread_id)
            taken = set(opening.take)
            left = [one for one in left if one not in taken]
            opening.take, opening.mail = [*left, *opening.take], [*left, *(opening.mail or [])]
        texts = [await conversations.message_text(self._pool, batch.tenant, one) for one in opening.take if fired]
        session = await self._choose_session(batch, opening, texts)
        files = manifest_of(opening.prompt.attachments) if opening.prompt else {}
        # it exists; the files must be there before the message names them
        if files and session.workspace_id is not None:
            await workspaces.update(self._pool, batch.tenant, session.workspace_id, lambda known: {**known, **files})
        ref = SessionRef(tenant=batch.tenant, session_id=opening.session_id, conversation_id=batch.conversation_id)
        return Acceptance(
            session=session.place(ref, thread_id=opening.thread_id, depth=opening.depth, delivery=opening.delivery),
            parent_thread_id=opening.parent_thread_id,
            thread_name=opening.thread_name or None,
            inbox=await self._build_inbox(batch, opening, list(fired.values()), texts),
            live_quota=opening.live_quota,
            take=opening.take if opening.parent_thread_id or opening.session is None else [],
            mail=opening.mail or [],
            queue=opening.queued,
            spawns=opening.prompt is not None,
            budget=budget,
            deferred=opening.deferred,
            manifest=files if session.workspace_id is None else {},
        )

    async def _accept(self, batch: OpenBatch, new: list[tuple[OpenSession, Acceptance]]) -> dict[str, Opened]:
        accepted = await sessions.accept_all(self._pool, [acceptance for _, acceptance in new])
        answers: dict[str, Opened] = {}
        for (opening, _), answer in zip(new, accepted, strict=True):
            session_id = opening.session_id
            if answer.session is not None:
                answers[session_id] = _answer_opened(answer.session, opening.mail or [])
            else:
                answers[session_id] = Opened(session_id=session_id, refused=answer.refused, busy=answer.busy)
                if opening.session is None and answer.busy is None:  # nobody waits for this answer
                    log.warning("thread %s cannot be woken: %s", opening.thread_id, answer.refused)
        return answers

    async def _drop_delivered(self, batch: OpenBatch, opening: OpenSession) -> None:
        """Leave out of an opening the messages that were consumed by now; the rows decide."""
        wanted = set(opening.mail or [])
        opening.mail = await mailbox.find_undelivered(self._pool, batch.tenant, list(wanted))
        others = [taken for taken in opening.take if taken not in wanted]
        there = {*opening.mail, *await conversations.find_untaken(self._pool, batch.tenant, others)}
        opening.take = [taken for taken in opening.take if taken in there]

    async def _choose_session(self, batch: OpenBatch, opening: OpenSession, texts: list[str]) -> NewSession:
        """The creator's settings, or for a woken thread those of its newest session. The texts of a fire are read here,
        because they are not part of the history."""
        if opening.session is None:
            before = await sessions.newest_of_thread(self._pool, batch.tenant, opening.thread_id)
            assert before is not None
            opening.depth = before.depth
            session = NewSession.continuing(before, before.handed_to)
            # people may have written in another thread of their channel since they asked for this work
            work = await channels.thread_of_work(self._pool, batch.tenant, opening.thread_id, opening.take)
            if work is not None and (work.thread or "channel" in session.spec):
                session = session.model_copy(update={"spec": {**session.spec, "channel": {"thread": work.thread}}})
            try:
                return await self._shared.renew(self._pool, batch.tenant, session)
            except (Invalid, UnreadableAgent) as error:  # its messages must not be lost with it
                log.warning("thread %s keeps the values that it had: %s", opening.thread_id, error.detail)
                return session
        if not texts:
            return opening.session
        return opening.session.model_copy(update={"spec": {**opening.session.spec, "input": "\n\n".join(texts)}})

    async def _build_inbox(
        self, batch: OpenBatch, opening: OpenSession, fired: list[Outcome], texts: list[str]
    ) -> list[NewMessage]:
        """The message that opens the session: a prompt from a tool call, or the rendered mailbox."""
        if opening.prompt is not None:
            [node] = await messages.path(self._pool, batch.tenant, opening.prompt.node, limit=1)
            arguments = calls_of(node)[opening.prompt.index].arguments
            if opening.prompt.within is not None:
                arguments = arguments[opening.prompt.within]
            files = opening.prompt.attachments
            text = first_message(rewrite_paths(arguments, files), opening.prompt.field)
            text = list_attachments(text, [file.path for file in files])
            return [_build_message(opening, [text], author=node.author, kind=opening.prompt.kind)]
        if fired:
            blocks = [render_outcomes(fired)]
            if texts:
                blocks.append(caller_block("\n\n".join(texts)))
            return [_build_message(opening, blocks, author="mailbox")]
        return []

    # a run that does not know its state

    @activity.defn(name="restore_session")
    @with_heartbeats
    async def restore_session(self, ref: SessionRef) -> SessionState:
        before = await sessions.load(self._pool, ref)
        # Checked between reading the row and taking it over: by then a newer run would have changed the row.
        await check_current(self._client)
        holder = runs.Holder(tenant=ref.tenant, session_id=ref.session_id, run_id=before.run_id)
        if not await runs.take_over(self._pool, holder, activity.info().workflow_run_id or ""):
            raise ApplicationError(
                "Another run took this session.", type=wire.SUPERSEDED, next_retry_delay=timedelta(seconds=1)
            )
        return await runs.state(self._pool, await sessions.load(self._pool, ref))

    # the records of a conversation

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
            await threads.promote_child(self._pool, delivered.tenant, delivered.promoted)
        return Nothing()

    @activity.defn(name="load_conversation")
    @with_heartbeats
    async def load_conversation(self, ref: ConversationRef) -> ConversationState:
        return await conversation_state.load_state(self._pool, ref.tenant, ref.conversation_id)


def _answer_opened(session: SessionRow, mail: list[str]) -> Opened:
    if not session.live:
        return Opened(session_id=session.id, mail=mail, over=session.status.terminal)
    return Opened(
        session_id=session.id,
        start=session.workflow_input(),
        spawned_by=session.spawned_by,
        blocking=session.blocking,
        delivery=session.delivery or DeliveryMode.HOLD,
        mail=mail,
    )


def _build_message(opening: OpenSession, texts: list[str], author: str, kind: InboxKind = InboxKind.USER) -> NewMessage:
    return NewMessage(
        kind=kind,
        id=derive_id(opening.session_id, "opening"),
        author=preview(author, 100),
        parts=parts_of(*texts),
    )

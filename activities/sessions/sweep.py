"""sweep: passes on what requests have written but could not send, closes rows whose workflow ended without writing an
ending, removes content whose retention is over, and deletes the pieces of texts of ended sessions."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

from pydantic import BaseModel
from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from activities.attempt import with_heartbeats
from activities.delegation.spawn import start_deferred
from activities.notifications.dispatcher import Dispatcher
from activities.schedules.sync import ScheduleSync, one_by_one
from activities.sessions.finish import FinishSession
from activities.workspaces import Workspaces
from domain.ids import new_id, session_workflow_id
from domain.sessions.session import Finish, Reason, StopRequest
from store import (
    addresses,
    audit,
    conversation_state,
    conversations,
    events,
    idempotency,
    input_requests,
    notices,
    notifications,
    retention,
    schedules,
    sessions,
    triggers,
    variables,
    workers,
)
from store.database import Pool
from workflows.client import WorkflowClient

log = logging.getLogger("errand.worker")

AT_ONCE = 10  # sessions checked at the same time, so that one that does not answer cannot delay the others
FORGOTTEN_AT_ONCE = 100  # sessions whose content is removed in one sweep
PIECES_AFTER = timedelta(minutes=1)  # by then most readers have seen the end of a session
PIECES_AT_ONCE = 20  # sessions
PIECES_SECONDS = 10.0  # of one sweep; the next continues
DESCRIBE_WITHIN = timedelta(seconds=5)
TIDY_SECONDS = 600.0
SILENT_SECONDS = 20.0  # a session that wrote something more recently is not checked
STARTING_SECONDS = 3.0  # by then the process that accepted a session has started it or failed to
WATCH_SECONDS = 2.0  # between two looks of a worker for what requests left
MOST_SENT = 10_000  # signals that are remembered
NOTICE_DAYS = 30  # time in which the feed can be resumed and deliveries can be repeated


class Swept(BaseModel):
    looked_at: int = 0
    started: int = 0
    stopped: int = 0
    lost: int = 0
    removed: int = 0  # conversations whose retention is over
    trimmed: int = 0  # sessions without pieces of texts now


class Sweep:
    def __init__(
        self,
        pool: Pool,
        client: Client,
        conversations_client: WorkflowClient,
        finish: FinishSession,
        workspaces: Workspaces,
        dispatcher: Dispatcher,
        schedule_sync: ScheduleSync,
    ) -> None:
        self._pool = pool
        self._client = client
        self._conversations = conversations_client
        self._finish = finish
        self._workspaces = workspaces
        self._tidied = 0.0
        self._sent: set[str] = set()  # signals that this worker has sent
        self._dispatcher = dispatcher
        self._schedules = schedule_sync

    async def look(self, swept: Swept) -> None:
        """Check that every unsettled session runs. A new worker does this at once, before the first regular sweep."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(session: sessions.SessionRow) -> None:
            async with gate:
                await self._look_at(session, swept)

        found = await sessions.find_unsettled(self._pool, SILENT_SECONDS, STARTING_SECONDS)
        outcomes = await asyncio.gather(*(one(session) for session in found), return_exceptions=True)
        failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if failed:  # a session that cannot be repaired must not block the others
            log.warning("%d of %d sessions could not be looked at: %r", len(failed), len(found), failed[0])
        # each that fails is tried again by the next sweep, and none waits for another
        await one_by_one("messages", await conversations.find_unsignalled(self._pool), lambda one: self._signal(*one))
        unstarted = {one.id: one for one in await variables.find_unstarted(self._pool, STARTING_SECONDS)}
        await one_by_one(
            "subagents", unstarted, lambda one: start_deferred(self._pool, self._conversations, unstarted[one])
        )
        stranded = await conversation_state.find_stranded(self._pool, SILENT_SECONDS)
        await one_by_one("conversations", stranded, lambda one: self._conversations.reopen(*one))
        await one_by_one("ends", await conversations.find_unclosed(self._pool), self._close_conversation)
        if failed and len(failed) == len(found):
            raise failed[0]

    async def watch(self) -> None:
        """Look at everything when a worker starts, then, until cancelled, every few seconds at what requests left. The
        regular sweep comes too late for a caller who waits."""
        swept = Swept()
        try:
            await self.look(swept)
        except Exception as error:  # the sweeper will try again
            log.warning("the first sweep failed (%s)", type(error).__name__)
        if swept.started:
            log.info("started %d sessions that had waited for a worker", swept.started)
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                await self._pass_on(swept)
            except Exception as error:  # Temporal may be unreachable; the next look begins with something else
                log.info("a look at what waits failed (%s)", type(error).__name__)

    async def _pass_on(self, swept: Swept) -> None:
        """Pass on what requests have written and could not send, because Temporal was unreachable or their process
        died: a start, a stop, an answer, a message, a schedule. What fails here the sweep repeats."""
        for session in await sessions.find_unstarted(self._pool, STARTING_SECONDS):
            await self._look_at(session, swept)
        for tenant, session_id, what in await sessions.find_unheard(self._pool, STARTING_SECONDS):
            # once: a session may take its time to stop, and each signal is an event in its history
            if self._is_news(signal := f"{session_id}/{what}"):
                if (unheard := await sessions.get(self._pool, tenant, session_id)) is not None:
                    await self._look_at(unheard, swept)
                self._sent.add(signal)
        for message in await conversations.find_unsignalled(self._pool, limit=20):
            await self._signal(*message)
        for schedule in await schedules.find_unsynced(self._pool, limit=20):
            await self._schedules.put(schedule)

    def _is_news(self, signal: str) -> bool:
        """Whether this worker has not sent this signal yet. It forgets, since a repeated signal is harmless."""
        if len(self._sent) >= MOST_SENT:
            self._sent.clear()
        return signal not in self._sent

    @activity.defn(name="sweep")
    @with_heartbeats
    async def sweep(self) -> Swept:
        swept = Swept()
        await workers.forget_stale(self._pool)
        await idempotency.forget_old(self._pool)
        await idempotency.forget_old_locks(self._pool)
        failed: Exception | None = None
        try:
            await self.look(swept)
        except Exception as error:  # a failed check must not stop the rest
            failed = error
        await self._tidy(swept)
        if failed is not None:
            raise failed
        return swept

    async def _signal(self, tenant: str, conversation_id: str, message_id: str) -> None:
        await self._conversations.reopen(tenant, conversation_id, reload=True)
        await conversations.mark_signalled(self._pool, tenant, message_id)

    async def _close_conversation(self, conversation_id: str) -> None:
        if self._is_news(conversation_id) and await self._conversations.signal_termination(conversation_id):
            self._sent.add(conversation_id)

    async def _tidy(self, swept: Swept) -> None:
        jobs: dict[str, Callable[[], Awaitable[object]]] = {
            "content": lambda: self._forget(swept),
            "audit": lambda: audit.seal(self._pool),
            "old deliveries": lambda: notifications.forget_old_deliveries(self._pool, NOTICE_DAYS),
            "old notices": lambda: notices.forget_old(self._pool, NOTICE_DAYS),
            "old messages": lambda: addresses.forget_old(self._pool, NOTICE_DAYS),
            "old events": lambda: triggers.forget_old_events(self._pool, NOTICE_DAYS),
            "notices": self._dispatcher.repair,
            "schedules": self._schedules.repair,
            "pieces": lambda: self._delete_pieces(swept),  # the last, because it may take some time
        }
        if failed := await one_by_one("sweep", jobs, lambda job: jobs[job]()):
            raise failed[0]

    async def _look_at(self, session: sessions.SessionRow, swept: Swept) -> None:
        swept.looked_at += 1
        running = await self._running(session.id)
        if running is None:
            # It was accepted, but Temporal does not know it. The same id makes a second start harmless.
            swept.started += await self._start(session)
        elif not running:
            await self._close(session)
            swept.lost += 1
        elif session.cancel_requested is None:
            await self._raise_limits(session)
            for request_id in await input_requests.find_unheard(self._pool, session.tenant, session.id):
                # the answer was given while Temporal was unreachable
                await self._conversations.signal_answer(session.id, request_id)
        else:
            stop = session.cancel_requested
            request = StopRequest(reason=stop.reason, by=stop.by, note=stop.note, grace_ms=stop.grace_ms)
            swept.stopped += await self._conversations.stop(session.id, request)

    async def _raise_limits(self, session: sessions.SessionRow) -> None:
        """Signal raised limits, usually once for each raise: we cannot see whether the API's own signal was lost. A
        step reads the row, but a session that waits would reach its old deadline without the signal."""
        if not session.limits.raised or not self._is_news(signal := f"{session.id}/{session.limits.model_dump_json()}"):
            return
        if await self._conversations.signal_limits(session.id, session.limits):
            self._sent.add(signal)

    async def _forget(self, swept: Swept) -> None:
        """Remove content whose retention is over. The next sweep finds what is left."""
        for tenant, conversation_id in await retention.due(self._pool, FORGOTTEN_AT_ONCE):
            swept.removed += await retention.remove_content(self._pool, tenant, conversation_id)
        await retention.drop_loose_bytes(self._pool)
        if swept.removed or time.monotonic() - self._tidied > TIDY_SECONDS:
            # every worker sweeps from time to time, and each has its own directories
            await self._workspaces.forget()
            self._tidied = time.monotonic()

    async def _delete_pieces(self, swept: Swept) -> None:
        until, found = time.monotonic() + PIECES_SECONDS, PIECES_AT_ONCE
        while found == PIECES_AT_ONCE and time.monotonic() < until:
            found = await events.delete_pieces(self._pool, PIECES_AFTER, PIECES_AT_ONCE)
            swept.trimmed += found

    async def _start(self, session: sessions.SessionRow) -> bool:
        """Ask its conversation to start the session, even a root session: the conversation may already be open because
        of a later message, and must know which sessions begin. A session that was running is restored by its first
        activity."""
        # A new id, because an open conversation answers a repeated update from memory and may have had this one before.
        request_id = f"{session.id}/{new_id()}"
        return await self._conversations.submit(
            session.workflow_input(), request_id, session.thread_id, queued=not session.live
        )

    async def _running(self, session_id: str) -> bool | None:
        try:
            description = await self._client.get_workflow_handle(session_workflow_id(session_id)).describe(
                rpc_timeout=DESCRIBE_WITHIN
            )
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            raise
        return description.status is WorkflowExecutionStatus.RUNNING

    async def _close(self, session: sessions.SessionRow) -> None:
        """End a session whose workflow is gone without an ending: it was terminated from outside, or timed out."""
        await self._finish.finish_session(
            Finish(
                ref=session.ref,
                agent=session.agent_ref,
                reason=Reason.LOST,
                head=session.head,
                step=session.step,
                version=session.version + 1,
                usage=session.usage,
                error_type="lost",
                error="The session's workflow ended without recording an ending; it was stopped from outside.",
                spawned_by=session.spawned_by,
            )
        )

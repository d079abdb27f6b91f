"""What every worker does beside its work: it passes on what requests have written but could not send. One of them also
sweeps twice a minute: it closes rows whose workflow ended without writing an ending, removes content whose retention is
over, and deletes the pieces of texts of ended sessions. All of it follows from the rows; a repetition is harmless."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TypeVar

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from activities.delegation.spawn import start_deferred
from activities.events import EventWriter
from activities.model.reply import Contexts
from activities.notifications.dispatcher import Dispatcher
from activities.sessions.finish import FinishSession
from activities.workspaces import Workspaces
from domain.errors import Unavailable
from domain.ids import new_id, session_workflow_id
from domain.schedules import Schedule
from domain.sessions.session import PARENT_ENDED, Finish, Reason, RecordedStop, Scope, StopRequest
from store import (
    addresses,
    audit,
    conversation_state,
    conversations,
    events,
    files,
    idempotency,
    input_requests,
    missions,
    notices,
    notifications,
    schedule_runs,
    schedules,
    sessions,
    triggers,
    variables,
    workers,
)
from store.database import Pool
from workflows.client import WorkflowClient
from workflows.schedules import ScheduleClient

log = logging.getLogger("errand.worker")
Item = TypeVar("Item")

AT_ONCE = 10  # sessions checked at the same time, so that one that does not answer cannot delay the others
FORGOTTEN_AT_ONCE = 100  # sessions whose content is removed in one sweep
PIECES_AFTER = timedelta(minutes=1)  # by then most readers have seen the end of a session
PIECES_AT_ONCE = 20  # sessions
PIECES_SECONDS = 10.0  # of one sweep; the next continues
DESCRIBE_WITHIN = timedelta(seconds=5)
TIDY_SECONDS = 600.0
COMPARE_SECONDS = 600.0  # how often all schedules are compared with those of Temporal
SILENT_SECONDS = 20.0  # a session that wrote something more recently is not checked
STARTING_SECONDS = 3.0  # by then the process that accepted a session has started it or failed to
WATCH_SECONDS = 2.0  # between two looks of a worker for what requests left
SWEEP_SECONDS = 30.0  # between the beginnings of two sweeps, whichever workers make them
SWEEP_WITHIN = 300.0
MOST_SENT = 10_000  # signals that are remembered
NOTICE_DAYS = 30  # time in which the feed can be resumed and deliveries can be repeated


class Sweep:
    def __init__(
        self,
        pool: Pool,
        client: Client,
        task_queue: str,
        events: EventWriter,
        workspaces: Workspaces,
        dispatcher: Dispatcher,
    ) -> None:
        self._pool = pool
        self._client = client
        self._workflows = WorkflowClient(client, task_queue)
        self._finish = FinishSession(pool, self._workflows, events, Contexts(pool))
        self._workspaces = workspaces
        self._sent: set[str] = set()  # signals that this worker has sent
        self._dispatcher = dispatcher
        self._schedules = ScheduleSync(pool, ScheduleClient(client, task_queue))

    async def watch(self, worker_id: str) -> None:
        """Look at everything when a worker starts; besides, until cancelled, every few seconds at what requests left,
        for which a caller may wait, and now and then sweep. None of it waits for the others."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look_first())
            group.create_task(_repeat("a look at what waits", self._pass_on))
            group.create_task(_repeat("a sweep", partial(self._sweep_in_turn, worker_id)))
            group.create_task(_repeat("the removal of folders", self._forget_folders))

    async def _look_first(self) -> None:
        try:
            if started := await self._look():
                log.info("started %d sessions that had waited for a worker", started)
        except Exception as error:  # the next sweep tries again
            log.warning("the first look failed: %r", error)

    async def _sweep_in_turn(self, worker_id: str) -> None:
        """Sweep if no worker has lately; one that dies in the middle leaves the rest to the next."""
        if await workers.begin_sweep(self._pool, worker_id, SWEEP_SECONDS):
            async with asyncio.timeout(SWEEP_WITHIN):
                await self.sweep()

    async def _forget_folders(self) -> None:
        """Each worker has its own. A large one, or one in use, takes its time."""
        await self._workspaces.forget()
        await asyncio.sleep(TIDY_SECONDS)

    async def sweep(self) -> None:
        failed: Exception | None = None
        try:
            await self._look()
        except Exception as error:  # a failed look must not stop the rest
            failed = error
        await self._tidy()
        if failed is not None:
            raise failed

    async def _look(self) -> int:
        """Check that every unsettled session runs; how many were started."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(session: sessions.SessionRow) -> bool:
            async with gate:
                return await self._look_at(session)

        found = await sessions.find_unsettled(self._pool, SILENT_SECONDS, STARTING_SECONDS)
        outcomes = await asyncio.gather(*(one(session) for session in found), return_exceptions=True)
        failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if failed:  # a session that cannot be repaired must not block the others
            log.warning("%d of %d sessions could not be looked at: %r", len(failed), len(found), failed[0])
        # each that fails is tried again by the next sweep, and none waits for another
        await one_by_one("messages", await conversations.find_unsignalled(self._pool), lambda one: self._signal(*one))
        unstarted = {one.id: one for one in await variables.find_unstarted(self._pool, STARTING_SECONDS)}
        await one_by_one(
            "subagents", unstarted, lambda one: start_deferred(self._pool, self._workflows, unstarted[one])
        )
        stranded = await conversation_state.find_stranded(self._pool, SILENT_SECONDS)
        await one_by_one("conversations", stranded, lambda one: self._workflows.reopen(*one))
        await one_by_one("ends", await conversations.find_unclosed(self._pool), self._close_conversation)
        orphans = {one.id: one for one in await sessions.find_orphaned(self._pool, SILENT_SECONDS)}
        await one_by_one("subagents without their parent", orphans, lambda one: self._stop_orphan(orphans[one]))
        if failed and len(failed) == len(found):
            raise failed[0]
        return outcomes.count(True)

    async def _pass_on(self) -> None:
        """Pass on what requests have written and could not send, because Temporal was unreachable or their process
        died: a start, a stop, an answer, a message, a schedule. What fails here the sweep repeats."""
        unstarted = {one.id: one for one in await sessions.find_unstarted(self._pool, STARTING_SECONDS)}
        await one_by_one("sessions", unstarted, lambda one: self._look_at(unstarted[one]))
        unheard = await sessions.find_unheard(self._pool, STARTING_SECONDS)
        await one_by_one("stops and answers", unheard, lambda one: self._repeat_signal(*one))
        messages = await conversations.find_unsignalled(self._pool, limit=20)
        await one_by_one("messages", messages, lambda one: self._signal(*one))
        unsynced = {one.id: one for one in await schedules.find_unsynced(self._pool, limit=20)}
        await one_by_one("schedules", unsynced, lambda one: self._schedules.put(unsynced[one]))

    async def _repeat_signal(self, tenant: str, session_id: str, what: str) -> None:
        """Once Temporal has taken it, it is not repeated: a session may take its time to stop, and each signal is an
        event in its history. A session for which too many signals wait takes none."""
        if self._is_news(signal := f"{session_id}/{what}"):
            if (unheard := await sessions.get(self._pool, tenant, session_id)) is not None:
                await self._look_at(unheard)
            self._sent.add(signal)

    def _is_news(self, signal: str) -> bool:
        """Whether this worker has not sent this signal yet. It forgets, since a repeated signal is harmless."""
        if len(self._sent) >= MOST_SENT:
            self._sent.clear()
        return signal not in self._sent

    async def _signal(self, tenant: str, conversation_id: str, message_id: str) -> None:
        await self._workflows.reopen(tenant, conversation_id, reload=True)
        await conversations.mark_signalled(self._pool, tenant, message_id)

    async def _close_conversation(self, conversation_id: str) -> None:
        if self._is_news(conversation_id) and await self._workflows.signal_termination(conversation_id):
            self._sent.add(conversation_id)

    async def _tidy(self) -> None:
        jobs: dict[str, Callable[[], Awaitable[object]]] = {
            "old workers": lambda: workers.forget_stale(self._pool),
            "old keys": lambda: idempotency.forget_old(self._pool),
            "old locks": lambda: idempotency.forget_old_locks(self._pool),
            "content": self._forget,
            "audit": lambda: audit.seal(self._pool),
            "old deliveries": lambda: notifications.forget_old_deliveries(self._pool, NOTICE_DAYS),
            "old notices": lambda: notices.forget_old(self._pool, NOTICE_DAYS),
            "old messages": lambda: addresses.forget_old(self._pool, NOTICE_DAYS),
            "old events": lambda: triggers.forget_old_events(self._pool, NOTICE_DAYS),
            "notices": self._dispatcher.repair,
            "schedules": self._schedules.repair,
            "pieces": self._delete_pieces,  # the last, because it may take some time
        }
        if failed := await one_by_one("sweep", jobs, lambda job: jobs[job]()):
            raise failed[0]

    async def _look_at(self, session: sessions.SessionRow) -> bool:
        """Bring the workflow of a session in line with its row. Whether it had to be started."""
        running = await self._running(session.id)
        if running is None:
            # It was accepted, but Temporal does not know it. The same id makes a second start harmless. Even a root
            # session is started by its conversation: that may be open already because of a later message, and must
            # know which sessions begin. One that was running is restored by its first activity. The request has a new
            # id, because an open conversation answers a repeated update from memory.
            request_id = f"{session.id}/{new_id()}"
            return await self._workflows.submit(
                session.workflow_input(), request_id, session.thread_id, queued=not session.live
            )
        if not running:
            await self._close(session)
        elif session.cancel_requested is None:
            await self._raise_limits(session)
            for request_id in await input_requests.find_unheard(self._pool, session.tenant, session.id):
                # the answer was given while Temporal was unreachable
                _require(await self._workflows.signal_answer(session.id, request_id))
        else:
            stop = session.cancel_requested
            request = StopRequest(reason=stop.reason, by=stop.by, note=stop.note, grace_ms=stop.grace_ms)
            _require(await self._workflows.stop(session.id, request))
        return False

    async def _stop_orphan(self, session: sessions.SessionRow) -> None:
        """Record the stop that its conversation could not deliver; a look signals it."""
        stop = RecordedStop(**dict(PARENT_ENDED), at=datetime.now(UTC))
        await sessions.record_stop(self._pool, session, stop)

    async def _raise_limits(self, session: sessions.SessionRow) -> None:
        """Signal raised limits, usually once for each raise: we cannot see whether the API's own signal was lost. A
        step reads the row, but a session that waits would reach its old deadline without the signal."""
        if not session.limits.raised or not self._is_news(signal := f"{session.id}/{session.limits.model_dump_json()}"):
            return
        if await self._workflows.signal_limits(session.id, session.limits):
            self._sent.add(signal)

    async def _forget(self) -> None:
        """Remove content whose retention is over. The next sweep finds what is left."""
        due = await files.find_due(self._pool, FORGOTTEN_AT_ONCE)
        removed = [await files.remove_content(self._pool, tenant, one) for tenant, one in due]
        await files.drop_loose_bytes(self._pool)
        if any(removed):
            await self._workspaces.forget()

    async def _delete_pieces(self) -> None:
        until, found = time.monotonic() + PIECES_SECONDS, PIECES_AT_ONCE
        while found == PIECES_AT_ONCE and time.monotonic() < until:
            found = await events.delete_pieces(self._pool, PIECES_AFTER, PIECES_AT_ONCE)

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


# Temporal's schedules, after a crash between the row and Temporal, or after Temporal lost its data.


class ScheduleSync:
    def __init__(self, pool: Pool, client: ScheduleClient) -> None:
        self._pool = pool
        self._client = client
        self._compared: float | None = None

    async def repair(self) -> None:
        await schedule_runs.settle(self._pool)
        working = await missions.list_working(self._pool)
        await one_by_one("missions", working, lambda one: missions.settle(self._pool, *one))
        left = {session.id: session for session in await missions.find_left_running(self._pool)}
        await one_by_one("runs of cancelled missions", left, lambda one: self._stop(left[one]))
        if self._compared is None or time.monotonic() - self._compared > COMPARE_SECONDS:
            if lost := await schedules.note_missing(self._pool, await self._client.ids()):
                log.warning("%d schedules are missing in Temporal and are created again", lost)
            self._compared = time.monotonic()
        unsynced = {schedule.id: schedule for schedule in await schedules.find_unsynced(self._pool)}
        await one_by_one("schedules", unsynced, lambda one: self.put(unsynced[one]))

    async def _stop(self, run: sessions.SessionRow) -> None:
        """Record the stop; the next sweep signals it to a run that has begun."""
        note = "its mission was cancelled"
        stop = RecordedStop(reason=Reason.CALLER_CANCEL, by="errand", note=note, at=datetime.now(UTC), scope=Scope.TREE)
        await sessions.record_stop(self._pool, run, stop)

    async def put(self, schedule: Schedule) -> None:
        await self._client.put(schedule)
        await schedules.mark_synced(self._pool, schedule)


# Background work: what fails is tried again, and delays nothing else.


def _require(taken: bool) -> None:
    if not taken:
        raise Unavailable("Temporal did not take a signal.")


async def _repeat(what: str, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        try:
            await work()
        except Exception as error:  # the database or Temporal may be unreachable; the next time may succeed
            log.warning("%s failed: %r", what, error)


async def one_by_one(what: str, items: Iterable[Item], work: Callable[[Item], Awaitable[object]]) -> list[Exception]:
    """Run the work on each item; returns the errors. If Temporal is unreachable, the rest is left for the next time."""
    failed: list[Exception] = []
    for item in items:
        try:
            await work(item)
        except Exception as error:
            log.warning("%s: %s: %r", what, item, error)
            failed.append(error)
            if isinstance(error, Unavailable):
                break
    return failed

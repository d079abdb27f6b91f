"""Session: one bounded execution of an agent, from its first model call to its one ending."""

import asyncio
from datetime import timedelta
from typing import NoReturn

from temporalio import workflow
from temporalio.exceptions import ActivityError, FailureError

from domain import wire
from domain.conversations.requests import ChildrenEnded, InboxMessage, Promote
from domain.limits import summary_request
from domain.sessions.input_request import RequestAnswered
from domain.sessions.session import (
    LIMIT_REASONS,
    Finish,
    Finished,
    Limits,
    Purpose,
    Reason,
    SessionResult,
    StopRequest,
    TreeRequest,
)
from domain.sessions.session_state import SessionInput
from workflows import activity_calls
from workflows.session import hooks
from workflows.session.context import END_TIME, SUMMARY_TIME, Ending, SessionContext, Stopped, cause
from workflows.session.loop import Tried, activate, build_model_call, run_line, run_sides
from workflows.session.requests import ask_variables
from workflows.ui import STATUS, current_details

NO_REPOSITORY = "repository"  # the error of a session whose tree could not be made, or not be set up


@workflow.defn(name=wire.SESSION)
class Session:
    @workflow.init
    def __init__(self, start: SessionInput) -> None:
        self.context = SessionContext(start)

    @workflow.run
    async def run(self, start: SessionInput) -> SessionResult:
        """Treat Temporal's own cancel as a stop like any other."""
        # The cancel raises in this coroutine at any moment. Because of the shield the session's own task does not see
        # it: an ending that is being written would otherwise be interrupted halfway. It stops by the usual path
        # instead.
        life = asyncio.create_task(self._live(start))
        try:
            return await asyncio.shield(life)
        except asyncio.CancelledError:
            note = workflow.cancellation_reason() or ""
            self.context.halt(StopRequest(reason=Reason.CALLER_CANCEL, by="temporal", note=note))
            return await life

    async def _live(self, start: SessionInput) -> SessionResult:
        reasoning = asyncio.create_task(self._reason(start))
        await self._watch(reasoning)
        if self.context.stopping is not None and self.context.stopping.grace_ms:
            await self._let_finish(reasoning)
        ending = await self._settle(reasoning)
        if ending is None:
            await workflow.wait_condition(workflow.all_handlers_finished)
            if self.context.stopping is None:
                workflow.continue_as_new(start.model_copy(update={"carried": self.context.state}))
            ending = Ending(self.context.stopping.reason)
        try:
            if self.context.outdated:
                raise Stopped
            if ending.reason in LIMIT_REASONS and not self.context.cancelled and self.context.time_left():
                await self._summarise(ending.reason)
            if self.context.has_hooks(self.context.state.line):
                await hooks.at_end(self.context, ending, self.context.state.line)
            if start.tree and ending.error_type != NO_REPOSITORY:  # else it would be tried again, for a minute
                await collect_changes(self.context)
            # A message that arrives from here on opens another session: the activity gives the conversation what this
            # one has not taken.
            return self._result(await activity_calls.finish_session(self._ending(ending)))
        except (Stopped, FailureError) as error:
            if not self.context.is_outdated(error):
                raise
        await self._restore(start)

    async def _restore(self, start: SessionInput) -> NoReturn:
        """Continue from what was committed, in a new run: this run was reset, or started again after Temporal lost the
        previous one, so that its own state is not what was committed."""
        received = self.context.state = start.first_state()
        received.inbox = []
        carried = await activity_calls.restore_session(start.ref)
        carried.inbox += [message for message in received.inbox if message not in carried.seen_messages]
        carried.seen_messages += [message for message in received.seen_messages if message not in carried.seen_messages]
        carried.answered, carried.ended = received.answered, [*carried.ended, *received.ended]
        carried.waking = [child for child in carried.waking if child not in received.ended]
        await workflow.wait_condition(workflow.all_handlers_finished)
        workflow.continue_as_new(start.model_copy(update={"carried": carried}))

    async def _reason(self, start: SessionInput) -> Ending | None:
        line = self.context.state.line
        if start.tree and self.context.state.step == 0 and (ending := await prepare_tree(self.context)):
            return ending
        if start.ask_variables and self.context.state.step == 0:
            await ask_variables(self.context, line)
        while True:
            sides = self.context.sides
            if sides is None or sides.plain:
                await activate(self.context, line)
                ending = await run_line(self.context, line)
            else:
                ending = await run_sides(self.context, sides)
            if not self.context.handed_over or ending is not None:
                return ending
            self.context.handed_over = False

    @workflow.signal(
        name=wire.STOP, description="Ask the session to stop; it commits what it has and ends as the reason says."
    )
    def stop(self, request: StopRequest) -> None:
        self.context.halt(request)

    @workflow.signal(name=wire.MESSAGE, description="A message is in the inbox; the next model call takes it.")
    def message(self, message: InboxMessage) -> None:
        self.context.receive(message.id)

    @workflow.signal(name=wire.WITHDRAWN, description="Another session has read this message; it leaves the inbox.")
    def withdrawn(self, message: InboxMessage) -> None:
        self.context.withdraw(message.id)

    @workflow.signal(name=wire.CHILDREN_ENDED, description="Subagents of this session have ended.")
    def children_ended(self, ended: ChildrenEnded) -> None:
        self.context.end_children(ended.session_ids)

    @workflow.signal(name=wire.PROMOTED, description="A subagent that was waited for continues in the background.")
    def promoted(self, promote: Promote) -> None:
        self.context.promoted.add(promote.session_id)

    @workflow.signal(name=wire.ANSWERED, description="An input request of this session has an answer.")
    def answered(self, request: RequestAnswered) -> None:
        self.context.record_answer(request.id)

    @workflow.signal(name=wire.LIMITS_RAISED, description="This session may use more; the row has the same limits.")
    def limits_raised(self, limits: Limits) -> None:
        self.context.raise_limits(limits)

    async def _watch(self, reasoning: "asyncio.Task[Ending | None]") -> None:
        """Wait for the loop, a stop or the end of the time, whichever comes first. A session that waits for people
        waits until the deadline, because then there is nothing to summarise."""
        context = self.context
        while not (reasoning.done() or context.stopping is not None):
            asks = context.waiting > 0 and workflow.now() >= context.stops_at
            until = context.deadline if asks else context.stops_at
            try:
                await workflow.wait_condition(
                    lambda known=context.deadline, asks=asks: (  # type: ignore[misc]
                        reasoning.done()
                        or context.stopping is not None
                        or context.deadline != known  # it was extended
                        or (asks and not context.waiting)
                    ),
                    timeout=max(until - workflow.now(), timedelta()),
                    timeout_summary=f"TTL {timedelta(milliseconds=context.limits.ttl_ms)}",
                )
            except TimeoutError:
                if asks or not context.waiting:
                    # people were asked until their deadline: the agent has not failed
                    reason = Reason.INPUT_TIMEOUT if asks else Reason.TTL
                    context.halt(StopRequest(reason=reason, by="errand"))

    async def _settle(self, reasoning: "asyncio.Task[Ending | None]") -> Ending | None:
        """How the loop ended; None if the session continues in a new run. What does not stop in time is left behind:
        the store accepts nothing of it after the end."""
        stopping = self.context.stopping
        if not reasoning.done():
            assert stopping is not None
            try:
                left = self.context.time_left(END_TIME)
                await workflow.wait_condition(reasoning.done, timeout=left, timeout_summary="time to stop")
            except TimeoutError:
                return Ending(stopping.reason)
        try:
            return await reasoning
        except Ending as end:
            return end
        except Stopped:
            assert self.context.stopping is not None
            return Ending(self.context.stopping.reason)

    async def _let_finish(self, reasoning: "asyncio.Task[Ending | None]") -> None:
        """A graceful stop: let the running tools finish, within a time limit."""
        stop = self.context.stopping
        assert stop is not None
        try:
            await workflow.wait_condition(
                reasoning.done,
                timeout=min(timedelta(milliseconds=stop.grace_ms), self.context.time_left()),
                timeout_summary="time to finish the running tools",
            )
        except TimeoutError:
            self.context.halt(stop.model_copy(update={"grace_ms": 0}))

    async def _summarise(self, reason: Reason) -> None:
        """Ask for one last reply without tools, so that no session ends without a summary. The reply is cut off at the
        deadline, and if it fails the session ends anyway."""
        state = self.context.state
        if self.context.handler_of(state.line) is not None:
            return  # a handler cannot summarise: its last message is the result
        try:
            with self.context.taking(state.line) as messages:
                call = build_model_call(
                    self.context, state.line, Purpose.SUMMARY, messages, summary_request(reason), Tried()
                )
                call.cut_at = workflow.now() + min(SUMMARY_TIME, self.context.time_left())
                reply = await self.context.wait(activity_calls.call_model(call))
        except ActivityError as error:
            workflow.logger.warning("no closing summary: %s", cause(error)[1])
            return
        state.line.head = reply.head
        state.usage = state.usage.plus(reply.usage)

    def _ending(self, ending: Ending) -> Finish:
        start, state, stop = self.context.start, self.context.state, self.context.stopping
        if self.context.cancelled and stop:
            ending = Ending(stop.reason)
        return Finish(
            ref=start.ref,
            agent=state.line.agent,
            reason=ending.reason,
            head=state.line.head,
            step=state.step,
            version=self.context.next_version(),
            usage=state.usage,
            error_type=ending.error_type,
            error=ending.error,
            by=stop.by if stop else None,
            previous=state.line.previous,
            previous_step=state.line.previous_step,
            spawned_by=start.spawned_by,
            binding=ending.binding,
        )

    def _result(self, finished: Finished) -> SessionResult:
        start, state = self.context.start, self.context.state
        workflow.upsert_search_attributes([STATUS.value_set(finished.status)])
        workflow.set_current_details(current_details(start, state, [], workflow.info().namespace, finished))
        return SessionResult(
            status=finished.status,
            reason=finished.reason,
            partial=finished.partial,
            steps=state.step,
            usage=state.usage,
            head=finished.head,
            preview=finished.preview,
        )


# The repository of a session: made before the first step, its changes kept after the last one.


async def prepare_tree(session: SessionContext) -> Ending | None:
    """The ending if there is no tree: nothing has been asked of a model yet."""
    try:
        await session.wait(activity_calls.prepare_tree(_tree_request(session), until=session.deadline))
    except ActivityError as error:
        session.check()
        _, message = cause(error)
        return Ending(Reason.ERROR, NO_REPOSITORY, message)
    return None


async def collect_changes(session: SessionContext) -> None:
    """A failure does not keep the session from ending: the changes are still in the workspace."""
    try:
        await activity_calls.collect_changes(_tree_request(session))
    except ActivityError as error:
        workflow.logger.warning("the changes were not kept as a patch: %s", cause(error)[1])


def _tree_request(session: SessionContext) -> TreeRequest:
    return TreeRequest(ref=session.start.ref, workspace_id=session.start.workspace_id)

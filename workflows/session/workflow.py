"""Session: one bounded execution of an agent, from its first model call to its one ending."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, ApplicationError

from domain.conversations.requests import SessionDone
from domain.limits.limits import summary_request
from domain.sessions.session import LIMIT_REASONS, Reason, SessionInput, SessionResult
from domain.sessions.step import Finish, Finished, Purpose, StopRequest
from workflows import activity_calls as steps
from workflows.attributes import STATUS
from workflows.session.context import Ending, SessionContext, Stopped, cause
from workflows.session.input_requests import ask_variables
from workflows.session.loop import model_call, run_line
from workflows.ui import current_details


@workflow.defn(name="Session")
class Session:
    @workflow.init
    def __init__(self, start: SessionInput) -> None:
        self.running = SessionContext(start)

    @workflow.run
    async def run(self, start: SessionInput) -> SessionResult:
        """Temporal's own cancel is a stop like any other; it may come at any moment and must not break an ending."""
        life = asyncio.create_task(self._live(start))
        try:
            return await asyncio.shield(life)
        except asyncio.CancelledError:
            note = workflow.cancellation_reason() or ""
            self.running.halt(StopRequest(reason=Reason.CALLER_CANCEL, by="temporal", note=note))
            return await life

    async def _live(self, start: SessionInput) -> SessionResult:
        reasoning = asyncio.create_task(self._reason(start))
        await self._watch(reasoning)
        if self.running.stopping is not None and self.running.stopping.grace_ms:
            await self._let_finish(reasoning)
        try:
            ending = await reasoning
        except Ending as end:
            ending = end
        except Stopped:
            assert self.running.stopping is not None
            ending = Ending(self.running.stopping.reason)
        if ending is None:
            await workflow.wait_condition(workflow.all_handlers_finished)
            if self.running.stopping is None:
                workflow.continue_as_new(start.model_copy(update={"carried": self.running.state}))
            ending = Ending(self.running.stopping.reason)
        if ending.reason in LIMIT_REASONS and not self.running.cancelled:
            await self._say_farewell(ending.reason)
        finish = self._ending(ending)
        finished = await steps.finish_session(finish)
        if not (finished.told and workflow.patched(steps.ON_THE_SPOT)):
            await self._tell_conversation(SessionDone.of(finish, finished))
        return self._result(finished)

    async def _reason(self, start: SessionInput) -> Ending | None:
        line = self.running.state.line
        if start.ask_variables and start.carried is None:
            await ask_variables(self.running, line)
        return await run_line(self.running, line)

    @workflow.update(description="Ask the session to stop; it commits what it has and ends as the reason says.")
    async def stop(self, request: StopRequest) -> None:
        self.running.halt(request)

    @workflow.signal(
        dynamic=True, description="message, withdrawn, child_done, promoted, answered, stop: words from outside."
    )
    def on_signal(self, name: str, args: Sequence[RawValue]) -> None:
        # one handler that cannot raise: a malformed signal must never wedge the session
        try:
            self.running.hear(name, args[0].payload)
        except Exception:
            workflow.logger.warning("signal %s was malformed or is unknown", name)

    async def _watch(self, reasoning: "asyncio.Task[Ending | None]") -> None:
        """Wait for the loop, the deadline or a stop, whichever is first."""
        start = self.running.start
        try:
            await workflow.wait_condition(
                lambda: reasoning.done() or self.running.stopping is not None,
                timeout=max(start.deadline - workflow.now(), timedelta()),
                timeout_summary=f"TTL {timedelta(milliseconds=start.limits.ttl_ms)}",
            )
        except TimeoutError:
            # out of time while it waits for people: that is their deadline, not the agent's failure
            reason = Reason.INPUT_TIMEOUT if self.running.waiting else Reason.TTL
            self.running.halt(StopRequest(reason=reason, by="errand"))

    async def _let_finish(self, reasoning: "asyncio.Task[Ending | None]") -> None:
        """A graceful stop: the tools under way may finish, but not for ever."""
        stop = self.running.stopping
        assert stop is not None
        try:
            await workflow.wait_condition(
                reasoning.done,
                timeout=timedelta(milliseconds=stop.grace_ms),
                timeout_summary="time to finish the tools under way",
            )
        except TimeoutError:
            self.running.halt(stop.model_copy(update={"grace_ms": 0}))

    async def _say_farewell(self, reason: Reason) -> None:
        """One last reply without tools, so that nothing ends silently; if it fails, the session ends all the same."""
        state = self.running.state
        take = self.running.take(state.line)
        call = model_call(self.running, state.line, Purpose.SUMMARY, take=take, note=summary_request(reason))
        try:
            reply = await self.running.wait(steps.call_model(call))
        except ActivityError as error:
            workflow.logger.warning("no farewell: %s", cause(error)[1])
            return
        state.line.head = reply.head
        state.usage = state.usage.plus(reply.usage)

    def _ending(self, ending: Ending) -> Finish:
        start, state, stop = self.running.start, self.running.state, self.running.stopping
        if self.running.cancelled and stop:
            ending = Ending(stop.reason)
        return Finish(
            ref=start.ref,
            agent=start.agent,
            reason=ending.reason,
            head=state.line.head,
            step=state.step,
            version=self.running.next_version(),
            usage=state.usage,
            error_type=ending.error_type,
            error=ending.error,
            by=stop.by if stop else None,
            previous=state.line.previous,
            previous_step=state.line.previous_step,
            spawned_by=start.parent_session_id,
            taken=[heard for heard in state.heard if heard not in state.inbox],
        )

    async def _tell_conversation(self, done: SessionDone) -> None:
        conversation = workflow.get_external_workflow_handle(f"conversation/{self.running.start.ref.conversation_id}")
        try:
            await conversation.signal("session_done", done)
        except ApplicationError as error:
            # there is none: nothing has needed a decision, or someone ended it from outside
            workflow.logger.info("conversation not told: %s", error.message)

    def _result(self, finished: Finished) -> SessionResult:
        start, state = self.running.start, self.running.state
        workflow.upsert_search_attributes([STATUS.value_set(finished.status)])
        workflow.set_current_details(current_details(start, state, [], finished))
        return SessionResult(
            status=finished.status,
            reason=finished.reason,
            partial=finished.partial,
            steps=state.step,
            usage=state.usage,
            head=finished.head,
            preview=finished.preview,
        )

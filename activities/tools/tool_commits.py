"""Records the result of a tool call, fenced by attempt; or the handle of a call that continues elsewhere."""

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.runtime.definitions import Definitions
from activities.runtime.event_writer import EventWriter
from activities.runtime.step_memory import StepMemory
from activities.tools.outcomes import current_step, outcome_of, save_artifacts, saved_event
from activities.tools.support.output import clean
from activities.tools.tool import ToolResult
from domain import events as ev
from domain import wire
from domain.events import EventRow
from domain.messages import ReplyBody
from domain.sessions.remote_call import RemoteCall
from domain.sessions.step import CallState, ToolCallResult, ToolOutcome, ToolRequest, preview
from domain.sessions.tool_writes import ToolAttempt, ToolCommit, ToolHold
from store import tool_calls
from store.database import COMMIT_PATIENCE, Pool, patiently
from store.tool_calls import ToolClaimResult


class ToolCommits:
    def __init__(self, pool: Pool, definitions: Definitions, events: EventWriter, memory: StepMemory) -> None:
        self._pool = pool
        self._definitions = definitions
        self._events = events
        self._memory = memory

    async def hold(self, attempt: ToolAttempt, remote: RemoteCall) -> None:
        hold = ToolHold.by(attempt, remote)
        if not await patiently(lambda: tool_calls.hold(self._pool, hold), seconds=COMMIT_PATIENCE):
            raise ApplicationError("A newer attempt holds this call.", type=wire.SUPERSEDED, non_retryable=True)

    async def commit(
        self,
        request: ToolRequest,
        attempt: ToolAttempt,
        claim: ToolClaimResult,
        state: CallState,
        result: ToolResult,
        done: str,
    ) -> ToolOutcome:
        saved = await save_artifacts(self._pool, request, result.artifacts)
        returned = ev.ToolReturned(tool=request.name, state=state, preview=preview(result.text), rule=request.rule)
        events: list[ev.Event] = [*result.events, *map(saved_event, saved), returned]
        commit = ToolCommit(
            **dict(attempt),
            state=state,
            result=result.text,
            denied=request.refusal is not None,
            rule=str(request.rule) if request.rule else None,
            events=[EventRow.of(request.ref, event, by=attempt.call_attempt) for event in events],
            started_at=activity.info().started_time,
            progress=clean(result.progress) if result.progress else None,
            status_text=result.status_text,
            plan=result.plan,
            files=saved,
            sources=result.sources,
            description=done,
        )
        outcome = outcome_of(request, state, result.text)
        if not result.changed and await self._may_defer(request, claim, commit):
            taken_rows = await self._events.take(request.ref)
            self._memory.deferred.put(request.ref, commit.model_copy(update={"events": taken_rows + commit.events}))
            return outcome.model_copy(update={"deferred": True})
        async with self._events.taken(request.ref) as taken:
            whole = commit.model_copy(update={"batch": taken.name, "events": taken.rows + commit.events})
            held = await patiently(lambda: self._committed(request, whole, claim.body), seconds=COMMIT_PATIENCE)
            if not held:
                raise ApplicationError("A newer attempt holds this call.", type=wire.SUPERSEDED, non_retryable=True)
        if result.plan is None:
            return outcome
        replanned = any(isinstance(event, ev.Replanning) for event in result.events)
        return outcome.model_copy(update={"doing": current_step(result.plan), "planned": True, "replanned": replanned})

    async def _may_defer(self, request: ToolRequest, claim: ToolClaimResult, commit: ToolCommit) -> bool:
        """Whether the next model call can write this result: of a read that needed no claim, changed nothing and was
        not stopped. The worker then keeps what that call needs."""
        changes = commit.files or commit.plan or commit.progress or commit.status_text
        if not request.may_defer or claim.next_step is None or changes or commit.state is CallState.CANCELLED:
            return False
        if not await self._only_call(request, claim.body):
            return False
        found = ToolCallResult(index=commit.call_index, state=commit.state, text=commit.result)
        facts = claim.next_step.model_copy(update={"results": [found]})
        return self._memory.steps.remember(commit.tenant, commit.node, commit.run, facts, claim.known_at)

    async def _only_call(self, request: ToolRequest, reply: ReplyBody | None) -> bool:
        """Whether the model is asked next, without hooks before that, which may change what it needs."""
        agent = await self._definitions.load(request.agent)
        return reply is not None and len(reply.calls) == 1 and not request.above and not agent.hooks

    async def _committed(self, request: ToolRequest, commit: ToolCommit, reply: ReplyBody | None) -> bool:
        """Write the result. After the only call of a step the worker keeps what the next model call needs."""
        if commit.run is None or not await self._only_call(request, reply):
            return await tool_calls.commit(self._pool, commit)
        held, facts = await tool_calls.commit_last(self._pool, commit)
        if held:
            self._memory.steps.remember(commit.tenant, commit.node, commit.run, facts)
        return held

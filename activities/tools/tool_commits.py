"""Records the result of a tool call, fenced by attempt; or the handle of a call that continues elsewhere."""

from temporalio.exceptions import ApplicationError

from activities.tools.outcomes import current_step, outcome_of, save_artifacts, saved_event
from activities.tools.support.output import clean
from activities.tools.tool import ToolResult
from domain import events as ev
from domain import wire
from domain.events import EventRow
from domain.sessions.remote_call import RemoteCall
from domain.sessions.step import CallState, ToolOutcome, ToolRequest, preview
from domain.sessions.tool_writes import ToolAttempt, ToolCommit, ToolHold
from store import tool_calls
from store.database import COMMIT_PATIENCE, Pool, patiently


class ToolCommits:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def hold(self, attempt: ToolAttempt, remote: RemoteCall) -> None:
        hold = ToolHold.by(attempt, remote)
        if not await patiently(lambda: tool_calls.hold(self._pool, hold), seconds=COMMIT_PATIENCE):
            raise ApplicationError("A newer attempt holds this call.", type=wire.SUPERSEDED, non_retryable=True)

    async def commit(
        self,
        request: ToolRequest,
        attempt: ToolAttempt,
        state: CallState,
        result: ToolResult,
        done: str,
    ) -> ToolOutcome:
        saved = await save_artifacts(self._pool, request, result.artifacts)
        returned = ev.ToolReturned(tool=request.name, state=state, preview=preview(result.text), rule=request.rule)
        events: list[ev.Event] = [*result.events, *map(saved_event, saved), returned]
        commit = ToolCommit(
            **attempt.model_dump(exclude={"tool", "effect"}),
            state=state,
            result=result.text,
            denied=request.refusal is not None,
            rule=str(request.rule) if request.rule else None,
            events=[EventRow.of(request.ref, event, by=attempt.call_attempt) for event in events],
            progress=clean(result.progress) if result.progress else None,
            status_text=result.status_text,
            plan=result.plan,
            files=saved,
            sources=result.sources,
            description=done,
        )
        outcome = outcome_of(request, state, result.text)
        if not await patiently(lambda: tool_calls.commit(self._pool, commit), seconds=COMMIT_PATIENCE):
            raise ApplicationError("A newer attempt holds this call.", type=wire.SUPERSEDED, non_retryable=True)
        if result.plan is None:
            return outcome
        replanned = any(isinstance(event, ev.Replanning) for event in result.events)
        return outcome.model_copy(update={"doing": current_step(result.plan), "planned": True, "replanned": replanned})

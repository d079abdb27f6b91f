"""The runs of a session's workflow: only the current one may write.

A session gets another run after a reset, or if it is restarted because its workflow was deleted or Temporal lost its
data. The database refuses writes of a run that it does not know (`check_run`); Temporal knows which run is current.
"""

from datetime import timedelta
from typing import Any

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from domain import wire
from domain.events import CallAttempt
from domain.sessions.session import SessionRef
from store import runs
from store.database import Pool

ASK_WITHIN = timedelta(seconds=5)


def run_of(ref: SessionRef) -> str | None:
    """The run to which this activity belongs; None if it does not belong to the workflow of this session."""
    if not activity.in_activity():
        return None
    info = activity.info()
    return info.workflow_run_id if info.workflow_id == wire.session_workflow_id(ref.session_id) else None


def call_attempt() -> CallAttempt:
    """The current attempt of this activity. The call is the same in all retries, and another one after a reset, which
    therefore asks the model again."""
    info = activity.info()
    call = f"{info.workflow_id}/{info.workflow_run_id}/{info.activity_id}"
    return CallAttempt(call=call, attempt=info.attempt)


class RunFence(Interceptor):
    """Decides about a run that the database refused: it gets the session if it continued the known run as new."""

    def __init__(self, pool: Pool, client: Client) -> None:
        self.pool = pool
        self.client = client

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _FencedActivity(next, self)


class _FencedActivity(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, fence: RunFence) -> None:
        super().__init__(next)
        self._pool, self._client = fence.pool, fence.client

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        while True:
            try:
                return await super().execute_activity(input)
            except runs.SessionEnded as error:
                raise ApplicationError(str(error), type=wire.SESSION_ENDED, non_retryable=True) from error
            except runs.NotCurrentAttempt as error:  # Temporal drops this failure if it is about the present call
                raise ApplicationError(str(error), type=wire.SUPERSEDED) from error
            except runs.NotCurrentRun as error:
                await self._admit(error.holder)

    async def _admit(self, before: runs.Holder) -> None:
        """Return if this run continues the one that owns the session; the refused activity then runs again."""
        info = activity.info()
        await check_current(self._client)
        handle = self._client.get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)
        first = await anext(handle.fetch_history_events(page_size=1, rpc_timeout=ASK_WITHIN))
        if first.workflow_execution_started_event_attributes.continued_execution_run_id != before.run_id:
            raise ApplicationError(
                "The session is not where this run of its workflow believes it to be.",
                type=wire.OUTDATED,
                non_retryable=True,
            )
        await runs.take_over(self._pool, before, info.workflow_run_id or "")


async def check_current(client: Client) -> None:
    """Refuse an activity whose run is no longer the current one of its workflow."""
    info = activity.info()
    try:
        found = await client.get_workflow_handle(info.workflow_id or "").describe(rpc_timeout=ASK_WITHIN)
        current = found.run_id
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        current = "none"
    if current != info.workflow_run_id:
        raise ApplicationError(f"Another run has this session: {current}.", type=wire.SUPERSEDED, non_retryable=True)

"""restore_session: gives a session to a run that does not know its state, and returns that state."""

from datetime import timedelta

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

from activities.attempt import check_current, with_heartbeats
from domain import wire
from domain.sessions.session import SessionRef
from domain.sessions.session_state import SessionState
from store import runs, sessions
from store.database import Pool


class RestoreSession:
    def __init__(self, pool: Pool, client: Client) -> None:
        self._pool = pool
        self._client = client

    @activity.defn(name="restore_session")
    @with_heartbeats
    async def restore_session(self, ref: SessionRef) -> SessionState:
        before = await self._row(ref)
        # Checked between reading the row and taking it over: by then a newer run would have changed the row.
        await check_current(self._client)
        holder = runs.Holder(tenant=ref.tenant, session_id=ref.session_id, run_id=before.run_id)
        if not await runs.take_over(self._pool, holder, activity.info().workflow_run_id or ""):
            raise ApplicationError(
                "Another run took this session.", type=wire.SUPERSEDED, next_retry_delay=timedelta(seconds=1)
            )
        return await runs.state(self._pool, await self._row(ref))

    async def _row(self, ref: SessionRef) -> sessions.SessionRow:
        row = await sessions.get(self._pool, ref.tenant, ref.session_id)
        assert row is not None
        return row

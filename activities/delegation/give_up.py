"""Settle delegation calls that cannot start, so that an unexpected error is not retried without end."""

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.delegation.record import DelegationRecord
from domain.conversations.delegation import Begun, BegunBatch, DelegationCall, DelegationTool
from domain.errors import Unavailable
from domain.messages import calls_of
from domain.sessions.step import CallState
from store import messages, runs
from store.database import TRANSIENT_ERRORS, Pool

ATTEMPTS = 3
# errors that pass with time, or that others settle
RETRIED: tuple[type[BaseException], ...] = (
    *TRANSIENT_ERRORS,
    *(runs.NotCurrentRun, runs.SessionEnded, Unavailable, ApplicationError, RPCError),
)


def gives_up(error: Exception) -> bool:
    return not isinstance(error, RETRIED) and activity.info().attempt >= ATTEMPTS


async def given_up(pool: Pool, call: DelegationCall, error: Exception) -> BegunBatch:
    """Record an error as the result of the calls that have none yet."""
    activity.logger.error("the delegations of %s cannot be begun", call.node, exc_info=error)
    [node] = await messages.path(pool, call.ref.tenant, call.node, limit=1)
    blocks = calls_of(node)
    record = DelegationRecord(pool, call.ref, call.node)
    text = f"This failed with an internal error ({type(error).__name__}). Look what was done before you try again."
    begun = []
    for index in call.indexes:
        name = blocks[index].name
        kind = DelegationTool(name) if name in set(DelegationTool) else DelegationTool.SUBAGENT
        settled = await record.claim(index, name, "") or await record.settle(index, name, CallState.FAILED, text, [])
        begun.append(Begun(index=index, kind=kind, settled=settled))
    return BegunBatch(calls=begun)

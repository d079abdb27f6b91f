"""Why a workflow did not do what was requested: it refused, was unreachable, or was not ready yet."""

from collections.abc import Iterator
from contextlib import contextmanager

from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from domain import wire
from domain.errors import Conflict, ErrandError, Invalid, NotFound, TooMany, Unavailable
from domain.wire import SessionRefusal

_UNREACHABLE = frozenset(
    {
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.CANCELLED,
        RPCStatusCode.UNKNOWN,  # the connection broke during a call
        RPCStatusCode.INTERNAL,
    }
)
_NOT_YET = frozenset(
    {
        RPCStatusCode.FAILED_PRECONDITION,
        RPCStatusCode.ABORTED,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.NOT_FOUND,
    }
)


def is_away(error: RPCError | RuntimeError) -> bool:
    """Whether Temporal is unreachable. A lazy client whose first connection fails raises a RuntimeError."""
    return not isinstance(error, RPCError) or error.status in _UNREACHABLE


@contextmanager
def unavailable_if_away() -> Iterator[None]:
    try:
        yield
    except (RPCError, RuntimeError) as error:
        if is_away(error):
            raise Unavailable("Temporal is unreachable.") from error
        raise


def is_not_yet(error: RPCError | RuntimeError) -> bool:
    """Whether the workflow never saw the update, so that it can be sent again: its workflow task was discarded, as at
    continue-as-new, the workflow is closing, or too many updates are in progress."""
    return isinstance(error, RPCError) and error.status in _NOT_YET


def is_over(error: RPCError | RuntimeError) -> bool:
    """Whether the workflow has closed or never began."""
    return isinstance(error, RPCError) and error.status is RPCStatusCode.NOT_FOUND


def refusal(cause: BaseException | None) -> ErrandError:
    """Convert a conversation's refusal to an error of the API."""
    if not isinstance(cause, ApplicationError):
        return Unavailable("The conversation could not decide; try again.")
    if cause.type == wire.CONVERSATION_BUSY:
        active = cause.details[0] if cause.details else {}
        return Conflict(
            "Another session of this conversation is running.", type="conversation-busy", active_session=active
        )
    if cause.type == wire.MAILBOX_EMPTY:
        return Invalid("The mailbox is empty: there is nothing to fire.", type="mailbox-empty")
    if cause.type == wire.NOT_RUNNING:
        return NotFound(cause.message, type="not-running")
    if cause.type == SessionRefusal.TERMINATED:
        return Conflict("The conversation was terminated.", type="conversation-terminated")
    if cause.type == SessionRefusal.QUOTA:
        return TooMany("This key has as many live tasks as it may have.", type="live-tasks", retry_after=10)
    if cause.type == SessionRefusal.MAIL_TAKEN:
        return Conflict("Another request took some of these messages; try again.", type="mailbox-changed")
    if cause.type == SessionRefusal.BUDGET_SPENT:
        return Conflict("The conversation's budget is spent; a message may bring a new one.", type="budget-spent")
    return Unavailable(cause.message)

"""What it means that a workflow does not do what was asked: refused, away, or not yet."""

from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from domain.errors import Conflict, ErrandError, Invalid, NotFound, TooMany, Unavailable

_AWAY = frozenset(
    {
        RPCStatusCode.UNAVAILABLE,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.CANCELLED,
        RPCStatusCode.UNKNOWN,  # a connection that broke under a call
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
    """A lazy client that cannot make its first connection says so with a RuntimeError."""
    return not isinstance(error, RPCError) or error.status in _AWAY


def is_not_yet(error: RPCError | RuntimeError) -> bool:
    """An Update that meets a workflow task which is thrown away, as at continue-as-new, that comes while the workflow
    closes, or finds too many others under way, was never seen: ask again."""
    return isinstance(error, RPCError) and error.status in _NOT_YET


def is_over(error: RPCError | RuntimeError) -> bool:
    """There is nobody who could be told, and nobody who needs to be."""
    return isinstance(error, RPCError) and error.status is RPCStatusCode.NOT_FOUND


def refusal(cause: BaseException | None) -> ErrandError:
    """A conversation's refusal in the words of the API."""
    if not isinstance(cause, ApplicationError):
        return Unavailable("The conversation could not decide; try again.")
    if cause.type == "conversation_busy":
        active = cause.details[0] if cause.details else {}
        return Conflict(
            "The conversation is at work on another session.", type="conversation-busy", active_session=active
        )
    if cause.type == "mailbox_empty":
        return Invalid("The mailbox is empty: there is nothing to fire.", type="mailbox-empty")
    if cause.type == "not_running":
        return NotFound(cause.message, type="not-running")
    if cause.type == "terminated":
        return Conflict("The conversation was terminated.", type="conversation-terminated")
    if cause.type == "quota":
        return TooMany("This key has as many live tasks as it may have.", type="live-tasks", retry_after=10)
    if cause.type == "mail_taken":
        return Conflict("Another request took some of these messages; try again.", type="mailbox-changed")
    if cause.type == "budget_spent":
        return Conflict("The conversation's budget is spent; a message may bring a new one.", type="budget-spent")
    return Unavailable(cause.message)

"""Names that cross process boundaries: signals, updates, queries, workflow types, error types and refusals.

Both ends import them from here. A name in use is part of the recorded histories and of what a newer or older worker
understands, so a change of one is a change of the protocol.
"""

from datetime import timedelta
from enum import StrEnum

DEPLOYMENT, BUILD = "errand", "unversioned"  # as which workers report

# workflow types
SESSION = "Session"
CONVERSATION = "Conversation"
NOTIFICATION_DELIVERY = "NotificationDelivery"
TICK = "Tick"
TOOL_DISCOVERY = "ToolDiscovery"

# signals of a Session
STOP = "stop"
MESSAGE = "message"
WITHDRAWN = "withdrawn"
CHILDREN_ENDED = "children_ended"
PROMOTED = "promoted"
ANSWERED = "answered"
LIMITS_RAISED = "limits_raised"

# signals of a Conversation
POST = "post"
RELOAD = "reload"
TERMINATED = "terminated"

# updates of a Conversation
SUBMIT = "submit"
SPAWN = "spawn"
CLAIM = "claim"
FIRE = "fire"
STEER = "steer"
PROMOTE = "promote"

# Temporal waits this long for a worker that died during a workflow task; one that pauses for 4 s is still in time.
TASK_TIMEOUT = timedelta(seconds=5)
# A workflow continues as new after so many events. A replay takes 0.2 ms for each, and a worker that starts may replay
# 16 histories at once (`max_concurrent_workflow_tasks`), within that time.
RENEW_AFTER = 700

# the query of a Conversation
MAILBOX = "mailbox"

# the signal of a NotificationDelivery
RESEND = "resend"

# error types of activities that the session's loop reacts to
BUDGET_SPENT = "BudgetSpent"
CANCEL_REQUESTED = "CancelRequested"
CONTEXT_TOO_LONG = "ContextTooLong"
MODEL_UNAVAILABLE = "ModelUnavailable"
NO_ATTEMPT = "no_attempt"  # none of a task's attempts has completed
HANDLER_FAILED = "handler_failed"  # the Python code of a side failed
OUTDATED = "Outdated"  # the run is the session's newest, but its state differs from what was committed

# error types of activities that are retried or end the call
CONVERSATION_UNREACHABLE = "ConversationUnreachable"
DATABASE_AWAY = "DatabaseAway"
NOT_APPROVED = "NotApproved"
NO_TREE = "NoTree"  # the repository of the task cannot be used
PAYLOADS_TOO_LARGE = "PayloadsTooLarge"
RECORDING_ENDED = "RecordingEnded"
SESSION_ENDED = "SessionEnded"
SUPERSEDED = "Superseded"
UNREADABLE_AGENT = "UnreadableAgent"

# why a Conversation refuses an update
CONVERSATION_BUSY = "conversation_busy"
MAILBOX_EMPTY = "mailbox_empty"
NOT_RUNNING = "not_running"
MALFORMED = "malformed"
REFUSED = "refused"  # for any other reason


class SessionRefusal(StrEnum):
    """Why the store refuses a session. A Conversation passes it on as the type of its error."""

    BUDGET_SPENT = "budget_spent"
    CANCELLED = "cancelled"  # a tree above it was cancelled
    MAIL_TAKEN = "mail_taken"  # by another session
    QUOTA = "quota"
    TERMINATED = "terminated"
    UNKNOWN = "unknown"  # no such conversation

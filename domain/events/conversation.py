"""Subagents, the mailbox, and messages that enter a running session."""

from domain.events.base import Event
from domain.sessions.session import Status


class SubagentStarted(Event):
    type = "subagent_started"
    decisive = True
    child_session_id: str
    name: str
    agent: str
    description: str = ""


class SubagentEnded(Event):
    type = "subagent_ended"
    decisive = True
    child_session_id: str
    name: str
    status: Status


class MailboxUpdated(Event):
    """The database fills in the count, in the transaction that changes it."""

    type = "mailbox_updated"
    pending_count: int = 0


class MessageReceived(Event):
    """A message entered the running session. A caller sent it, or a subagent that reported."""

    type = "message_received"
    decisive = True
    kind: str
    author: str
    preview: str


class VariablesRequired(Event):
    """A subagent waits for values of its variables. It begins once they are set."""

    type = "variables_required"
    request_id: str
    thread_id: str
    agent: str
    name: str
    missing: list[str]


class HandedOver(Event):
    """Another agent has taken over the thread and continues with its history."""

    type = "handed_over"
    decisive = True
    from_agent: str
    to_agent: str
    step: int

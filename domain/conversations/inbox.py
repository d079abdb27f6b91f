"""Messages that wait in a thread's inbox, by the role with which each enters the context."""

from enum import StrEnum


class InboxKind(StrEnum):
    USER = "user"
    ASSISTANT = "assistant"  # a reply of another session, which the thread continues from
    OUTCOME = "outcome"  # of a subagent
    SILENT = "silent"  # written by the platform or a subagent; enters the tree as a user message
    SYSTEM = "system"  # from another agent; enters the context as a note
    TOOL = "tool"  # a tool call, which runs before the next model step

"""Messages that wait for a thread: as what each of them enters the context."""

from enum import StrEnum


class InboxKind(StrEnum):
    USER = "user"
    ASSISTANT = "assistant"  # a reply of another session, which the thread continues from
    OUTCOME = "outcome"  # of a subagent
    SILENT = "silent"  # the platform or a subagent put it there: it enters the tree as the user's
    SYSTEM = "system"  # it comes from another agent, and enters the context as a note
    TOOL = "tool"  # a tool call: it runs before the next model step

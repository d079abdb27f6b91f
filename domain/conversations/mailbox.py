"""The mailbox: references to outcomes of subagents, and their rendering into the prompt of a continuation."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from domain.amounts import counted
from domain.conversations.attachments import listed
from domain.conversations.quoting import quoted
from domain.sessions.session import Reason, Status

MAX_RESULT = 8_000  # characters of one result in a prompt; a link leads to the rest
MAX_TOTAL = 200_000  # characters of all results of one fire, shared evenly


class ConversationStatus(StrEnum):
    OPEN = "open"
    TERMINATED = "terminated"


class SourceType(StrEnum):
    RESULT = "subagent_result"
    FAILED = "subagent_failed"


class MailboxMessage(BaseModel):
    """A reference to a session that ended; its content is read when it is rendered. The wire contract fixes these
    fields."""

    model_config = ConfigDict(frozen=True)

    message_id: str
    conversation_id: str
    source_session_id: str
    source_type: SourceType
    subagent_name: str
    created_at: datetime
    delivered_to: str | None


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The end of a subagent's session, read from its row and its messages when it is rendered. It is no model, because
    a fire may render thousands."""

    session_id: str
    name: str
    status: Status
    reason: Reason | None = None
    partial: bool = False
    committed: bool = True  # it replied at least once, if only with tool calls
    output: str | None = None  # its last reply, or the message of the tool that ended it
    typed: bool = False  # the output is its last reply as JSON
    error: str | None = None
    reference: str | None = None  # how the parent addresses it, if it is a subagent tool
    earlier: list[str] = field(default_factory=list)  # what it said before its output, oldest first
    attachments: list[str] = field(default_factory=list)  # paths of its files in the parent's workspace

    @property
    def failed(self) -> bool:
        """Whether the mailbox shows it as failed. An interrupted session that committed a reply counts as a result."""
        return self.status is Status.FAILED or (self.status is Status.CANCELLED and not self.committed)

    @property
    def failure(self) -> str:
        """Why the result is missing or incomplete."""
        text = quoted(self.error) if self.error else f"ended without an answer ({self.reason})"
        if self.reason is Reason.NEEDS_INPUT:  # the parent may know the answer, or ask a person
            return f"It cannot continue without an answer to this: {text}"
        return text

    @property
    def failure_so_far(self) -> str:
        """Why the result is missing or incomplete, and the last reply until then."""
        return with_output_so_far(self.failure, self.last_reply())

    def content(self, limit: int = MAX_RESULT) -> str:
        """The text of this outcome in the mailbox: all that the subagent said, or why it failed."""
        if self.failed:
            return with_output_so_far(self.failure, self._said(limit))
        text = self._said(limit) or "(no output)"
        if self.status is Status.CANCELLED:
            return f"[Interrupted ({self.reason}); this is what it had so far.]\n{text}"
        return text

    def last_reply(self, limit: int = MAX_RESULT) -> str:
        """Its last reply, quoted and cut to `limit`; empty if there is none."""
        text = self.output if self.output and self.output.strip() else ""
        if len(text) <= limit:
            return quoted(text)
        return f"{quoted(text[:limit])}\n[… {len(text) - limit} more characters: {rest(self.session_id, limit)}]"

    def _said(self, limit: int) -> str:
        """All of its replies. If they are too long: the last reply, and as many earlier ones as fit."""
        room = limit - len(self.output or "")
        kept: list[str] = []
        for text in reversed(self.earlier):
            room -= len(text)
            if room < 0:
                break
            kept.insert(0, quoted(text))
        if left := len(self.earlier) - len(kept):
            kept.insert(0, f"[… {counted(left, 'earlier message')}: GET /sessions/{self.session_id}]")
        return "\n\n".join(text for text in [*kept, self.last_reply(limit)] if text)


def with_output_so_far(failure: str, said: str) -> str:
    return f"{failure}\n\nUntil then it said:\n{said}" if said else failure


def page(outcome: Outcome, offset: int) -> str:
    """One page of a long result, starting at `offset`."""
    text = outcome.output or ""
    if offset >= len(text):
        return f"The result has {len(text)} characters."
    left = len(text) - offset - MAX_RESULT
    more = f"\n[… {left} more characters: {rest(outcome.session_id, offset + MAX_RESULT)}]" if left > 0 else ""
    return f"{quoted(text[offset : offset + MAX_RESULT])}{more}"


def render(outcomes: list[Outcome]) -> str:
    """Render the outcomes in mailbox order, as the prompt of a continuation shows them."""
    if len(outcomes) == 1:
        [one] = outcomes
        if one.reference is not None:
            return subagent_message(one, one.reference)
        verb = "failed" if one.failed else "completed"
        return f"Async subagent '{_heading(one)}' (session: {one.session_id}) {verb}:\n{one.content()}"
    limit = min(MAX_RESULT, max(500, MAX_TOTAL // max(len(outcomes), 1)))
    return "Async subagent results:\n\n" + "\n\n".join(_block(outcome, limit) for outcome in outcomes)


def subagent_message(outcome: Outcome, reference: str) -> str:
    """The message to a parent about the end of its subagent tool: the result, or why there is none."""
    if outcome.status is Status.COMPLETED:
        result = outcome.last_reply() or "(no output)"
        text = f"Subagent (reference: {reference}) has returned the following result:\n\n{result}"
    else:
        text = f"Subagent (reference: {reference}) has reported a failure:\n\n{outcome.failure_so_far}"
    return listed(text, outcome.attachments)


def caller_block(text: str) -> str:
    """The caller's own message. It is a separate content block after the outcomes, so that no outcome can imitate
    it."""
    return f"---\nUser message:\n{text}"


def _block(outcome: Outcome, limit: int) -> str:
    state, prefix = ("failed", "Error: ") if outcome.failed else ("completed", "")
    return f"## {_heading(outcome)} [{state}] (session: {outcome.session_id})\n{prefix}{outcome.content(limit)}"


def _heading(outcome: Outcome) -> str:
    return " ".join(outcome.name.split())  # the parent chose the name, which may contain line breaks


def rest(session_id: str, offset: int) -> str:
    """How a person, or an agent, can read the rest of a long result."""
    return f"GET /tasks/{session_id}/result, or async_task_result with offset {offset}"

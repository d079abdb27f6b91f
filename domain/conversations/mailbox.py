"""The mailbox: outcomes of subagents as references, and the words in which they reach the agent that fires them."""

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from domain.sessions.session import Reason, Status

LONGEST = 8_000  # characters of one result in a prompt; the rest stands behind its link
ALTOGETHER = 200_000  # characters of all results of one fire, shared evenly; each keeps some of its own


class DeliveryMode(StrEnum):
    HOLD = "hold"  # waits in the mailbox until it is fired
    WAKE = "wake"  # reaches the spawner at its next step, or starts it again
    EXPLICIT = "explicit"  # nothing is delivered by itself


class SourceType(StrEnum):
    RESULT = "subagent_result"
    FAILED = "subagent_failed"


class MailboxMessage(BaseModel):
    """Exactly these fields: a reference, not a copy."""

    model_config = ConfigDict(frozen=True)

    message_id: str
    conversation_id: str
    source_session_id: str
    source_type: SourceType
    subagent_name: str
    created_at: datetime
    delivered_to: str | None


class Outcome(BaseModel):
    """What a subagent's session came to, read from it when it is rendered."""

    model_config = ConfigDict(frozen=True)

    session_id: str
    name: str
    status: Status
    reason: Reason | None = None
    partial: bool = False
    output: str | None = None
    error: str | None = None

    @property
    def failed(self) -> bool:
        """An interrupted session that said something counts as a result."""
        return self.status is Status.FAILED or (self.status is Status.CANCELLED and self.output is None)

    def content(self, limit: int = LONGEST) -> str:
        if self.failed:
            words = self.error or f"ended without an answer ({self.reason})"
            if self.reason is Reason.NEEDS_INPUT:  # whoever gets this may know the answer, or ask in its turn
                words = f"It cannot go on without an answer to this: {words}"
            return (
                f"{words}\n\nUntil then it said:\n{_bounded(self.session_id, self.output, limit)}"
                if self.output
                else words
            )
        text = _bounded(self.session_id, self.output, limit) if self.output and self.output.strip() else "(no output)"
        if self.status is Status.CANCELLED:
            return f"[Interrupted ({self.reason}); this is what it had so far.]\n{text}"
        return text


def page(outcome: Outcome, offset: int) -> str:
    """A long result from there on, as far as one result of a tool goes."""
    text = outcome.output or ""
    if offset >= len(text):
        return f"The result has {len(text)} characters."
    left = len(text) - offset - LONGEST
    more = f"\n[… {left} more characters: {rest(outcome.session_id, offset + LONGEST)}]" if left > 0 else ""
    return (
        f"{text[offset : offset + LONGEST]}{more}" if offset < len(text) else f"The result has {len(text)} characters."
    )


def render(outcomes: list[Outcome], user_input: str | None = None) -> str:
    """The prompt of a continuation: the outcomes in mailbox order, then what the caller adds."""
    if len(outcomes) == 1:
        [one] = outcomes
        verb = "failed" if one.failed else "completed"
        text = f"Async subagent '{one.name}' (session: {one.session_id}) {verb}:\n{one.content()}"
    else:
        text = "Async subagent results:\n\n" + "\n\n".join(
            _block(outcome, _share(len(outcomes))) for outcome in outcomes
        )
    return f"{text}\n\n---\nUser message:\n{user_input}" if user_input else text


def _share(outcomes: int) -> int:
    return min(LONGEST, max(500, ALTOGETHER // max(outcomes, 1)))


def _block(outcome: Outcome, limit: int) -> str:
    state, prefix = ("failed", "Error: ") if outcome.failed else ("completed", "")
    return f"## {outcome.name} [{state}] (session: {outcome.session_id})\n{prefix}{outcome.content(limit)}"


def _bounded(session_id: str, text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[… {len(text) - limit} more characters: {rest(session_id, limit)}]"


def rest(session_id: str, offset: int) -> str:
    """Where a person reads on, and where an agent does."""
    return f"GET /tasks/{session_id}/result, or async_task_result with offset {offset}"

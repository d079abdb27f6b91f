"""The mailbox: outcomes of subagents as references, and how they are rendered into the prompt of a continuation."""

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from domain.sessions.session import Reason, Status

MAX_RESULT = 8_000  # characters of one result in a prompt; a link leads to the rest
MAX_TOTAL = 200_000  # characters of all results of one fire, shared evenly


class DeliveryMode(StrEnum):
    HOLD = "hold"  # waits in the mailbox until it is fired
    WAKE = "wake"  # reaches the spawner at its next step, or starts it again
    EXPLICIT = "explicit"  # only what the subagent sends is delivered


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
    """How a subagent's session ended, read from its row when it is rendered."""

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

    def content(self, limit: int = MAX_RESULT) -> str:
        if self.failed:
            text = self.error or f"ended without an answer ({self.reason})"
            if self.reason is Reason.NEEDS_INPUT:  # the parent may know the answer, or ask a person
                text = f"It cannot go on without an answer to this: {text}"
            return (
                f"{text}\n\nUntil then it said:\n{_bounded(self.session_id, self.output, limit)}"
                if self.output
                else text
            )
        text = _bounded(self.session_id, self.output, limit) if self.output and self.output.strip() else "(no output)"
        if self.status is Status.CANCELLED:
            return f"[Interrupted ({self.reason}); this is what it had so far.]\n{text}"
        return text


def page(outcome: Outcome, offset: int) -> str:
    """One page of a long result, starting at `offset`."""
    text = outcome.output or ""
    if offset >= len(text):
        return f"The result has {len(text)} characters."
    left = len(text) - offset - MAX_RESULT
    more = f"\n[… {left} more characters: {rest(outcome.session_id, offset + MAX_RESULT)}]" if left > 0 else ""
    return f"{text[offset : offset + MAX_RESULT]}{more}"


def render(outcomes: list[Outcome], user_input: str | None = None) -> str:
    """The prompt of a continuation: the outcomes in mailbox order, then the caller's input."""
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
    return min(MAX_RESULT, max(500, MAX_TOTAL // max(outcomes, 1)))


def _block(outcome: Outcome, limit: int) -> str:
    state, prefix = ("failed", "Error: ") if outcome.failed else ("completed", "")
    return f"## {outcome.name} [{state}] (session: {outcome.session_id})\n{prefix}{outcome.content(limit)}"


def _bounded(session_id: str, text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[… {len(text) - limit} more characters: {rest(session_id, limit)}]"


def rest(session_id: str, offset: int) -> str:
    """How a person, and how an agent, gets the rest."""
    return f"GET /tasks/{session_id}/result, or async_task_result with offset {offset}"

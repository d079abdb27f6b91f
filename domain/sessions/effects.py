"""Effects: the changes that tool calls made in the world, as a session's ledger lists them, and a result's sources."""

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel

from domain.sessions.step import CallState, Effect


class EffectKind(StrEnum):
    FILE = "file"
    COMMAND = "command"
    REQUEST = "request"
    MESSAGE = "message"
    ARTIFACT = "artifact"
    SUBAGENT = "subagent"  # started, messaged or stopped; a dry run starts dry-run subagents
    CALL = "call"  # by a tool that does not declare another kind


class EffectState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"  # it was started and may have happened in full, in part or not at all
    WOULD_HAVE = "would_have"  # a dry run: described, not done


class EffectRecord(BaseModel):
    """One line of the ledger."""

    kind: EffectKind
    tool: str
    description: str
    state: EffectState
    idempotency_key: str
    session_id: str
    started_at: datetime
    ended_at: datetime | None


class Source(BaseModel):
    """Something that the model read, with what is needed to find out later whether it has changed."""

    kind: str  # file | url | context_file | message | answer | session
    name: str
    at: datetime  # when it was read
    sha256: str | None = None


def state_of(state: CallState, *, dry: bool, ended: bool) -> EffectState:
    """The effect's state, derived from its call. Once the session has `ended`, no call is running any more."""
    if state is CallState.STARTED:
        return EffectState.UNKNOWN if ended else EffectState.RUNNING
    if state is CallState.OK:
        return EffectState.WOULD_HAVE if dry else EffectState.DONE
    if state is CallState.FAILED or dry:
        return EffectState.FAILED
    return EffectState.UNKNOWN  # lost, or stopped while it ran


def withheld(kind: EffectKind | None, effect: Effect) -> bool:
    """Whether a dry run describes such a call and does not run it."""
    return effect is not Effect.READ and kind not in (None, EffectKind.SUBAGENT)


def would_have(summary: str) -> str:
    return f"Dry run: this was not done. It would have been: {summary}. Continue as if it had succeeded."

"""Effects: what tool calls changed in the world, as a session's ledger lists them, and the sources of a result."""

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
    CALL = "call"  # of a tool that declares no other kind


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
    """Something the model read, with what is needed to see later whether it has changed."""

    kind: str  # file | url | context_file | message | answer | session
    name: str
    at: datetime  # when it was read
    sha256: str | None = None


def state_of(state: CallState, *, dry: bool, ended: bool) -> EffectState:
    """The effect's state, from the state of its call. Nothing runs any more once its session has `ended`."""
    if state is CallState.STARTED:
        return EffectState.UNKNOWN if ended else EffectState.RUNNING
    if state is CallState.OK:
        return EffectState.WOULD_HAVE if dry else EffectState.DONE
    if state is CallState.FAILED or dry:
        return EffectState.FAILED
    return EffectState.UNKNOWN  # lost, or stopped while it ran


def withheld(kind: EffectKind | None, effect: Effect) -> bool:
    """Whether a dry run describes such a call instead of running it."""
    return effect is not Effect.READ and kind not in (None, EffectKind.SUBAGENT)


def would_have(summary: str) -> str:
    return f"Dry run: this was not done. It would have been: {summary}. Continue as if it had succeeded."

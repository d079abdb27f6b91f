"""Effects: what calls did to the world, as the ledger of a session lists them, and what a result was based on."""

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel

from domain.sessions.step import Effect


class EffectKind(StrEnum):
    FILE = "file"
    COMMAND = "command"
    REQUEST = "request"
    MESSAGE = "message"
    ARTIFACT = "artifact"
    SUBAGENT = "subagent"  # started, told something or stopped; in a dry run it is one itself
    CALL = "call"  # of a tool that says no more about itself


class EffectState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"  # it was begun and may have happened in full, in part or not at all
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
    """Something that entered the context, by which it can be seen later whether it has changed since."""

    kind: str  # file | url | context_file | message | answer | session
    name: str
    at: datetime  # when it was read
    sha256: str | None = None


def state_of(state: str, *, dry: bool, ended: bool) -> EffectState:
    """From the state of a call; `ended`: its session has, so that nothing can still be running."""
    if state == "started":
        return EffectState.UNKNOWN if ended else EffectState.RUNNING
    if state == "ok":
        return EffectState.WOULD_HAVE if dry else EffectState.DONE
    if state == "failed" or dry:
        return EffectState.FAILED
    return EffectState.UNKNOWN  # lost, or stopped while it ran


def withheld(kind: EffectKind | None, effect: Effect) -> bool:
    """Whether a dry run describes such a call instead of making it."""
    return effect is not Effect.READ and kind not in (None, EffectKind.SUBAGENT)


def would_have(summary: str) -> str:
    return f"Dry run: this was not done. It would have been: {summary}. Go on as if it had succeeded."

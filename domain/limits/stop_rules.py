"""The reaction to a model reply: act on its tool calls, ask again, or stop. The rules are checked in this order."""

from enum import StrEnum

from pydantic import BaseModel

from domain.sessions.session import Reason
from domain.sessions.step import ModelReply, StopReason


class Next(StrEnum):
    ACT = "act"  # run the tool calls, then ask again
    ASK_AGAIN = "ask_again"  # nothing to run, but the reply is not final
    COMPACT = "compact"  # the context no longer fits
    STOP = "stop"


class Decision(BaseModel):
    next: Next
    reason: Reason | None = None
    error_type: str | None = None
    error: str | None = None


CUT_OFF = "Your last reply was cut off at the length limit of one reply. Continue from there, in smaller pieces."


def decide(reply: ModelReply) -> Decision:
    if reply.stop_reason is StopReason.DECLINED:
        return Decision(
            next=Next.STOP,
            reason=Reason.ERROR,
            error_type="refusal",
            error="The model declined to continue this task.",
        )
    if reply.calls:
        return Decision(next=Next.ACT)
    if reply.stop_reason is StopReason.CONTEXT_FULL:
        return Decision(next=Next.COMPACT)
    if reply.stop_reason in (StopReason.CUT_OFF, StopReason.PAUSED):
        return Decision(next=Next.ASK_AGAIN)
    return Decision(next=Next.STOP, reason=Reason.GOAL_REACHED)

"""Resetting a conversation: the id and the history stay, and the next message begins with an empty context."""

from api.control import stop as stopping
from api.control.stop import Stop
from api.http import lookup
from api.http.auth import Call
from api.schemas.agent_state import ResetDone
from domain.sessions.session import Reason
from store import resets


async def reset(call: Call, conversation_id: str) -> ResetDone:
    """Drop waiting messages and interrupt the main thread. Subagents keep running, because their outcomes are
    messages."""
    await lookup.own_conversation(call, conversation_id)
    how = Stop(Reason.INTERRUPTED, note="reset")
    done = await resets.reset(call.pool, call.tenant, conversation_id, how.recorded(call))
    if done is None:
        raise lookup.terminated()
    # the rows already hold the new generation and these stops; the signals only speed it up
    await stopping.stop_all(call, done.sessions, how)
    queued = {one.session_id for one in done.dropped}
    return ResetDone(
        conversation_id=conversation_id,
        generation=done.generation,
        at=done.at,
        dropped=done.dropped,
        interrupted=[session_id for session_id in done.sessions if session_id not in queued],
    )

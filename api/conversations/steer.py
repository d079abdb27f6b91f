"""Messages to a running session: stored first, so that they are not lost, then delivered to its conversation."""

import time
from datetime import timedelta

from api.http.auth import Call
from api.http.idempotency import IdempotencyKey
from api.submission.accept import Prepared
from domain.conversations.requests import Steer
from domain.errors import NotFound, Unavailable
from domain.ids import derive_id
from domain.sessions.session import SessionRef
from domain.sessions.session_writes import ThreadMessage
from store import conversations

# For all waits together, of which the one for a start takes at most three. The message is stored, so without an answer
# it is only read later.
ANSWER_WITHIN = timedelta(seconds=5)


def message_id_of(ref: SessionRef, key: IdempotencyKey) -> str:
    """The id of a message: equal for every repetition with one key, so that the message is delivered once."""
    return derive_id(ref.conversation_id, "message", key.value) if key.value else derive_id(ref.session_id, "message")


async def write(call: Call, conversation_id: str, thread_id: str, message_id: str, prepared: Prepared) -> None:
    """Store a message to a thread, with the files that it names, without delivering it."""
    message = ThreadMessage(
        id=message_id,
        conversation_id=conversation_id,
        thread_id=thread_id,
        text=prepared.opening_text,
        author=call.caller.name,
        unsignalled=True,
    )
    files = (prepared.acceptance.session.workspace_id, prepared.files)
    await conversations.add_message(call.pool, call.tenant, message, files)


async def deliver(
    call: Call, conversation_id: str, thread_id: str, message_id: str, live: str, attempt: int = 0
) -> str | None:
    """Deliver a stored message to the running session and return the id of the session that reads it; None if no
    session is running. If the conversation does not answer, it reads the message later.
    """
    ref = SessionRef(tenant=call.tenant, session_id=live, conversation_id=conversation_id)
    began = time.monotonic()
    await call.services.starts.ensure_started(ref)
    left = ANSWER_WITHIN - timedelta(seconds=time.monotonic() - began)
    steer = Steer(request_id=derive_id(message_id, attempt), thread=thread_id, message=message_id)
    try:
        steered = await call.services.workflows.steer(call.tenant, conversation_id, steer, left)
    except Unavailable:  # the update may have arrived although its response was lost
        deliver_later(call, ref, message_id)
        return live
    except NotFound:
        return None
    await conversations.mark_signalled(call.pool, call.tenant, message_id)
    return steered.session_id or live


def deliver_later(call: Call, ref: SessionRef, message_id: str) -> None:
    """Let the conversation find the message in its rows, as soon as it can be reached."""

    async def reload() -> bool:
        await call.services.starts.ensure_started(ref)
        await call.services.workflows.reopen(ref.tenant, ref.conversation_id, reload=True)
        await conversations.mark_signalled(call.pool, call.tenant, message_id)
        return True

    call.services.retry_queue.add(f"the message {message_id}", reload)

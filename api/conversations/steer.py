"""Words for a session at work: written down first, so that they stand; then whoever is at work hears of them."""

from api.auth import Call
from api.http.idempotency import IdempotencyKey
from api.submission.accept import Prepared
from domain.conversations.requests import Steer
from domain.errors import NotFound, Refusal, Unavailable
from domain.ids import derive_id
from domain.sessions.session import SessionRef
from store import conversations


def id_of(ref: SessionRef, key: IdempotencyKey) -> str:
    """The same for every repetition under one key, so that the words are heard once."""
    return derive_id(ref.conversation_id, "words", key.value) if key.value else derive_id(ref.session_id, "words")


async def write(call: Call, conversation_id: str, thread_id: str, message_id: str, prepared: Prepared) -> None:
    """Words for a thread and the files they speak of, before anybody is told of them."""
    await conversations.add_message(
        call.pool,
        call.tenant,
        conversation_id,
        thread_id,
        message_id,
        prepared.opening_text,
        author=call.caller.name,
        untold=True,
        files=(prepared.document["workspace_id"], prepared.files),
    )


async def tell(
    call: Call, conversation_id: str, thread_id: str, message_id: str, live: str, attempt: int = 0
) -> str | None:
    """Let the session at work hear words that were written down: its id, or None if nothing is at work; then nothing
    is left behind. If nobody answers the words stand, and the conversation is told to look for them later."""
    steer = Steer(request_id=derive_id(message_id, attempt), thread=thread_id, message=message_id)
    try:
        heard = await call.services.workflows.steer(call.tenant, conversation_id, steer)
    except Unavailable:
        call.services.retry_queue.add(f"the words {message_id}", lambda: _told(call, conversation_id, message_id))
        return live
    except Refusal as error:
        await conversations.drop_message(call.pool, call.tenant, message_id)
        if isinstance(error, NotFound):
            return None
        raise
    await conversations.told(call.pool, call.tenant, message_id)
    return heard.session_id


async def _told(call: Call, conversation_id: str, message_id: str) -> bool:
    await call.services.workflows.reopen(call.tenant, conversation_id, look=True)
    await conversations.told(call.pool, call.tenant, message_id)
    return True

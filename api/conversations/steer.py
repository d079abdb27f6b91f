"""Words for a session at work: written down first, so that they stand; then whoever is at work hears of them."""

from api.auth import Caller
from api.http.idempotency import IdempotencyKey
from api.services import Services
from api.submission.accept import Prepared
from domain.conversations.requests import Steer
from domain.errors import NotFound, Refusal, Unavailable
from domain.ids import derive_id
from domain.sessions.session import SessionRef
from store import conversations


def id_of(ref: SessionRef, once: IdempotencyKey) -> str:
    """The same for every repetition under one key, so that the words are heard once."""
    return derive_id(ref.conversation_id, "words", once.key) if once.key else derive_id(ref.session_id, "words")


async def write(
    parts: Services, caller: Caller, conversation_id: str, thread_id: str, message_id: str, prepared: Prepared
) -> None:
    """Words for a thread and the files they speak of, before anybody is told of them."""
    await conversations.add_message(
        parts.pool,
        caller.tenant,
        conversation_id,
        thread_id,
        message_id,
        prepared.opening_text,
        author=caller.name,
        untold=True,
        files=(prepared.document["workspace_id"], prepared.files),
    )


async def tell(
    parts: Services, caller: Caller, conversation_id: str, thread_id: str, message_id: str, live: str, attempt: int = 0
) -> str | None:
    """Let the session at work hear words that were written down: its id, or None if nothing is at work; then nothing
    is left behind. If nobody answers the words stand, and the conversation is told to look for them later."""
    steer = Steer(request_id=derive_id(message_id, attempt), thread=thread_id, message=message_id)
    try:
        heard = await parts.door.steer(caller.tenant, conversation_id, steer)
    except Unavailable:
        parts.later.add(f"the words {message_id}", lambda: _told(parts, caller.tenant, conversation_id, message_id))
        return live
    except Refusal as error:
        await conversations.drop_message(parts.pool, caller.tenant, message_id)
        if isinstance(error, NotFound):
            return None
        raise
    await conversations.told(parts.pool, caller.tenant, message_id)
    return heard.session_id


async def _told(parts: Services, tenant: str, conversation_id: str, message_id: str) -> bool:
    await parts.door.reopen(tenant, conversation_id, look=True)
    await conversations.told(parts.pool, tenant, message_id)
    return True

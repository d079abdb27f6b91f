"""Find the session or conversation that a request names. Unknown, malformed and foreign ids look the same."""

from api.auth import ANONYMOUS, Call, Caller
from domain.errors import Conflict, Gone, NotAllowed, NotFound
from domain.ids import is_id
from store import conversations, sessions
from store.conversations import ConversationRow
from store.files import File
from store.keys import Right
from store.sessions import SessionRow


async def session_of(call: Call, session_id: str) -> SessionRow:
    session = await sessions.get(call.pool, call.tenant, session_id) if is_id(session_id) else None
    if session is None:
        raise NotFound()
    return session


def check_kept(session: SessionRow) -> None:
    """Refuse if the content was removed at the end of its retention."""
    if session.content_removed_at is not None:
        raise Gone(
            "The content of this task was removed at the end of its retention; its record still shows how it ended.",
            task_status=session.status,
            reason=session.reason,
            content_removed_at=session.content_removed_at.isoformat(),
        )


async def own_session(call: Call, session_id: str) -> SessionRow:
    """A session that the caller may act on."""
    session = await session_of(call, session_id)
    check_owner(call.caller, session)
    return session


def check_owner(caller: Caller, owned: SessionRow | File) -> None:
    """What another key started or uploaded needs the right supervise; without a key, it is open to everybody."""
    if owned.created_by not in (caller.created_by, ANONYMOUS.created_by) and not caller.may(Right.SUPERVISE):
        detail = "This belongs to another key: acting on it needs a key with the right supervise."
        raise NotAllowed(detail, needed=[Right.SUPERVISE])


async def own_conversation(call: Call, conversation_id: str) -> ConversationRow:
    """A conversation that the caller may stop: the owner of its first session may."""
    found = await conversation_of(call, conversation_id)
    check_owner(call.caller, await session_of(call, conversation_id))
    return found


async def conversation_of(call: Call, conversation_id: str) -> ConversationRow:
    found = await conversations.get(call.pool, call.tenant, conversation_id) if is_id(conversation_id) else None
    if found is None:
        raise NotFound("There is no such conversation.", type="unknown-conversation")
    return found


async def open_conversation(call: Call, conversation_id: str) -> ConversationRow:
    """A conversation that was not terminated."""
    found = await conversation_of(call, conversation_id)
    if found.status == "terminated":
        raise terminated()
    return found


def terminated() -> Conflict:
    return Conflict("The conversation was terminated.", type="conversation-terminated")

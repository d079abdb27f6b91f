"""Finds the session or conversation that a request names. Unknown, malformed and foreign ids get the same refusal."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from api.http.auth import OF_ACCOUNT, Call, Caller
from domain.conversations.mailbox import ConversationStatus
from domain.errors import Conflict, Gone, NotAllowed, NotFound
from domain.ids import is_id
from domain.schedules import Schedule
from store import conversations, sessions
from store.conversations import ConversationRow
from store.database import Pool
from store.files import File
from store.keys import Right
from store.sessions import SessionRow

T = TypeVar("T")


def require_found(found: T | None, detail: str | None = None, type: str | None = None) -> T:
    if found is None:
        raise NotFound(detail, type=type)
    return found


async def find(
    call: Call, read: Callable[[Pool, str, str], Awaitable[T | None]], id: str, detail: str | None = None, **more: str
) -> T:
    # the form first, because any text can come here, and a lookup of it would only cost time
    return require_found(await read(call.pool, call.tenant, id) if is_id(id) else None, detail, **more)


async def session_of(call: Call, session_id: str) -> SessionRow:
    return await find(call, sessions.get, session_id)


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
    await check_acting(call, session)
    return session


async def check_acting(call: Call, session: SessionRow) -> None:
    """Refuse a caller who started neither the session nor its conversation, unless the caller may supervise."""
    if not owns(call.caller, session):
        # the first session has the id of its conversation, and its key may act on all that follow
        check_owner(call.caller, await session_of(call, session.conversation_id))


def owns(caller: Caller, owned: SessionRow | File | Schedule) -> bool:
    """Whether the caller started or uploaded it. Things that were made without a key belong to everybody."""
    return owned.created_by == caller.created_by or owned.created_by.startswith(OF_ACCOUNT)


def check_owner(caller: Caller, owned: SessionRow | File | Schedule, *also: Right) -> None:
    """Require the right supervise, or one of `also`, for what another key started or uploaded."""
    needed = [*also, Right.SUPERVISE]
    if not owns(caller, owned) and not caller.may(*needed):
        detail = f"This belongs to another key: it needs a key with the right {' or '.join(needed)}."
        raise NotAllowed(detail, needed=needed)


async def check_file(call: Call, file: File) -> None:
    """Whether a task may use a file: it reads it. An artifact belongs to the key that started its session."""
    owned = file if file.session_id is None else await session_of(call, file.session_id)
    check_owner(call.caller, owned, Right.READ)


async def own_conversation(call: Call, conversation_id: str) -> ConversationRow:
    """A conversation that the caller may act on, as the owner of its first session may."""
    found = await conversation_of(call, conversation_id)
    if not call.caller.may(Right.SUPERVISE):
        check_owner(call.caller, await session_of(call, conversation_id))
    return found


async def conversation_of(call: Call, conversation_id: str) -> ConversationRow:
    detail = "There is no such conversation."
    return await find(call, conversations.get, conversation_id, detail, type="unknown-conversation")


async def open_conversation(call: Call, conversation_id: str) -> ConversationRow:
    """A conversation that the caller may continue: the caller may act on it, and it was not terminated."""
    found = await own_conversation(call, conversation_id)
    check_open(found)
    return found


def check_open(conversation: ConversationRow) -> None:
    if conversation.status is ConversationStatus.TERMINATED:
        raise refuse_terminated()


def refuse_terminated() -> Conflict:
    return Conflict("The conversation was terminated.", type="conversation-terminated")

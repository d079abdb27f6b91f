"""Running a turn: a root session, a continuation or a fork; and what to do when the thread is at work already."""

import asyncio
from dataclasses import dataclass

from api.auth import Caller
from api.conversations import steer as words
from api.http import lookup
from api.http.idempotency import IdempotencyKey
from api.http.problems import finding
from api.schemas.conversation_bodies import MessageBody, Run
from api.schemas.conversations import Handle, handle, stream_key
from api.services import Services
from api.submission import accept as submit
from api.submission import rules
from api.submission import start as starting
from api.submission.accept import Prepared, SessionPlace
from domain.errors import Conflict, Invalid, NotFound
from store import conversations, idempotency, sessions, workspaces
from store.accepting import Accepted
from store.idempotency import StoredResponse
from store.sessions import SessionRow

TRIES = 4  # a live session may end between two looks at it
PAUSE_SECONDS = 0.2


@dataclass(frozen=True)
class NewTurn:
    """What a run came to."""

    handle: Handle
    replayed: bool = False


async def run(parts: Services, caller: Caller, wish: Run, once: IdempotencyKey) -> NewTurn:
    if (known := await once.answered(parts.pool, caller.tenant)) is not None:
        return NewTurn(Handle.model_validate_json(known), replayed=True)
    if wish.context.history_session and (wish.conversation_id or wish.fork_from):
        problem = finding("/context/history_session", "excluded", "the conversation already has its history")
        raise Invalid("A turn has one history.", errors=[problem])
    if wish.fork_from is not None:
        source = await fork_source(parts, caller, wish.fork_from, wish.conversation_id)
        return await fork(parts, caller, wish, source, once)
    if wish.conversation_id is not None:
        return await further(parts, caller, wish.conversation_id, wish, once)
    if wish.agent is None:
        problem = finding("/agent", "missing", "a new conversation needs an agent")
        raise Invalid("A new conversation needs an agent.", errors=[problem])
    task = await submit.check(parts, caller, wish.task(wish.agent))
    previous = await rules.previous(parts.pool, caller.tenant, task.spec)
    place = SessionPlace(parent=previous, transport=wish.transport, await_children=False)
    return await _own(parts, caller, wish, submit.prepare(parts, caller, task, place), once)


async def further(
    parts: Services, caller: Caller, conversation_id: str, wish: MessageBody, once: IdempotencyKey
) -> NewTurn:
    """A turn of a conversation that exists."""
    if (known := await once.answered(parts.pool, caller.tenant)) is not None:
        return NewTurn(Handle.model_validate_json(known), replayed=True)
    await lookup.open_conversation(parts, caller, conversation_id)
    latest = await latest_of(parts, caller, conversation_id)
    task = await submit.check(parts, caller, wish.task(wish.agent or latest.agent), variables=latest.variables)
    place = SessionPlace(conversation_id, latest.workspace_id, transport=wish.transport, await_children=False)
    turn = await _continue(parts, caller, wish, submit.prepare(parts, caller, task, place), once)
    if (wish.delivery is not None or wish.metadata is not None) and not turn.replayed:
        given = {"delivery": wish.delivery} if wish.delivery is not None else {}
        await conversations.change(parts.pool, caller.tenant, conversation_id, metadata=wish.metadata, **given)
    return turn


async def fork(parts: Services, caller: Caller, wish: MessageBody, source: SessionRow, once: IdempotencyKey) -> NewTurn:
    task = await submit.check(parts, caller, wish.task(wish.agent or source.agent), variables=source.variables)
    _, manifest = await workspaces.get(parts.pool, caller.tenant, source.workspace_id)
    place = SessionPlace(parent=source, manifest=manifest, transport=wish.transport, await_children=False)
    return await _own(parts, caller, wish, submit.prepare(parts, caller, task, place), once)


async def fork_source(
    parts: Services, caller: Caller, session_id: str, conversation_id: str | None = None
) -> SessionRow:
    """A session that can be gone on from: the caller's own, ended, with something said."""
    try:
        source = await lookup.session_of(parts, caller, session_id)
    except NotFound:
        raise NotFound("There is no such session to fork from.", type="unknown-session") from None
    if conversation_id is not None:
        await lookup.conversation_of(parts, caller, conversation_id)
        if source.conversation_id != conversation_id:
            detail = "The session to fork from belongs to another conversation."
            raise Invalid(detail, type="fork-of-another-conversation")
    if not source.committed:
        detail = "Only a session that has ended with an answer can be forked."
        raise Conflict(detail, type="not-committed", task_status=source.status)
    return source


async def latest_of(parts: Services, caller: Caller, conversation_id: str) -> SessionRow:
    """The root thread's newest session, also if it has yet to begin."""
    found = await sessions.newest_of_thread(parts.pool, caller.tenant, conversation_id)
    return found or await lookup.session_of(parts, caller, conversation_id)


async def active_session(parts: Services, caller: Caller, session_id: str) -> dict[str, str]:
    live = await sessions.get(parts.pool, caller.tenant, session_id)
    transport = live.spec.get("transport", "stream") if live else "stream"
    return {"session_id": session_id, "stream_key": stream_key(session_id), "transport": transport}


async def busy(parts: Services, caller: Caller, session_id: str) -> Conflict:
    return Conflict(
        "The conversation is at work on another session.",
        type="conversation-busy",
        active_session=await active_session(parts, caller, session_id),
    )


async def _own(parts: Services, caller: Caller, wish: MessageBody, prepared: Prepared, once: IdempotencyKey) -> NewTurn:
    """A session in a conversation of its own."""
    ref = prepared.ref
    answer = handle(ref.session_id, ref.conversation_id)
    accepted = await submit.accept(
        parts,
        caller,
        prepared,
        once,
        answer.model_dump_json(),
        delivery=wish.delivery,
        metadata=wish.metadata or {},
    )
    if accepted.replay:
        return NewTurn(Handle.model_validate_json(accepted.replay["response"]), replayed=True)
    await starting.start(parts, ref)
    return NewTurn(answer)


async def _continue(
    parts: Services, caller: Caller, wish: MessageBody, prepared: Prepared, once: IdempotencyKey
) -> NewTurn:
    """At once if the thread is at rest; else as the caller wishes."""
    ref = prepared.ref
    live = ""
    if wish.if_busy == "steer" and (before := await _steered_before(parts, caller, prepared, once)) is not None:
        return NewTurn(before)
    for attempt in range(TRIES):
        queue = wish.if_busy == "queue" and attempt > 0
        answer = handle(ref.session_id, ref.conversation_id, queued=queue)
        accepted = await submit.accept(
            parts, caller, prepared, once, answer.model_dump_json(), queue=queue, in_order=True
        )
        _refuse(accepted)
        if accepted.replay:
            return NewTurn(Handle.model_validate_json(accepted.replay["response"]), replayed=True)
        if accepted.busy is None:
            await starting.start(parts, ref)
            return NewTurn(answer)
        live = accepted.busy
        if wish.if_busy == "reject":
            break
        if wish.if_busy == "steer":
            lookup.check_owner(caller, await lookup.session_of(parts, caller, live))
            if (steered := await _steer(parts, caller, prepared, once, attempt, live)) is not None:
                return NewTurn(steered)
            await asyncio.sleep(PAUSE_SECONDS)
    raise await busy(parts, caller, live)


def _refuse(accepted: Accepted) -> None:
    if accepted.terminated:
        raise lookup.terminated()
    if accepted.unknown:
        raise NotFound("There is no such conversation.", type="unknown-conversation")


async def _steer(
    parts: Services, caller: Caller, prepared: Prepared, once: IdempotencyKey, attempt: int, live: str
) -> Handle | None:
    """The words go to the session at work; None if there is none any more."""
    ref = prepared.ref
    thread, message_id = ref.conversation_id, words.id_of(ref, once)
    await words.write(parts, caller, ref.conversation_id, thread, message_id, prepared)
    session_id = await words.tell(parts, caller, ref.conversation_id, thread, message_id, live, attempt)
    if session_id is None:
        return None
    answer = handle(session_id, ref.conversation_id, steered=True)
    await remember(parts, caller, once, answer)
    return answer


async def _steered_before(parts: Services, caller: Caller, prepared: Prepared, once: IdempotencyKey) -> Handle | None:
    """A repetition whose first answer was lost: its words are written down, and may have been heard."""
    ref = prepared.ref
    written = await conversations.message_taken(parts.pool, caller.tenant, words.id_of(ref, once)) if once.key else None
    if written is None:
        return None
    live = written.by or (await latest_of(parts, caller, ref.conversation_id)).id
    session_id: str | None = live
    if written.by is None:
        session_id = await words.tell(
            parts, caller, ref.conversation_id, ref.conversation_id, words.id_of(ref, once), live
        )
    if session_id is None:
        return None
    answer = handle(session_id, ref.conversation_id, steered=True)
    await remember(parts, caller, once, answer)
    return answer


async def remember(parts: Services, caller: Caller, once: IdempotencyKey, answer: Handle) -> None:
    if once.key is not None:
        record = StoredResponse(digest=once.digest, status=202, response=answer.model_dump_json())
        await idempotency.reserve(parts.pool, caller.tenant, once.key, record)

"""Turns of a conversation: the first, a further one, or a fork; each is a session, or a message to the running one."""

import asyncio
import contextlib
from dataclasses import dataclass, replace
from functools import partial

from errand import models
from fastapi import Request, Response

from api.conversations import control
from api.conversations.bodies import MessageBody, RunBody, handle, stream_key
from api.http import lookup
from api.http.auth import Call
from api.http.body import choose_media_type
from api.http.idempotency import IdempotencyKey, one_at_a_time
from api.http.problems import refuse
from api.openapi import Responses, problems
from api.streams.feeds import Feed
from api.streams.readers import stream_feed
from api.submission import rules, submit
from api.submission.submit import Prepared, SessionPlace
from domain.errors import Conflict, Invalid, NotFound, Refusal
from domain.faces import NewFaceRequest
from domain.missions import Hold
from domain.sessions.new_session import TRANSPORT, NewSession, Trigger
from domain.sessions.writes import Acceptance
from store import conversations, idempotency, missions, sessions, workspaces
from store.conversations import ConversationUpdate, Written
from store.sessions import Accepted, SessionRow
from store.workspaces import Manifest

TRIES = 4  # a live session may end between two attempts
PAUSE_SECONDS = 0.2
EXAMPLE = 'event: task_submitted\ndata: {"type": "task_submitted", "seq": 1, "agent": "assistant"}\nid: 1\n\n'


@dataclass(frozen=True)
class NewTurn:
    """The result of a run."""

    handle: models.SessionHandle
    replayed: bool = False


async def find_turn(call: Call, key: IdempotencyKey) -> NewTurn | None:
    """The result of an earlier request with this key."""
    known = await key.replay(call, models.SessionHandle)
    return NewTurn(known, replayed=True) if known is not None else None


async def run(
    call: Call,
    body: RunBody,
    key: IdempotencyKey,
    face: NewFaceRequest | None = None,
    manifest: Manifest | None = None,
) -> NewTurn:
    """`manifest`: the files that a new conversation begins with."""
    # before all checks: a repetition gets the first response even if the same request would be refused now
    if (before := await find_turn(call, key)) is not None:
        return before
    if body.context.history_session and (body.conversation_id or body.fork_from):
        raise refuse("/context/history_session", "excluded", "the conversation already has its history")
    if body.fork_from is not None:
        source = await fork_source(call, body.fork_from, body.conversation_id)
        return await fork(call, body, source, key, face)
    if body.conversation_id is not None:
        return await further(call, body.conversation_id, body, key, face)
    if body.agent is None:
        raise refuse("/agent", "missing", "a new conversation needs an agent")
    task = await submit.check_task(call, body.task(body.agent))
    previous = await rules.find_previous(call, task.spec)
    place = replace(_own_place(body), parent=previous, manifest=manifest or {}, face=face)
    return await _own(call, submit.prepare_session(call, task, place), key)


async def further(
    call: Call, conversation_id: str, body: MessageBody, key: IdempotencyKey, face: NewFaceRequest | None = None
) -> NewTurn:
    """Run a turn of an existing conversation."""
    if (before := await find_turn(call, key)) is not None:
        return before
    await lookup.open_conversation(call, conversation_id)
    latest = await latest_of(call, conversation_id)
    task = await submit.check_task(call, body.task(body.agent or latest.current_agent), variables=latest.variables)
    place = SessionPlace(
        conversation_id,
        latest.workspace_id,
        transport=body.transport,
        await_children=False,
        face=face,
        tree=latest.task.config,
    )
    turn = await _continue(call, body, submit.prepare_session(call, task, place), key)
    # after the turn was accepted, so that a refused request changes nothing
    if (body.delivery is not None or body.metadata is not None) and not turn.replayed:
        update = ConversationUpdate(metadata=body.metadata)
        if body.delivery is not None:
            update.delivery = body.delivery
        await conversations.change(call.pool, call.tenant, conversation_id, update)
    return turn


async def fork(
    call: Call, body: MessageBody, source: SessionRow, key: IdempotencyKey, face: NewFaceRequest | None = None
) -> NewTurn:
    task = await submit.check_task(call, body.task(body.agent or source.current_agent), variables=source.variables)
    _, manifest, _ = await workspaces.get_all(call.pool, call.tenant, source.workspace_id)
    place = replace(
        _own_place(body),
        parent=source,
        manifest=manifest,
        trigger=Trigger.FORK,
        face=face,
        tree=source.task.config,
    )
    return await _own(call, submit.prepare_session(call, task, place), key)


async def fork_source(call: Call, session_id: str, conversation_id: str | None = None) -> SessionRow:
    """A session that can be forked: the caller may act on it, and it ended with a committed step."""
    try:
        source = await lookup.own_session(call, session_id)
    except NotFound:
        raise NotFound("There is no such session to fork from.", type="unknown-session") from None
    if conversation_id is not None:
        await lookup.conversation_of(call, conversation_id)
        if source.conversation_id != conversation_id:
            detail = "The session to fork from belongs to another conversation."
            raise Invalid(detail, type="fork-of-another-conversation")
    if not source.committed:
        detail = "Only a session that has ended with an answer can be forked."
        raise Conflict(detail, type="not-committed", task_status=source.status)
    return source


async def latest_of(call: Call, conversation_id: str) -> SessionRow:
    """The newest session of the root thread, even if it has not started yet."""
    found = await sessions.newest_of_thread(call.pool, call.tenant, conversation_id)
    # the first session has the id of its conversation
    return found or await lookup.session_of(call, conversation_id)


async def active_session(call: Call, session_id: str) -> dict[str, str]:
    live = await sessions.get(call.pool, call.tenant, session_id)
    transport = live.task.transport if live else TRANSPORT
    return {"session_id": session_id, "stream_key": stream_key(session_id), "transport": transport}


async def busy(call: Call, session_id: str) -> Conflict:
    return Conflict(
        "Another session of the conversation is running.",
        type="conversation-busy",
        active_session=await active_session(call, session_id),
    )


def _own_place(body: MessageBody) -> SessionPlace:
    """Open a new conversation."""
    return SessionPlace(
        transport=body.transport, await_children=False, delivery=body.delivery, metadata=body.metadata or {}
    )


async def _own(call: Call, prepared: Prepared, key: IdempotencyKey) -> NewTurn:
    """Accept a session in a new conversation."""
    await call.services.waiting_bound.check(call.tenant)
    answer = handle(prepared.ref.session_id, prepared.ref.conversation_id)
    accepted = await submit.accept_session(call, prepared, key, answer.model_dump_json())
    if accepted.replay:
        return NewTurn(models.SessionHandle.model_validate_json(accepted.replay.response), replayed=True)
    assert accepted.session is not None
    await call.services.starts.start(accepted.session)
    return NewTurn(answer)


async def _continue(call: Call, body: MessageBody, prepared: Prepared, key: IdempotencyKey) -> NewTurn:
    """Run at once if no session of the thread is live; otherwise `if_busy` decides."""
    if body.if_busy != "steer":
        return await _try_to_continue(call, body, prepared, key)
    message_id = control.message_id_of(prepared.ref, key)
    prepared = prepared.with_opening(message_id)  # one message, whether a running session reads it or a new one
    async with one_at_a_time(call, message_id) if key.value is not None else contextlib.nullcontext():
        # the request that we waited for has answered it
        if (before := await find_turn(call, key)) is not None:
            return before
        try:
            return await _try_to_continue(call, body, prepared, key)
        except Refusal:
            await conversations.drop_unsignalled(call.pool, call.tenant, message_id)
            raise


async def _try_to_continue(call: Call, body: MessageBody, prepared: Prepared, key: IdempotencyKey) -> NewTurn:
    ref = prepared.ref
    live, write = "", None
    if await missions.settle_of_conversation(call.pool, call.tenant, ref.conversation_id) is not None:
        write = partial(accept_mission_turn, call, files=prepared.files)
    message_id = control.message_id_of(ref, key)
    steers = body.if_busy == "steer" and key.value is not None
    written = await conversations.get_message_state(call.pool, call.tenant, message_id) if steers else None
    if written is not None:
        if (before := await _find_steered(call, prepared, key, written)) is not None:
            return NewTurn(before)
    # neither for a running session, which needs no other worker, nor once a message is stored, which will be read
    elif await sessions.live_of_thread(call.pool, call.tenant, ref.conversation_id) is None:
        await call.services.waiting_bound.check(call.tenant)
    for attempt in range(TRIES):
        # first without the queue, so that a free conversation runs the turn at once
        queue = body.if_busy == "queue" and attempt > 0
        answer = handle(ref.session_id, ref.conversation_id, queued=queue)
        accepted = await submit.accept_session(call, prepared.with_queue(queue), key, answer.model_dump_json(), write)
        if accepted.replay:
            return NewTurn(models.SessionHandle.model_validate_json(accepted.replay.response), replayed=True)
        if accepted.session is not None:
            await call.services.starts.start(accepted.session)
            return NewTurn(answer)
        if accepted.read_by is not None:
            return NewTurn(await _answer_steered(call, prepared, key, accepted.read_by))
        assert accepted.busy is not None
        live = accepted.busy
        if body.if_busy == "reject":
            break
        if body.if_busy == "steer":
            # None: the session ended between the two statements, so that the turn can now begin on its own
            if (steered := await _steer(call, prepared, key, attempt, live)) is not None:
                return NewTurn(steered)
            await asyncio.sleep(PAUSE_SECONDS)
    if body.if_busy == "steer":  # each session ended too early; whichever is running reads the message, or a new one
        await control.reload_messages(call, ref.conversation_id, message_id)
        return NewTurn(await _answer_steered(call, prepared, key, live))
    raise await busy(call, live)


async def _steer(
    call: Call, prepared: Prepared, key: IdempotencyKey, attempt: int, live: str
) -> models.SessionHandle | None:
    """Pass the message to the running session; None if it has ended by now."""
    ref = prepared.ref
    thread, message_id = ref.conversation_id, control.message_id_of(ref, key)
    # stored before it is delivered, because the update carries only its id
    await control.write_message(call, ref.conversation_id, thread, message_id, prepared)
    session_id = await control.deliver_message(call, ref.conversation_id, thread, message_id, live, attempt)
    return None if session_id is None else await _answer_steered(call, prepared, key, session_id)


async def _answer_steered(call: Call, prepared: Prepared, key: IdempotencyKey, session_id: str) -> models.SessionHandle:
    """The response for a message that this session reads."""
    answer = handle(session_id, prepared.ref.conversation_id, steered=True)
    await remember(call, key, answer)
    return answer


async def _find_steered(
    call: Call, prepared: Prepared, key: IdempotencyKey, written: Written
) -> models.SessionHandle | None:
    """A repetition whose first response was lost: its message is stored, and may have been delivered."""
    ref = prepared.ref
    live = written.by or (await latest_of(call, ref.conversation_id)).id
    session_id: str | None = live
    if written.by is None:
        session_id = await control.deliver_message(
            call, ref.conversation_id, ref.conversation_id, control.message_id_of(ref, key), live
        )
    return None if session_id is None else await _answer_steered(call, prepared, key, session_id)


async def remember(call: Call, key: IdempotencyKey, answer: models.SessionHandle) -> None:
    if (record := key.record(answer.model_dump_json())) is not None:
        with contextlib.suppress(Invalid):  # the message was delivered, even if another request used the key meanwhile
            await idempotency.reserve(call.pool, call.tenant, record)


# Turns in a mission's conversation are runs of the mission, with its budgets, pauses and risks.


async def as_run(call: Call, conversation_id: str, session: NewSession) -> NewSession:
    """The session as a run of the conversation's mission, if it has one; refused while the mission may not run."""
    # settled first: a mission whose budget was spent or that expired a moment ago must not admit another turn
    mission = await missions.settle_of_conversation(call.pool, call.tenant, conversation_id)
    if mission is None:
        return session
    admitted = await missions.admit(call.pool, mission, conversation_id)
    if isinstance(admitted, Hold):
        raise _refuse_held(admitted)
    return missions.mark_session(session, mission)


async def accept_mission_turn(call: Call, acceptance: Acceptance, *, files: Manifest) -> Accepted:
    """A turn in the conversation of a mission."""
    # admission and the new session in one transaction, so that two turns cannot both use the last of a budget
    accepted = await missions.accept_turn(call.pool, acceptance, files)
    if isinstance(accepted, Hold):
        raise _refuse_held(accepted)
    return accepted


def _refuse_held(hold: Hold) -> Conflict:
    return Conflict(f"The mission of this conversation does not run now: {hold.text}.", type=hold.kind)


# The response to a turn: a handle, or the event stream of its session.


def turn_responses(*statuses: int) -> Responses:
    """The `responses` of a route that runs a turn."""
    stream = {"text/event-stream": {"schema": {"type": "string"}, "example": EXAMPLE}}
    return {
        **problems(*statuses),
        200: {"description": "transport=sse: the session's events, until it has ended", "content": stream},
        202: {
            "description": "transport=stream, or the message waits or went to the running session",
            "model": models.SessionHandle,
        },
    }


def check_transport(request: Request, transport: str) -> None:
    """Check, before anything is created, that the caller accepts the media type of the response."""
    if transport == "sse":
        choose_media_type(request, "text/event-stream", "application/json")
    else:
        choose_media_type(request, "application/json")


def respond_turn(call: Call, turn: NewTurn, transport: str) -> Response:
    handle = turn.handle
    headers = {"X-Session-Id": handle.session_id, "X-Conversation-Id": handle.conversation_id}
    if turn.replayed:
        headers["Idempotent-Replayed"] = "true"
    # a queued session may begin much later, and the events of a steered one began with another request
    if transport == "sse" and not handle.queued and not handle.steered:
        return stream_feed(call, Feed(call.tenant, handle.session_id), headers=headers)
    return Response(handle.model_dump_json(), 202, headers, media_type="application/json")

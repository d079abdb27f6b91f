"""Fire a mailbox: its outcomes and the caller's message become one continuation, or nothing happens."""

import asyncio

from errand import models

from api.conversations import run
from api.conversations.bodies import FireBody, handle
from api.conversations.run import NewTurn
from api.http import lookup
from api.http.auth import Call
from api.http.idempotency import IdempotencyKey, one_at_a_time
from api.submission import submit
from domain.conversations.requests import Fire
from domain.errors import Invalid, Refusal, Unavailable
from domain.ids import derive_id, new_id
from domain.sessions.new_session import TREE_FIELDS, NewSession, NotificationConfig, Trigger
from domain.sessions.writes import ThreadMessage
from domain.task import TaskSpec, opening
from store import conversations, idempotency, mailbox, sessions

CHANGED = "mailbox-changed"  # a session consumed some of the outcomes while they were read
PAUSE_SECONDS = 0.3
TITLE = "Outcomes of subagents"
# settings that are taken over from the previous task
KEPT = ("sandbox", "approval_required", "dry_run", "retention", "external_tools")


async def fire(call: Call, conversation_id: str, body: FireBody, key: IdempotencyKey) -> NewTurn:
    if key.value is None:
        return await _fire(call, conversation_id, body, key)
    # two repetitions at once would each forget the reserved key of the other after a refusal
    async with one_at_a_time(call, derive_id(conversation_id, "fire", key.value)):
        return await _find_fired(call, key) or await _fire(call, conversation_id, body, key)


async def _find_fired(call: Call, key: IdempotencyKey) -> NewTurn | None:
    """The response to an earlier request with this key, if that request created its session."""
    known = await key.find_answer(call.pool, call.tenant)
    if known is None:
        return None
    answer = models.SessionHandle.model_validate_json(known)
    made = await sessions.get(call.pool, call.tenant, answer.session_id)
    # the key may be reserved by a request that died before its session was created; then this one creates it
    return NewTurn(answer, replayed=True) if made is not None else None


async def _fire(call: Call, conversation_id: str, body: FireBody, key: IdempotencyKey) -> NewTurn:
    await lookup.open_conversation(call, conversation_id)
    if not await mailbox.has_pending(call.pool, call.tenant, conversation_id):
        raise Invalid("The mailbox is empty: there is nothing to fire.", type="mailbox-empty")
    session = await run.as_run(call, conversation_id, await _continuation(call, conversation_id, body))
    answer = handle(new_id(), conversation_id)
    if (record := key.record(answer.model_dump_json())) is not None:
        # The id is stored first, so that a repetition means this very session even if the response was lost.
        reserved = await idempotency.reserve(call.pool, call.tenant, record)
        answer = models.SessionHandle.model_validate_json(reserved)
    try:
        await _twice(call, body, session, answer)
    except Refusal:
        # A refusal created nothing, so the key is free for another request.
        if key.value is not None and await sessions.get(call.pool, call.tenant, answer.session_id) is None:
            await idempotency.forget(call.pool, call.tenant, key.value)
        raise
    except Unavailable:
        # The conversation may have written the session although its answer was lost; then it will run.
        if await sessions.get(call.pool, call.tenant, answer.session_id) is None:
            raise
    made = await sessions.get(call.pool, call.tenant, answer.session_id)
    waits = made is not None and not made.live and not made.status.terminal
    return NewTurn(answer.model_copy(update={"queued": waits}))


async def _twice(call: Call, body: FireBody, session: NewSession, answer: models.SessionHandle) -> None:
    pool, tenant, session_id = call.pool, call.tenant, answer.session_id
    message_id = derive_id(session_id, "words") if body.input is not None else None
    if message_id is not None:
        thread = answer.conversation_id
        message = ThreadMessage(
            id=message_id,
            conversation_id=thread,
            thread_id=thread,
            text=_message(body),
            author=call.caller.name,
            taken_by=session_id,
        )
        # before the update, which carries only the id of the message: the workflow finds the text in the store
        await conversations.add_message(pool, tenant, message)
    try:
        try:
            await _ask(call, body, session, answer, message_id, attempt=1)
        except Refusal as refusal:
            if refusal.type != CHANGED:
                raise
            await asyncio.sleep(PAUSE_SECONDS)
            # another attempt number makes another update id; with the same one Temporal would repeat the refusal
            await _ask(call, body, session, answer, message_id, attempt=2)
    except Refusal as refusal:
        if message_id is not None:
            await conversations.drop_message(pool, tenant, message_id, taken_by=session_id)
        if refusal.type == "conversation-busy":
            raise await run.busy(call, refusal.extra["active_session"]["session_id"]) from None
        raise


async def _ask(
    call: Call,
    body: FireBody,
    session: NewSession,
    answer: models.SessionHandle,
    message_id: str | None,
    attempt: int,
) -> None:
    await call.services.workflows.fire(
        call.tenant,
        answer.conversation_id,
        Fire(
            request_id=f"{answer.session_id}/{attempt}",
            session_id=answer.session_id,
            session=session,
            input=message_id,
            queue=body.if_busy == "queue",
            live_quota=submit.live_quota(call),
        ),
    )


def _message(body: FireBody) -> str:
    assert body.input is not None
    return opening(TaskSpec.model_construct(agent="", input=body.input), [])


async def _continuation(call: Call, conversation_id: str, body: FireBody) -> NewSession:
    """The part of the continuation that the conversation does not decide. The caller's text is in the inbox, and is not
    sent to the workflow."""
    latest = await run.latest_of(call, conversation_id)
    config = latest.spec.get("config", {})
    spec = TaskSpec.model_validate(
        {
            "agent": body.agent or latest.agent,
            "input": body.input if body.input is not None else TITLE,
            "config": {name: config[name] for name in KEPT if config.get(name) is not None},
            # the rules of the task bind its continuation
            **{name: latest.spec[name] for name in ("permissions", "boundary") if latest.spec.get(name)},
        }
    )
    task = await submit.check_task(call, spec, schema=False, variables=latest.variables)
    place = submit.SessionPlace(
        workspace_id=latest.workspace_id, transport=body.transport, await_children=False, trigger=Trigger.FIRE
    )
    session = submit.build_session(task, latest.title, place, call.caller.created_by)
    kept = {name: config[name] for name in (*NotificationConfig.model_fields, *TREE_FIELDS) if name in config}
    named = spec.model_dump(mode="json", exclude={"input"}, exclude_defaults=True)
    said = {**named, "config": {**named.get("config", {}), **kept}, "transport": body.transport}
    return session.model_copy(update={"spec": said})

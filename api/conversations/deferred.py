"""Messages that answer deferred tools: the calls and approvals for which a session waits."""

from typing import Any

from api.conversations import control
from api.conversations.bodies import MessageBody, handle
from api.conversations.run import NewTurn, find_turn
from api.http import lookup
from api.http.auth import Call
from api.http.idempotency import IdempotencyKey
from api.submission import submit
from api.submission.submit import SessionPlace
from domain.errors import Conflict, Refusal
from domain.faces import FaceRequest
from domain.json_object import JsonObject
from domain.sessions.input_request import DEFERRED, InputRequest, RequestKind
from store import conversations, input_requests, sessions
from store.sessions import SessionRow

# the answers for requests that the message omits
LEFT_OUT: dict[RequestKind, JsonObject] = {
    RequestKind.TOOL_APPROVAL: {"approved": False, "notes": "not answered when the conversation continued"},
    RequestKind.EXTERNAL_RESULT: {"error": "No result was given when the conversation continued."},
}


async def answer(
    call: Call, conversation_id: str, body: MessageBody, key: IdempotencyKey, face: FaceRequest | None = None
) -> NewTurn:
    """Pass these answers to the running session; omitted approvals are denied, omitted calls count as failed. `face` is
    written in the same transaction."""
    if (before := await find_turn(call, key)) is not None:
        return before
    try:
        return await _answer(call, conversation_id, body, key, face)
    except Refusal:
        # A repetition that runs at the same time finds the input requests already answered.
        if (before := await find_turn(call, key)) is not None:
            return before
        raise


async def _answer(
    call: Call, conversation_id: str, body: MessageBody, key: IdempotencyKey, face: FaceRequest | None
) -> NewTurn:
    await lookup.open_conversation(call, conversation_id)
    assert body.answers is not None
    live = await sessions.live_of_thread(call.pool, call.tenant, conversation_id)
    waiting = await input_requests.of_sessions(call.pool, call.tenant, [live.id]) if live else []
    if live is None or not waiting:
        raise Conflict("Nothing in this conversation waits for answers.", type="nothing-waits")
    given = [await _check_answer(call, live, request_id, value) for request_id, value in body.answers.items()]
    rest = [(one, LEFT_OUT[one.kind]) for one in waiting if one.kind in DEFERRED and one.id not in body.answers]
    for one, value in rest:  # to leave out an approval is to deny it, which needs the same right
        await control.check_answer(call.caller, live, one, value)
    # After all checks, and before the answers: the session wakes up with them and must find the message.
    message_id = await _store_message(call, live, body, key)
    reply = handle(live.id, conversation_id, steered=message_id is not None)
    late = await input_requests.answer_all(
        call.pool,
        call.tenant,
        [control.build_answer(call.caller, live, request, value) for request, value in given],
        [control.build_answer(call.caller, live, request, value) for request, value in rest],
        key.record(reply.model_dump_json()),
        face,
    )
    if late is not None:
        # else the first request still needs the message
        if message_id is not None and await find_turn(call, key) is None:
            await conversations.drop_message(call.pool, call.tenant, message_id)
        raise control.refuse_settled(late)
    if message_id is not None:  # before the answers, so that one step reads both
        await control.deliver_message(call, conversation_id, conversation_id, message_id, live.id)
    # one transaction has answered them all, so that a crash in this loop leaves only signals for a sweep
    for request, _ in (*given, *rest):
        await call.services.workflows.signal_answer(live.id, request.id)
    return NewTurn(reply)


async def _check_answer(call: Call, live: SessionRow, request_id: str, value: Any) -> tuple[InputRequest, Any]:
    request = await input_requests.get(call.pool, call.tenant, request_id)
    # ids of another session get the same refusal as unknown ones
    if request is None or request.session_id != live.id:
        raise control.unknown_request(live)
    await control.check_answer(call.caller, live, request, value)
    return request, await control.seal_answer(call, live, request, value)


async def _store_message(call: Call, live: SessionRow, body: MessageBody, key: IdempotencyKey) -> str | None:
    """Store the caller's own message without delivering it."""
    if body.input is None:
        return None
    task = await submit.check_task(call, body.task(live.agent), schema=False, variables=live.variables)
    prepared = submit.prepare_session(call, task, SessionPlace(live.conversation_id, live.workspace_id))
    message_id = control.message_id_of(prepared.ref, key)
    await control.write_message(call, live.conversation_id, live.thread_id, message_id, prepared)
    return message_id

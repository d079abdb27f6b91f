"""Answers that people give to input requests in their channel, with a button or by a message."""

from typing import Any

from jsonschema.exceptions import ValidationError

from api.control import answer as answering
from api.http.auth import Call
from api.http.body import parse_json
from api.http.problems import pointers_moved
from domain.channels import ChannelMessage, ChannelRef, IncomingAnswer
from domain.conversations.address import Address, ArrivingMessage
from domain.errors import ErrandError, NotFound
from domain.ids import is_id
from domain.json_object import JsonObject
from domain.json_schema import errors, fits, run_check
from domain.sessions.input_request import RequestKind, RequestStatus
from domain.sessions.step import preview
from store import channel_answers, channels, input_requests, sessions
from store.channels import ChannelArrival


async def answer(call: Call, connector: str, given: IncomingAnswer) -> bool:
    """Answer a request of the conversation of exactly this address; False if it was already answered."""
    pool, tenant = call.pool, call.tenant
    address = ChannelRef(connector=connector, channel_id=given.channel_id, user_id=given.user_id)
    request = await input_requests.get(pool, tenant, given.request_id) if is_id(given.request_id) else None
    session = await sessions.get(pool, tenant, request.session_id) if request else None
    if request is None or session is None or request.kind is RequestKind.EXTERNAL_EVENT:
        raise NotFound("Nothing waits for an answer from this address.")
    # Buttons carry the request's id, and a person could send another one: the same refusal as for an unknown id.
    if await channels.of_conversation(pool, tenant, session.conversation_id) != address:
        raise NotFound("Nothing waits for an answer from this address.")
    if request.status is not RequestStatus.OPEN:
        return False
    with pointers_moved("/input", "/value"):
        await answering.check(call.caller, request, given.value)
    value = await answering.sealed(call, session, request, given.value)
    written = answering.to_write(call.caller, session, request, value)
    # somebody else answered between the check and this write
    if await input_requests.answer(pool, written) is not None:
        return False
    await answering.signal(call.services, session.id, request.id)
    return True


async def answer_question(
    call: Call, channel: ChannelRef, body: ChannelMessage, message: ArrivingMessage
) -> tuple[ChannelArrival, str, str | None] | None:
    """Let a message answer the oldest open question of its address and thread; returns the question, and why the
    message does not answer it, if so. None if there is no such question. Approvals are never given by a text."""
    pool, tenant = call.pool, call.tenant
    address = Address.channel(channel.connector, channel.channel_id, channel.user_id)
    request_id = await channel_answers.open_question(pool, tenant, address, body.thread)
    request = await input_requests.get(pool, tenant, request_id) if request_id else None
    session = await sessions.get(pool, tenant, request.session_id) if request else None
    if request is None or session is None or request.status is not RequestStatus.OPEN:
        return None
    schema = request.answer_schema
    value, misfits = await run_check(_read_answer, schema, body.text) if schema is not None else (message.text, [])
    if misfits:
        why = "; ".join(preview(one.message, 200) for one in misfits)
        text = f"This does not answer the question ({why}). {request.question}"
        found = await channel_answers.reject(pool, address, message, session, request.id, text)
        return (found, request.id, None if found.arrival.duplicate else why) if found else None
    await answering.check(call.caller, request, value)
    written = answering.to_write(call.caller, session, request, value)
    answered = await channel_answers.answer(pool, address, message, session, written)
    # the question was settled meanwhile, so that the message starts a turn instead
    if answered is None:
        return None
    if not answered.refused and not answered.arrival.duplicate:
        await answering.signal(call.services, session.id, request.id)
    return answered, request.id, None


def _read_answer(schema: JsonObject, text: str) -> tuple[Any, list[ValidationError]]:
    """The text, or its value as JSON if only that fits the schema; with the text's errors if neither does."""
    if not (misfits := errors(schema, text, most=3)):
        return text, []
    try:
        value = parse_json(text.encode())
    except ErrandError:
        return text, misfits
    return (value, []) if fits(schema, value) else (text, misfits)

"""Answers that people give to input requests in their channel, for instance with a button."""

from api.auth import Call
from api.control import answer as answering
from domain.channels import ChannelRef, IncomingAnswer
from domain.errors import NotFound
from domain.ids import is_id
from domain.sessions.input_request import RequestStatus
from store import channels, input_requests, sessions


async def answer(call: Call, connector: str, given: IncomingAnswer) -> bool:
    """Answer a request of the conversation of exactly this address; False if it was already answered."""
    pool, tenant = call.pool, call.tenant
    address = ChannelRef(connector=connector, channel_id=given.channel_id, user_id=given.user_id)
    request = await input_requests.get(pool, tenant, given.request_id) if is_id(given.request_id) else None
    session = await sessions.get(pool, tenant, request.session_id) if request else None
    if request is None or session is None:
        raise NotFound("Nothing waits for an answer from this address.")
    if await channels.of_conversation(pool, tenant, session.conversation_id) != address:
        raise NotFound("Nothing waits for an answer from this address.")
    if request.status is not RequestStatus.OPEN:
        return False
    answering.check(call.caller, request, given.value)
    written = answering.to_write(call.caller, session, request, given.value)
    if await input_requests.answer(pool, written) is not None:
        return False
    await answering.signal(call.services, session.id, request.id)
    return True

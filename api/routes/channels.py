"""/channels: messages of people on other services, by their address; /hooks: signed requests of services."""

import time
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from pydantic import ValidationError

from api.control import reset as resetting
from api.conversations import arrivals, channel_answers
from api.http import body as bodies
from api.http.auth import Call, Caller, Reader, ServicesDep, Stopper, Submitter
from api.http.body import accepts_json, check_input_length, check_text, json_body, parse_json
from api.http.idempotency import IdempotencyKey, Key
from api.http.lookup import own_conversation
from api.http.problems import finding
from api.openapi import BODY, problems, ref, request_body
from api.routes.connectors import connector_of
from api.schemas.agent_state import ResetDone
from api.schemas.channels import AddressRecord, ChannelAccepted, HookAccepted
from connectors import CONNECTORS
from connectors.connector import SignedRequest
from domain.channels import ChannelMessage, ChannelRef, ConnectorKind
from domain.conversations.address import Address
from domain.errors import Invalid, NotFound
from domain.ids import is_id
from domain.json_object import JsonObject
from settings import Settings
from store import addresses, connectors
from store.connectors import Hook
from store.database import current_tenant
from store.keys import Right

router = APIRouter(tags=["channels"])
_json = [Depends(accepts_json)]
_EXAMPLE = {"text": "What is in the workspace?", "message_id": "m-4711"}


_CHALLENGE: JsonObject = {
    "description": "What the service asked to be sent back",
    "content": {"text/plain": {"schema": {"type": "string"}}},
}


def _check_length(value: object, settings: Settings) -> None:
    if isinstance(value, dict):
        check_input_length({"input": value.get("text")}, settings)


def channel_ref(connector: str, channel_id: str, user_id: str) -> ChannelRef:
    given = {"channel_id": channel_id, "user_id": user_id}
    try:
        # a path that is not UTF-8 is decoded to this character: different ids would be one address
        if not (names := [name for name, value in given.items() if "\ufffd" in value]):
            return ChannelRef(connector=connector, **given)
    except ValidationError as error:
        names = [str(one["loc"][0]) for one in error.errors()]
    why = "1 to 255 characters of UTF-8, not blank"
    found = [finding(f"/{name}", "invalid_name", why, place="path") for name in names]
    raise Invalid("A message needs the channel and the user that it comes from.", errors=found)


@router.post(
    "/channels/{connector}/{channel_id}/{user_id}/messages",
    status_code=202,
    dependencies=_json,
    responses=problems(403, 404, 409, *BODY),
    openapi_extra=request_body({"application/json": {"schema": ref(ChannelMessage), "example": _EXAMPLE}}),
    summary="Pass on a message of a person",
)
async def post_message(
    call: Submitter,
    connector: str,
    channel_id: str,
    user_id: str,
    body: Annotated[ChannelMessage, json_body(ChannelMessage, check_value=_check_length)],
    idempotency_key: Key = None,
) -> ChannelAccepted:
    """Connector, channel and user together have one conversation, opened by the first message. Messages are answered in
    order, one at a time. A message with the same `message_id` or Idempotency-Key is accepted once. The answer is sent
    through the connector. If the agent has asked a question there, the next message answers it."""
    channel = channel_ref(connector, channel_id, user_id)
    found = await connector_of(call, connector)
    address = Address.channel(connector, channel_id, user_id)
    if (known := await addresses.find(call.pool, call.tenant, address)) is not None:
        await own_conversation(call, known)  # a key must not write for people whose conversation another key began
    route = f"POST /channels/{connector}/{channel_id}/{user_id}/messages"
    key = IdempotencyKey.of(call, route, body, idempotency_key)
    return await arrivals.accept(call, found.connector, channel, body, key)


@router.get(
    "/channels/{connector}/{channel_id}/{user_id}",
    dependencies=_json,
    responses=problems(404, 422),
    summary="Show the conversation of an address",
)
async def show_address(call: Reader, connector: str, channel_id: str, user_id: str) -> AddressRecord:
    channel = channel_ref(connector, channel_id, user_id)
    return AddressRecord(**channel.model_dump(), conversation_id=await conversation_at(call, channel))


@router.post(
    "/channels/{connector}/{channel_id}/{user_id}/reset",
    dependencies=_json,
    responses=problems(403, 404, 409, 422),
    summary="Reset the conversation of an address",
)
async def reset_address(call: Stopper, connector: str, channel_id: str, user_id: str) -> ResetDone:
    """For a connector's own reset command. The text of a message is never treated as a command here."""
    channel = channel_ref(connector, channel_id, user_id)
    return await resetting.reset(call, await conversation_at(call, channel))


async def conversation_at(call: Call, channel: ChannelRef) -> str:
    address = Address.channel(channel.connector, channel.channel_id, channel.user_id)
    found = await addresses.find(call.pool, call.tenant, address)
    if found is None:
        raise NotFound("Nobody has written from this address.")
    return found


@router.post(
    "/hooks/{connector_id}",
    status_code=202,
    response_class=Response,
    responses={
        **problems(404, 409, *BODY),
        200: _CHALLENGE,
        202: {
            "description": "The sessions that answer, and how many input requests were answered",
            "model": HookAccepted,
        },
    },
    openapi_extra=request_body({"application/json": {"schema": {"type": "object"}}}),
    summary="Receive a signed request of a service",
)
async def receive_hook(request: Request, services: ServicesDep, connector_id: str) -> Response:
    """The request carries no key: the secret of the connector signs it. A repeated request changes nothing."""
    hook = None
    if is_id(connector_id):
        hook = await connectors.of_id(services.pool, connector_id, services.keys)
    if hook is None:
        raise NotFound()
    # the request has no key, so that the middleware has set no tenant; without one no row is visible
    current_tenant.set(hook.tenant)
    raw = await bodies.read_body(request, services.settings.max_body_bytes)
    signed = SignedRequest(headers=dict(request.headers), body=raw, now=time.time())
    received = CONNECTORS[hook.connector.kind].receive(signed, hook.secrets)
    if hook.connector.kind is ConnectorKind.WEBHOOK:
        parse_json(raw)  # all of it, before anything is written
    call = Call(services, _caller(hook))
    accepted = []
    for message in received.messages:
        _check_length(message.model_dump(), services.settings)
        # a connector parses its own format, so that the checks of our JSON parser have not seen this text
        check_text(message.text, "/text")
        channel = channel_ref(hook.connector.name, message.channel_id, message.user_id)
        accepted.append(await arrivals.accept(call, hook.connector, channel, message))
    answered = [await channel_answers.answer(call, hook.connector.name, one) for one in received.answers]
    if received.response:
        return Response(received.response, 200, media_type="text/plain")
    shown = HookAccepted(accepted=accepted, answered=sum(answered))
    return Response(shown.model_dump_json(), 202, media_type="application/json")


def _caller(hook: Hook) -> Caller:
    """The caller for a connector, which may only pass on messages and answers."""
    # neither READ nor SUPERVISE: a leaked signing secret must not open other people's conversations
    rights = frozenset([Right.SUBMIT, Right.ANSWER, Right.APPROVE])
    return Caller(hook.tenant, rights, name=f"connector {hook.connector.name}")

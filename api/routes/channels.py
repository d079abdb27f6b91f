"""/channels: messages of people on other services, by their address; /hooks: signed requests of services; /connectors:
the services that reach agents. Changes of these need the right supervise."""

import re
import time
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, Field, StringConstraints, ValidationError

from api.conversations import arrivals, control
from api.conversations.arrivals import ChannelAccepted
from api.conversations.control import ResetDone
from api.http import body as bodies
from api.http.auth import Call, Caller, Reader, ServicesDep, Stopper, Submitter, Supervisor
from api.http.body import accepts_json, check_input_length, check_text, json_body, parse_json
from api.http.idempotency import IdempotencyKey, Key
from api.http.lookup import own_conversation
from api.http.problems import finding
from api.openapi import BODY, problems, ref, request_body
from api.routes.notifications import check_target
from api.submission import rules
from connectors import CONNECTORS
from connectors.connector import SignedRequest
from domain.channels import (
    CONNECTOR_NAME,
    MAX_DEBOUNCE_MS,
    Address,
    ChannelMessage,
    ChannelRef,
    ConnectorConfig,
    ConnectorKind,
    ConnectorRules,
    ConnectorSecrets,
)
from domain.errors import Conflict, Invalid, NotFound
from domain.ids import current_tenant, is_id
from domain.json_object import JsonObject
from domain.notifications import ChannelName, new_secret, shorten_target
from domain.task import Strict
from settings import Settings
from store import addresses, connectors
from store.connectors import Hook
from store.keys import Right

router = APIRouter(tags=["channels"])
_json = [Depends(accepts_json)]
_EXAMPLE = {"text": "What is in the workspace?", "message_id": "m-4711"}
_CHALLENGE: JsonObject = {
    "description": "What the service asked to be sent back",
    "content": {"text/plain": {"schema": {"type": "string"}}},
}
# printable, because the token is sent as a header
Secret = Annotated[str, StringConstraints(min_length=1, max_length=1_000, pattern=r"^[!-~]+$")]


class ConnectorBody(Strict):
    """The body of PUT /connectors/{connector}."""

    kind: ConnectorKind = Field(strict=False)
    agent: Annotated[str, StringConstraints(min_length=1, max_length=63)] = Field(description="answers the messages")
    target: Annotated[str, StringConstraints(max_length=2_048)] = Field(
        default="", description="URL of a webhook for answers; without one they are read at the address"
    )
    signing_secret: Secret | None = Field(default=None, description="of Slack; a webhook gets one from us")
    token: Secret | None = Field(default=None, description="the bot token of Slack")
    debounce_ms: int = Field(
        default=0,
        ge=0,
        le=MAX_DEBOUNCE_MS,
        description="a message waits so long for the next one, at most 10 s in all; they are answered together",
    )
    merge: bool = Field(default=False, description="messages that wait for their turn are answered together")


class ConnectorRecord(ConnectorConfig):
    hook: str = Field(description="path for the service's own signed requests")


class CreatedConnector(ConnectorRecord):
    secret: str | None = Field(
        description="of a new webhook: signs what you send and verifies what you get. Shown once"
    )


class ConnectorPage(BaseModel):
    items: list[ConnectorRecord]


class AddressRecord(ChannelRef):
    conversation_id: str


class HookAccepted(BaseModel):
    accepted: list[ChannelAccepted]
    answered: int = Field(description="input requests that got an answer")


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
    return await arrivals.accept_message(call, found.connector, channel, body, key)


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
    return await control.reset_conversation(call, await conversation_at(call, channel))


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
        accepted.append(await arrivals.accept_message(call, hook.connector, channel, message))
    answered = [await arrivals.answer_request(call, hook.connector.name, one) for one in received.answers]
    if received.response:
        return Response(received.response, 200, media_type="text/plain")
    shown = HookAccepted(accepted=accepted, answered=sum(answered))
    return Response(shown.model_dump_json(), 202, media_type="application/json")


def _caller(hook: Hook) -> Caller:
    """The caller for a connector, which may only pass on messages and answers."""
    # neither READ nor SUPERVISE: a leaked signing secret must not open other people's conversations
    rights = frozenset([Right.SUBMIT, Right.ANSWER, Right.APPROVE])
    return Caller(hook.tenant, rights, name=f"connector {hook.connector.name}")


# /connectors: the services that reach agents. Changes need the right supervise.

MOST = 100  # per tenant
_CONNECTOR_EXAMPLE = {"kind": "webhook", "agent": "assistant", "target": "https://chat.example.org/errand"}
_NAME = re.compile(CONNECTOR_NAME)


@router.put(
    "/connectors/{connector}",
    dependencies=_json,
    responses=problems(403, 404, 409, *BODY),
    openapi_extra=request_body({"application/json": {"schema": ref(ConnectorBody), "example": _CONNECTOR_EXAMPLE}}),
    summary="Make a connector, or change it",
)
async def put_connector(
    call: Supervisor, connector: str, body: Annotated[ConnectorBody, json_body(ConnectorBody)]
) -> CreatedConnector:
    """Omitted secrets stay as they are."""
    if not _NAME.fullmatch(connector):
        raise _invalid("/connector", "string_pattern_mismatch", f"a name is {CONNECTOR_NAME}")
    await rules.find_agent(call, body.agent)
    known = await connectors.find(call.pool, call.tenant, connector, call.services.keys)
    if known is not None and known.connector.kind is not body.kind:
        raise Conflict("The connector has another kind; remove it first.")
    if known is None and len(await connectors.list_all(call.pool, call.tenant)) >= MOST:
        raise Conflict(f"There may be at most {MOST} connectors.")
    _check(call, body)
    secrets, shown = _secrets(body, known)
    # only the host: the address may contain a token, and is stored among the secrets
    target = shorten_target(ChannelName.WEBHOOK, body.target) if body.target else ""
    given = ConnectorRules.model_validate(body.model_dump() | {"target": target})
    by, keys = call.caller.created_by, call.services.keys
    made = await connectors.put(call.pool, call.tenant, connector, given, secrets, by, keys)
    return CreatedConnector(**_record(made).model_dump(), secret=shown)


@router.get("/connectors", dependencies=_json, responses=problems(), summary="List the connectors")
async def list_connectors(call: Reader) -> ConnectorPage:
    return ConnectorPage(items=[_record(one) for one in await connectors.list_all(call.pool, call.tenant)])


@router.delete(
    "/connectors/{connector}",
    dependencies=_json,
    status_code=204,
    responses=problems(403, 404),
    summary="Remove a connector",
)
async def remove_connector(call: Supervisor, connector: str) -> Response:
    """Its conversations stay; undelivered answers end as failed."""
    await connector_of(call, connector)
    await connectors.remove(call.pool, call.tenant, connector, call.caller.created_by)
    return Response(status_code=204)


async def connector_of(call: Call, name: str) -> Hook:
    found = None
    if _NAME.fullmatch(name):
        found = await connectors.find(call.pool, call.tenant, name, call.services.keys)
    if found is None:
        raise NotFound("There is no such connector.")
    return found


def _check(call: Call, body: ConnectorBody) -> None:
    if body.kind not in CONNECTORS:
        raise _invalid("/kind", "not_available", "there is no such connector here")
    if body.kind is ConnectorKind.EMAIL and not call.settings.smtp_host:
        raise _invalid("/kind", "not_available", "no mail server is set")
    if body.kind is not ConnectorKind.WEBHOOK and body.target:
        raise _invalid(
            "/target",
            "excluded",
            "only a webhook has one: Slack is where the operator says, and e-mail goes to the user id of the channel",
        )
    if body.target:
        check_target(ChannelName.WEBHOOK, body.target, call.settings)
    if body.kind is not ConnectorKind.SLACK and (body.signing_secret or body.token):
        raise _invalid("/signing_secret", "excluded", "only Slack has its own secrets")


def _secrets(body: ConnectorBody, known: Hook | None) -> tuple[ConnectorSecrets, str | None]:
    """The secrets to store, and the one to show."""
    before = known.secrets if known else ConnectorSecrets()
    if body.kind is ConnectorKind.WEBHOOK:
        # kept on a change, because the service at the other end signs with it
        made = ConnectorSecrets(target=body.target, signing=before.signing or new_secret())
        return made, made.signing if known is None else None
    given = ConnectorSecrets(signing=body.signing_secret or before.signing, token=body.token or before.token)
    if body.kind is ConnectorKind.SLACK and not (given.signing and given.token):
        raise _invalid("/signing_secret", "missing", "Slack needs its signing secret and a bot token")
    return given, None


def _record(one: ConnectorConfig) -> ConnectorRecord:
    return ConnectorRecord(**one.model_dump(), hook=f"/hooks/{one.id}")


def _invalid(pointer: str, code: str, message: str) -> Invalid:
    return Invalid("The connector is not valid.", errors=[finding(pointer, code, message)])

"""/channels: messages of people on other services, by their address; /hooks: signed requests of services; /connectors:
the services that reach agents. Changes of these need the right supervise."""

import asyncio
import contextlib
import re
import time
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field, StringConstraints, ValidationError

from api.conversations import control
from api.conversations.bodies import stream_key
from api.conversations.control import ResetDone
from api.http import body as bodies
from api.http import lookup
from api.http.auth import Call, Caller, Reader, ServicesDep, Stopper, Submitter, Supervisor
from api.http.body import check_input_length, check_text, json_body, parse_json
from api.http.idempotency import IdempotencyKey, Key
from api.http.lookup import own_conversation, require_found
from api.http.problems import finding, pointers_moved, refuse
from api.openapi import BODY, problems, request_body
from api.routes.notifications import EMAIL, check_target
from api.submission import rules, submit
from api.submission.submit import SessionPlace
from connectors import CONNECTORS
from connectors.connector import SignedRequest
from domain.channels import (
    CONNECTOR_NAME,
    MAX_DEBOUNCE_MS,
    Address,
    ArrivingMessage,
    ChannelMessage,
    ChannelRef,
    ConnectorConfig,
    ConnectorKind,
    ConnectorRules,
    ConnectorSecrets,
    IncomingAnswer,
    message_key,
)
from domain.errors import Conflict, ErrandError, Invalid, NotFound
from domain.ids import current_tenant, is_id, new_id
from domain.json_object import JsonObject
from domain.json_schema import fits, run_check
from domain.notifications import ChannelName, new_secret, shorten_target
from domain.sessions.input_request import RequestStatus
from domain.sessions.new_session import NewSession, Trigger
from domain.task import Strict, TaskContext, TaskSpec, title_of
from settings import Settings
from store import addresses, channels, connectors, input_requests, sessions
from store.channels import ChannelArrival
from store.connectors import Hook
from store.keys import Right
from store.sessions import SessionRow

router = APIRouter(tags=["channels"])
_EXAMPLE = {"text": "What is in the workspace?", "message_id": "m-4711"}
_CHALLENGE: JsonObject = {
    "description": "What the service asked to be sent back",
    "content": {"text/plain": {"schema": {"type": "string"}}},
}
_starts: set["asyncio.Task[None]"] = set()  # starts that wait; the event loop itself keeps only weak references
# printable, because the token is sent as a header
Secret = Annotated[str, StringConstraints(min_length=1, max_length=1_000, pattern=r"^[!-~]+$")]


class ConnectorBody(Strict):
    """The body of PUT /connectors/{connector}."""

    kind: ConnectorKind = Field(strict=False)
    agent: Annotated[str, StringConstraints(min_length=1, max_length=63)] = Field(description="answers the messages")
    target: Annotated[str, StringConstraints(max_length=2_048)] = Field(
        default="", description="URL of a webhook for answers; without one they are in the turns of the conversation"
    )
    signing_secret: Secret | None = Field(default=None, description="of Slack; a webhook gets one from us")
    token: Secret | None = Field(default=None, description="the bot token of Slack")
    debounce_ms: int = Field(
        default=0,
        ge=0,
        le=MAX_DEBOUNCE_MS,
        description="above 0: messages that wait are answered together, and a first one waits this long for others",
    )


class ConnectorRecord(ConnectorConfig):
    hook: str = Field(description="path for the service's own signed requests")


class CreatedConnector(ConnectorRecord):
    secret: str | None = Field(
        description="of a new webhook: signs what you send and verifies what you get. Shown once"
    )


class ConnectorPage(BaseModel):
    items: list[ConnectorRecord]


class ChannelAccepted(BaseModel):
    """The session that answers a message."""

    conversation_id: str
    session_id: str | None = Field(description="null: it waits for the next message, as it is not to wake the agent")
    stream_key: str | None
    queued: bool = Field(description="it waits until the running session ends")
    merged: bool = Field(description="a session that has not begun answers it together with earlier messages")
    duplicate: bool = Field(description="this message was accepted before; nothing was changed")
    answered: str | None = Field(default=None, description="the input request of the session that it answers")


class HookAccepted(BaseModel):
    accepted: list[ChannelAccepted]
    answered: int = Field(description="input requests that got an answer")


def _check_length(value: object, settings: Settings) -> None:
    if isinstance(value, dict):
        check_input_length({"input": value.get("text")}, settings)


def _address(channel: ChannelRef) -> Address:
    return Address.channel(channel.connector, channel.channel_id, channel.user_id)


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
    responses=problems(409),
    summary="Pass on a message of a person",
)
async def post_message(
    call: Submitter,
    connector: str,
    channel_id: str,
    user_id: str,
    body: Annotated[ChannelMessage, json_body(ChannelMessage, check_value=_check_length, example=_EXAMPLE)],
    idempotency_key: Key = None,
) -> ChannelAccepted:
    """Connector, channel and user together have one conversation, opened by the first message. Messages are answered in
    order, one at a time. A message with the same `message_id` or Idempotency-Key is accepted once. The answer is sent
    through the connector. If the agent has asked a question there, the next message answers it."""
    channel = channel_ref(connector, channel_id, user_id)
    found = await connector_of(call, connector)
    if (known := await addresses.find(call.pool, call.tenant, _address(channel))) is not None:
        await own_conversation(call, known)  # a key must not write for people whose conversation another key began
    route = f"POST /channels/{connector}/{channel_id}/{user_id}/messages"
    key = IdempotencyKey.of(call, route, body, idempotency_key)
    return await _accept_message(call, found.connector, channel, body, key)


@router.post(
    "/channels/{connector}/{channel_id}/{user_id}/reset",
    responses=problems(409, 422),
    summary="Reset the conversation of an address",
)
async def reset_address(call: Stopper, connector: str, channel_id: str, user_id: str) -> ResetDone:
    """For a connector's own reset command. The text of a message is never treated as a command here."""
    channel = channel_ref(connector, channel_id, user_id)
    found = await addresses.find(call.pool, call.tenant, _address(channel))
    return await control.reset_conversation(call, require_found(found, "Nobody has written from this address."))


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
    hook = require_found(
        await connectors.of_id(services.pool, connector_id, services.keys) if is_id(connector_id) else None
    )
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
        accepted.append(await _accept_message(call, hook.connector, channel, message))
    answered = [await _answer_request(call, hook.connector.name, one) for one in received.answers]
    if received.response:
        return Response(received.response, 200, media_type="text/plain")
    shown = HookAccepted(accepted=accepted, answered=sum(answered))
    return Response(shown.model_dump_json(), 202, media_type="application/json")


def _caller(hook: Hook) -> Caller:
    """The caller for a connector, which may only pass on messages and answers."""
    # neither READ nor SUPERVISE: a leaked signing secret must not open other people's conversations
    rights = frozenset([Right.SUBMIT, Right.ANSWER, Right.APPROVE])
    return Caller(hook.tenant, rights, name=f"connector {hook.connector.name}")


# A message of a channel: checked as a task of the connector's agent, accepted at its address, and started.


async def _accept_message(
    call: Call, connector: ConnectorConfig, channel: ChannelRef, body: ChannelMessage, key: IdempotencyKey | None = None
) -> ChannelAccepted:
    """Accept a message once. `key` identifies it if the service gave it no id."""
    record = key.record("") if key else None
    if connector.kind is ConnectorKind.EMAIL and not EMAIL.fullmatch(channel.user_id):
        raise refuse("/user_id", "invalid_address", "must be one e-mail address", ["name@example.org"])
    task, session = await _session(call, connector, body)
    message = ArrivingMessage(
        key=message_key(body.message_id) if body.message_id else f"key/{record.key}" if record else new_id(),
        text=task.opening,
        author=channel.user_id,
        visible=body.visible,
        session=session,
        files=task.files,
        shown=task.shown.blocks,
        idempotency=record,
        live_quota=submit.live_quota(call),
    )
    if not body.wake:
        return await _silent(call, channel, message)
    # an answer is shown with its request, and an invisible message must be shown nowhere
    if body.visible and (answered := await _answer_question(call, channel, body, message)) is not None:
        arrived, request_id = answered
        return _show(arrived, None if arrived.arrival.duplicate else request_id)
    found = await channels.accept(call.pool, call.tenant, channel, message, merge=connector.debounce_ms > 0)
    arrival = found.arrival
    if arrival.refused is not None:
        raise submit.refusal(arrival.refused) or Conflict()
    assert arrival.session is not None
    # the request that accepted the first one starts the session, or else a sweep
    if not arrival.duplicate and not found.merged:
        await _start(call, arrival.session, connector.debounce_ms / 1_000)
    return _show(found)


def _show(found: ChannelArrival, answered: str | None = None) -> ChannelAccepted:
    session = found.arrival.session
    assert session is not None
    return ChannelAccepted(
        conversation_id=session.conversation_id,
        session_id=session.id,
        stream_key=stream_key(session.id),
        queued=session.queued,
        merged=found.merged,
        duplicate=found.arrival.duplicate,
        answered=answered,
    )


async def _silent(call: Call, channel: ChannelRef, message: ArrivingMessage) -> ChannelAccepted:
    if message.files:
        raise refuse("/files", "excluded", "send them with one")
    conversation_id = await addresses.find(call.pool, call.tenant, _address(channel))
    if conversation_id is None:
        # a silent message opens no conversation, because nobody would ever see it there
        raise Conflict("Nobody has written from this address: there is no conversation to enter silently.")
    await lookup.open_conversation(call, conversation_id)
    found = await channels.add_silent(call.pool, call.tenant, conversation_id, message)
    return ChannelAccepted(
        conversation_id=conversation_id,
        session_id=None,
        stream_key=None,
        queued=True,
        merged=False,
        duplicate=found.arrival.duplicate,
    )


async def _session(call: Call, connector: ConnectorConfig, body: ChannelMessage) -> tuple[submit.Checked, NewSession]:
    """The message as a task, and its session."""
    # not validated again: ChannelMessage has checked the same limits
    context = TaskContext.model_construct(files=body.files)
    spec = TaskSpec.model_construct(agent=connector.agent, input=body.text, context=context)
    with pointers_moved("/context", ""):
        task = await submit.check_task(call, spec, schema=False)
    place = SessionPlace(await_children=False, trigger=Trigger.CHANNEL)
    session = submit.build_session(task, title_of(spec), place, call.caller.created_by)
    channel = {"message_id": body.message_id, "thread": body.thread}
    session = session.model_copy(update={"spec": {**session.spec, "channel": channel, "visible": body.visible}})
    if not body.visible:
        # titles are shown in lists, where the text must not appear
        session = session.model_copy(update={"title": "(a message that is not shown)"})
    return task, session


async def _start(call: Call, session: SessionRow, delay_s: float) -> None:
    """Start the session, after the time in which others may join it. If this process ends first, a sweep starts it."""
    if not delay_s:
        await call.services.starts.start(session)
        return

    async def later() -> None:
        await asyncio.sleep(delay_s)
        await call.services.starts.start(session)

    task = asyncio.create_task(later())
    _starts.add(task)
    task.add_done_callback(_starts.discard)


# Answers that people give to input requests in their channel, with a button or by a message.


async def _answer_request(call: Call, connector: str, given: IncomingAnswer) -> bool:
    """Answer a request of the conversation of exactly this address; False if it was already answered."""
    pool, tenant = call.pool, call.tenant
    address = ChannelRef(connector=connector, channel_id=given.channel_id, user_id=given.user_id)
    request = await input_requests.get(pool, tenant, given.request_id) if is_id(given.request_id) else None
    session = await sessions.get(pool, tenant, request.session_id) if request else None
    if request is None or session is None:
        raise NotFound("Nothing waits for an answer from this address.")
    # Buttons carry the request's id, and a person could send another one: the same refusal as for an unknown id.
    if await channels.of_conversation(pool, tenant, session.conversation_id) != address:
        raise NotFound("Nothing waits for an answer from this address.")
    if request.status is not RequestStatus.OPEN:
        return False
    with pointers_moved("/input", "/value"):
        await control.check_answer(call.caller, session, request, given.value)
    value = await control.seal_answer(call, session, request, given.value)
    written = control.build_answer(call.caller, session, request, value)
    # somebody else answered between the check and this write
    if await input_requests.answer(pool, written) is not None:
        return False
    await call.services.workflows.signal_answer(session.id, request.id)
    return True


async def _answer_question(
    call: Call, channel: ChannelRef, body: ChannelMessage, message: ArrivingMessage
) -> tuple[ChannelArrival, str] | None:
    """Let a message answer the oldest open question of its address and thread; returns the question. None if there is
    none, or if the text does not fit it. Approvals are never given by a text."""
    pool, tenant = call.pool, call.tenant
    address = _address(channel)
    request_id = await channels.find_open_question(pool, tenant, address, body.thread)
    request = await input_requests.get(pool, tenant, request_id) if request_id else None
    session = await sessions.get(pool, tenant, request.session_id) if request else None
    if request is None or session is None or request.status is not RequestStatus.OPEN:
        return None
    schema = request.answer_schema
    values = await run_check(_read_answer, schema, body.text) if schema is not None else [message.text]
    if not values:
        return None
    await control.check_answer(call.caller, session, request, values[0])
    written = control.build_answer(call.caller, session, request, values[0])
    answered = await channels.answer_question(pool, address, message, session, written)
    # the question was settled meanwhile, so that the message starts a turn instead
    if answered is None:
        return None
    if not answered.arrival.duplicate:
        await call.services.workflows.signal_answer(session.id, request.id)
    return answered, request.id


def _read_answer(schema: JsonObject, text: str) -> list[Any]:
    """The text and its value as JSON, those that fit the schema."""
    values: list[Any] = [text]
    with contextlib.suppress(ErrandError):
        values.append(parse_json(text.encode()))
    return [one for one in values if fits(schema, one)]


# /connectors: the services that reach agents. Changes need the right supervise.

MOST = 100  # per tenant
_CONNECTOR_EXAMPLE = {"kind": "webhook", "agent": "assistant", "target": "https://chat.example.org/errand"}
_NAME = re.compile(CONNECTOR_NAME)
_ONLY = {"target": ConnectorKind.WEBHOOK, "signing_secret": ConnectorKind.SLACK, "token": ConnectorKind.SLACK}


@router.put("/connectors/{connector}", responses=problems(409), summary="Make a connector, or change it")
async def put_connector(
    call: Supervisor,
    connector: str,
    body: Annotated[ConnectorBody, json_body(ConnectorBody, example=_CONNECTOR_EXAMPLE)],
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


@router.get("/connectors", summary="List the connectors")
async def list_connectors(call: Reader) -> ConnectorPage:
    return ConnectorPage(items=[_record(one) for one in await connectors.list_all(call.pool, call.tenant)])


@router.delete("/connectors/{connector}", status_code=204, summary="Remove a connector")
async def remove_connector(call: Supervisor, connector: str) -> Response:
    """Its conversations stay; undelivered answers end as failed."""
    await connector_of(call, connector)
    await connectors.remove(call.pool, call.tenant, connector, call.caller.created_by)
    return Response(status_code=204)


async def connector_of(call: Call, name: str) -> Hook:
    fits = _NAME.fullmatch(name)
    found = await connectors.find(call.pool, call.tenant, name, call.services.keys) if fits else None
    return require_found(found, "There is no such connector.")


def _check(call: Call, body: ConnectorBody) -> None:
    if body.kind is ConnectorKind.EMAIL and not call.settings.smtp_host:
        raise _invalid("/kind", "not_available", "no mail server is set")
    # Slack is where the operator says, and e-mail goes to the user id of the channel
    for name, kind in _ONLY.items():
        if getattr(body, name) and body.kind is not kind:
            raise _invalid(f"/{name}", "excluded", f"only for connectors of the kind {kind}")
    if body.target:
        check_target(ChannelName.WEBHOOK, body.target, call.settings)


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

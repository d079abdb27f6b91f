"""What arrives from elsewhere: a message of a channel, an answer that a person gives there, a signed event.

Each is checked, decided once under the key that its service gave it, and then signalled; the rows say what is left.
"""

import asyncio
import hashlib
import logging
import re
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import parse_qs

from errand.models import EventAccepted
from jsonschema.exceptions import ValidationError
from pydantic import BaseModel, Field

from api.conversations import control
from api.conversations.bodies import stream_key
from api.http import lookup
from api.http.auth import Call
from api.http.body import decode_text, parse_json
from api.http.idempotency import IdempotencyKey
from api.http.problems import Unauthenticated, finding, pointers_moved
from api.services import Services
from api.submission import submit
from api.submission.submit import SessionPlace
from api.views.texts import compute
from domain.channels import (
    Address,
    ArrivingMessage,
    ChannelMessage,
    ChannelRef,
    ConnectorConfig,
    ConnectorKind,
    IncomingAnswer,
    message_key,
)
from domain.errors import Conflict, ErrandError, Invalid, NotAllowed, NotFound
from domain.ids import is_id, new_id
from domain.json_object import JsonObject
from domain.json_schema import errors, fits, run_check
from domain.sessions.input_request import RequestKind, RequestStatus
from domain.sessions.new_session import NewSession, Trigger
from domain.sessions.session import preview
from domain.signatures import check_github, check_slack, check_standard_webhook
from domain.task import TaskContext, TaskSpec, title_of
from domain.triggers import Condition, ExternalEvent, SignatureKind, mark_untrusted, render_key
from store import addresses, channels, input_requests, missions, sessions, triggers
from store.channels import ChannelArrival
from store.sessions import SessionRow
from store.triggers import NewEvent, SignedTrigger

log = logging.getLogger("errand.api")
_EMAIL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*")
_TYPE = re.compile(r"[A-Za-z0-9._:/-]{1,100}")
_ID = re.compile(r"[!-~]{1,200}")
_starts: set["asyncio.Task[None]"] = set()  # debounced starts; the event loop itself keeps only weak references


class ChannelAccepted(BaseModel):
    """The session that answers a message."""

    conversation_id: str
    session_id: str | None = Field(description="null: it waits for the next message, as it is not to wake the agent")
    stream_key: str | None
    queued: bool = Field(description="it waits until the running session ends")
    merged: bool = Field(description="a session that has not begun answers it together with earlier messages")
    duplicate: bool = Field(description="this message was accepted before; nothing was changed")
    answered: str | None = Field(default=None, description="the input request of the session that it answers")
    rejected: str | None = Field(
        default=None, description="why it does not answer the open question; the person is asked again"
    )


# A message of a channel: checked as a task of the connector's agent, accepted at its address, and started.


async def accept_message(
    call: Call, connector: ConnectorConfig, channel: ChannelRef, body: ChannelMessage, key: IdempotencyKey | None = None
) -> ChannelAccepted:
    """Accept a message once. `key` identifies it if the service gave it no id."""
    record = key.record("") if key else None
    if connector.kind is ConnectorKind.EMAIL and not _EMAIL.fullmatch(channel.user_id):
        problem = finding("/user_id", "invalid_address", "must be one e-mail address", ["name@example.org"])
        raise Invalid(
            "Answers of this connector are sent to the user id, which is not an e-mail address.", errors=[problem]
        )
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
    if body.visible and (answered := await answer_question(call, channel, body, message)) is not None:
        arrived, request_id, rejected = answered
        return _show(arrived, None if arrived.arrival.duplicate or rejected else request_id, rejected)
    debounced = connector.debounce_ms > 0
    # merge and debounce are decided under the lock of the address, so that of two messages only one starts a session
    found = await channels.accept(
        call.pool, call.tenant, channel, message, merge=connector.merge or debounced, wait=debounced
    )
    arrival = found.arrival
    if arrival.refused is not None:
        raise submit.refusal(arrival.refused) or Conflict()
    assert arrival.session is not None
    # the request that accepted the first one starts the session, or else a sweep
    if not arrival.duplicate and not found.merged:
        await _start(call, arrival.session, connector.debounce_ms / 1_000)
    return _show(found)


def _show(found: ChannelArrival, answered: str | None = None, rejected: str | None = None) -> ChannelAccepted:
    session = found.arrival.session
    assert session is not None
    return ChannelAccepted(
        conversation_id=session.conversation_id,
        session_id=session.id,
        stream_key=stream_key(session.id),
        queued=not session.live and not session.status.terminal,
        merged=found.merged,
        duplicate=found.arrival.duplicate,
        answered=answered,
        rejected=rejected,
    )


async def _silent(call: Call, channel: ChannelRef, message: ArrivingMessage) -> ChannelAccepted:
    if message.files:
        raise Invalid("A silent message brings no files.", errors=[finding("/files", "excluded", "send them with one")])
    address = Address.channel(channel.connector, channel.channel_id, channel.user_id)
    conversation_id = await addresses.find(call.pool, call.tenant, address)
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


async def _start(call: Call, session: SessionRow, delay: float) -> None:
    if not delay:
        await call.services.starts.start(session)
        return

    async def later() -> None:
        """Start the session a debounce time after its last message. If this process ends first, a sweep starts
        it."""
        left = delay
        while left > 0:
            await asyncio.sleep(left)
            # read from the database, because another process may have accepted the latest message
            left = await channels.debounce_left(call.pool, session.ref, delay)
        await call.services.starts.start(session)

    task = asyncio.create_task(later())
    _starts.add(task)
    task.add_done_callback(_starts.discard)


# Answers that people give to input requests in their channel, with a button or by a message.


async def answer_request(call: Call, connector: str, given: IncomingAnswer) -> bool:
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
        await control.check_answer(call.caller, request, given.value)
    value = await control.seal_answer(call, session, request, given.value)
    written = control.build_answer(call.caller, session, request, value)
    # somebody else answered between the check and this write
    if await input_requests.answer(pool, written) is not None:
        return False
    await control.signal_answer(call.services, session.id, request.id)
    return True


async def answer_question(
    call: Call, channel: ChannelRef, body: ChannelMessage, message: ArrivingMessage
) -> tuple[ChannelArrival, str, str | None] | None:
    """Let a message answer the oldest open question of its address and thread; returns the question, and why the
    message does not answer it, if so. None if there is no such question. Approvals are never given by a text."""
    pool, tenant = call.pool, call.tenant
    address = Address.channel(channel.connector, channel.channel_id, channel.user_id)
    request_id = await channels.find_open_question(pool, tenant, address, body.thread)
    request = await input_requests.get(pool, tenant, request_id) if request_id else None
    session = await sessions.get(pool, tenant, request.session_id) if request else None
    if request is None or session is None or request.status is not RequestStatus.OPEN:
        return None
    schema = request.answer_schema
    value, misfits = await run_check(_read_answer, schema, body.text) if schema is not None else (message.text, [])
    if misfits:
        why = "; ".join(preview(one.message, 200) for one in misfits)
        text = f"This does not answer the question ({why}). {request.question}"
        found = await channels.reject_answer(pool, address, message, session, request.id, text)
        return (found, request.id, None if found.arrival.duplicate else why) if found else None
    await control.check_answer(call.caller, request, value)
    written = control.build_answer(call.caller, session, request, value)
    answered = await channels.answer_question(pool, address, message, session, written)
    # the question was settled meanwhile, so that the message starts a turn instead
    if answered is None:
        return None
    if not answered.arrival.duplicate:
        await control.signal_answer(call.services, session.id, request.id)
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


# Signed events: verified, parsed, filtered, and decided once. Sessions that an event starts or answers are signalled
# afterwards.


def find_signer(candidates: list[SignedTrigger], headers: Mapping[str, str], body: bytes) -> SignedTrigger:
    """The trigger whose secret signed the event; several tenants may have a trigger of this name."""
    problem: NotAllowed | None = None
    found: list[SignedTrigger] = []
    for one in candidates:
        try:
            _verify(one, headers, body)
            found.append(one)
        except NotAllowed as error:
            problem = error
    # with two tenants of one name and one secret, the event could reach the wrong one
    if len(found) != 1:
        detail = problem.detail if problem else "Several triggers have this name and secret; use the trigger's id."
        raise Unauthenticated(detail, type="bad-signature")
    return found[0]


def _verify(one: SignedTrigger, headers: Mapping[str, str], body: bytes) -> None:
    kind = one.trigger.rules.signature
    if kind is SignatureKind.GITHUB:
        check_github(one.secret, headers, body)
    elif kind is SignatureKind.SLACK:
        check_slack(one.secret, headers, body, time.time())
    else:
        check_standard_webhook([one.secret], headers, body, time.time())


def read_event(kind: SignatureKind, headers: Mapping[str, str], body: bytes) -> tuple[ExternalEvent, str]:
    """The event, and the key by which a repetition is recognised: only signed parts count, as others could be
    changed."""
    text = body
    if headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        fields = parse_qs(decode_text(body)).get("payload", [])
        if len(fields) != 1:
            raise Invalid("A form needs the field payload.")
        text = fields[0].encode(errors="replace")
    payload = parse_json(text)
    if kind is SignatureKind.GITHUB:
        if not isinstance(payload, dict | list):
            raise Invalid("An event is a JSON object or list.")
        # GitHub signs neither the id nor the type of a delivery, so its key comes from the body
        event = ExternalEvent(
            id=_fitting(_ID, headers.get("x-github-delivery")),
            type=_fitting(_TYPE, headers.get("x-github-event")),
            payload=payload,
        )
        return event, hashlib.sha256(body).hexdigest()
    if not isinstance(payload, dict):
        raise Invalid("An event is a JSON object.")
    if kind is SignatureKind.SLACK:
        inner = payload.get("event")
        event_type = inner.get("type") if isinstance(inner, dict) else payload.get("type")
        event_id = _fitting(_ID, payload.get("event_id")) or hashlib.sha256(body).hexdigest()
        return ExternalEvent(id=event_id, type=_fitting(_TYPE, event_type), payload=payload), event_id
    event_id = _fitting(_ID, headers.get("webhook-id"))
    if not event_id:
        raise Invalid("The webhook-id has 1 to 200 visible ASCII characters.")
    return ExternalEvent(id=event_id, type=_fitting(_TYPE, payload.get("type")), payload=payload), event_id


async def fulfils(conditions: Sequence[Condition], event: ExternalEvent) -> bool:
    """Whether all of them hold. One by one, beside the event loop, because a pattern can take a while."""
    for condition in conditions:
        if not await compute(partial(condition.holds, event)):
            return False
    return True


async def accept_event(services: Services, signed: SignedTrigger, event: ExternalEvent, event_id: str) -> EventAccepted:
    trigger = signed.trigger
    rules = trigger.rules
    holds = await fulfils(rules.filter, event)
    new = NewEvent(
        source=trigger.id,
        origin=trigger.name,
        event_id=event_id,
        type=event.type,
        key=render_key(rules.correlation, event) if rules.correlation and holds else None,
        text=mark_untrusted(event, f"trigger {trigger.name}", rules.template),
    )
    message = triggers.arriving_message(trigger, new, trigger.prompt) if holds else None
    if message is not None:
        # the session was prepared when the trigger was made, and values of the tenant may have changed since
        session = await services.shared_variables.renew(services.pool, trigger.tenant, message.session)
        message = message.model_copy(update={"session": session})
    if rules.conversation_id is not None:
        await missions.settle_of_conversation(services.pool, trigger.tenant, rules.conversation_id)
    receipt = await triggers.receive(services.pool, trigger, new, message)
    if receipt.refused is not None:
        raise submit.refusal(receipt.refused) or Conflict()
    if receipt.held is not None:
        raise Conflict(f"The event was not accepted; send it again later: {receipt.held.text}.", type=receipt.held.kind)
    # after the receipt is committed: a repetition of the event is answered from it, and a sweep starts what is left
    if receipt.session is not None:
        await services.starts.start(receipt.session)
    if receipt.answered is not None:
        await control.signal_answer(services, receipt.answered.session_id, receipt.answered.request_id)
    assert receipt.accepted is not None
    return receipt.accepted


def challenge(kind: SignatureKind, event: ExternalEvent) -> str | None:
    """The challenge that Slack expects back when it checks the address."""
    payload = event.payload
    if kind is SignatureKind.SLACK and payload.get("type") == "url_verification":
        # bounded, because this text of the sender is sent back as it came
        return str(payload.get("challenge", ""))[:1_000]
    return None


def _fitting(pattern: "re.Pattern[str]", value: Any) -> str:
    return value if isinstance(value, str) and pattern.fullmatch(value) else ""

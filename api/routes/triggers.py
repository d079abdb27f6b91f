"""/triggers: events from outside that start an agent, or that agents wait for."""

import hashlib
import re
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Self
from urllib.parse import parse_qs

from errand import models
from fastapi import APIRouter, Request, Response
from pydantic import Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from api.http import body as bodies
from api.http import lookup
from api.http.auth import Call, Reader, ServicesDep, Supervisor
from api.http.body import decode_text, json_body, parse_json
from api.http.problems import Unauthenticated, finding, pointers_moved
from api.openapi import BODY, problems, request_body
from api.routes.schedules import refuse_parts
from api.services import Services
from api.submission import submit
from api.submission.submit import SessionPlace
from api.views.texts import compute
from domain.errors import Conflict, Invalid, NotAllowed
from domain.ids import current_tenant
from domain.missions import HoldKind, MissionStatus
from domain.notifications import is_secret, new_secret
from domain.sessions.new_session import NewSession, Trigger
from domain.signatures import check_github, check_slack, check_standard_webhook
from domain.task import TaskSpec, opening
from domain.triggers import (
    EMITTED,
    TRIGGER_NAME,
    Condition,
    EventTrigger,
    ExternalEvent,
    SignatureKind,
    TriggerRules,
    mark_untrusted,
    render_key,
)
from store import missions, triggers
from store.triggers import NewEvent, SignedTrigger

router = APIRouter(tags=["triggers"])
MOST = 1_000  # per tenant
# read into memory before the signature is checked, so that strangers can send this much
MAX_EVENT_BYTES = 1_000_000
_NAME = re.compile(TRIGGER_NAME)
_TYPE = re.compile(r"[A-Za-z0-9._:/-]{1,100}")
_ID = re.compile(r"[!-~]{1,200}")
_EXAMPLE = {
    "signature": "github",
    "filter": [{"path": "type", "equals": "issues"}, {"path": "payload.action", "one_of": ["opened", "reopened"]}],
    "template": "{{payload.issue.title}}\n{{payload.issue.body}}",
    "task": {"agent": "assistant", "input": "Sort this issue."},
}
_CHALLENGE: dict[str, Any] = {
    "description": "What the service asked to be sent back",
    "content": {"text/plain": {"schema": {"type": "string"}}},
}
# long enough that nobody can guess it, because the sender of an event has no other proof
TriggerSecret = Annotated[str, StringConstraints(min_length=16, max_length=500, pattern=r"^[!-~]+$")]


class NewTrigger(TriggerRules):
    """The body of PUT /triggers/{name}."""

    task: TaskSpec | None = Field(
        default=None,
        description="the task of the agent for each event; null: events only reach sessions that wait for them",
    )
    secret: TriggerSecret | None = Field(
        default=None, description="signs the events; Slack brings its own, else one is made and shown once"
    )

    @model_validator(mode="after")
    def _useful(self) -> Self:
        if self.task is None and self.correlation is None:
            raise PydanticCustomError("needs", "without a task a trigger needs a correlation")
        if self.task is None and self.conversation_id is not None:
            raise PydanticCustomError("excluded", "without a task no conversation gets a message")
        return self

    def rules(self) -> TriggerRules:
        return TriggerRules(
            **{name: getattr(self, name) for name in TriggerRules.model_fields if name in self.model_fields_set}
        )


@router.put("/triggers/{trigger}", responses=problems(409), summary="Make a trigger, or change it")
async def put_trigger(
    call: Supervisor, trigger: str, body: Annotated[NewTrigger, json_body(NewTrigger, example=_EXAMPLE)]
) -> models.CreatedTrigger:
    """An omitted secret stays as it is. An invalid task is refused now, not when an event arrives."""
    if not _NAME.fullmatch(trigger):
        raise _invalid("/trigger", "string_pattern_mismatch", f"a name is {TRIGGER_NAME}", path=True)
    if trigger == EMITTED:  # an agent that waits for a trigger's events must not get those that agents emit
        raise _invalid("/trigger", "reserved", f"{EMITTED} is the name of what agents emit", path=True)
    keys = call.services.keys
    known = await triggers.find_trigger(call.pool, call.tenant, trigger, keys)
    if known is None and len(await triggers.list_triggers(call.pool, call.tenant)) >= MOST:
        raise Conflict(f"There may be at most {MOST} triggers.")
    secret, shown = _secret(body, known)
    session, prompt = await _session(call, trigger, body)
    by = call.caller.created_by
    made = await triggers.put_trigger(call.pool, call.tenant, trigger, body.rules(), session, prompt, secret, by, keys)
    return models.CreatedTrigger(**trigger_fields(made), secret=shown)


@router.get("/triggers", summary="List the triggers")
async def list_triggers(call: Reader) -> models.TriggerPage:
    found = await triggers.list_triggers(call.pool, call.tenant)
    return models.TriggerPage(items=[models.Trigger(**trigger_fields(one)) for one in found])


@router.get("/triggers/{trigger}", summary="Show a trigger")
async def show_trigger(call: Reader, trigger: str) -> models.Trigger:
    return models.Trigger(**trigger_fields((await _find(call, trigger)).trigger))


@router.delete("/triggers/{trigger}", status_code=204, summary="Remove a trigger")
async def remove_trigger(call: Supervisor, trigger: str) -> Response:
    """Its conversations and the results of its events stay; its id is never used again."""
    await _find(call, trigger)
    await triggers.remove_trigger(call.pool, call.tenant, trigger, call.caller.created_by)
    return Response(status_code=204)


@router.post(
    "/triggers/{trigger}",
    status_code=202,
    response_class=Response,
    responses={
        **problems(404, 409, *BODY),
        200: _CHALLENGE,
        202: {"description": "What the event led to; a repeat is answered the same", "model": models.EventAccepted},
    },
    openapi_extra=request_body({"application/json": {"schema": {"type": "object"}}}),
    summary="Receive a signed event",
)
async def receive_event(request: Request, services: ServicesDep, trigger: str) -> Response:
    """The trigger is given by its id or, in the tenant `default`, by its name. The event carries no key: the secret of
    the trigger signs it. It answers the session that waits for its key; otherwise it becomes a message to the trigger's
    agent, in which its text is marked as data."""
    found = await triggers.find_receiver(services.pool, trigger[:100], services.keys)
    signed = lookup.require_found(found, "There is no such trigger.")
    raw = await bodies.read_body(request, min(MAX_EVENT_BYTES, services.settings.max_body_bytes))
    headers = dict(request.headers)
    kind = signed.trigger.rules.signature
    try:
        _verify(signed, headers, raw)
    except NotAllowed as error:
        raise Unauthenticated(error.detail, type="bad-signature") from None
    # only after the signature: before it, nothing acts for the tenant
    current_tenant.set(signed.trigger.tenant)
    event, event_id = _read_event(kind, headers, raw)
    if (answer := _challenge(kind, event)) is not None:
        return Response(answer, 200, media_type="text/plain")
    accepted = await _accept_event(services, signed.trigger, event, event_id)
    return Response(accepted.model_dump_json(), 202, media_type="application/json")


def _verify(one: SignedTrigger, headers: Mapping[str, str], body: bytes) -> None:
    kind = one.trigger.rules.signature
    if kind is SignatureKind.GITHUB:
        check_github(one.secret, headers, body)
    elif kind is SignatureKind.SLACK:
        check_slack(one.secret, headers, body, time.time())
    else:
        check_standard_webhook([one.secret], headers, body, time.time())


def _read_event(kind: SignatureKind, headers: Mapping[str, str], body: bytes) -> tuple[ExternalEvent, str]:
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


async def _accept_event(
    services: Services, trigger: EventTrigger, event: ExternalEvent, event_id: str
) -> models.EventAccepted:
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
        await services.workflows.signal_answer(receipt.answered.session_id, receipt.answered.request_id)
    assert receipt.accepted is not None
    return receipt.accepted


def _challenge(kind: SignatureKind, event: ExternalEvent) -> str | None:
    """The challenge that Slack expects back when it checks the address."""
    payload = event.payload
    if kind is SignatureKind.SLACK and payload.get("type") == "url_verification":
        # bounded, because this text of the sender is sent back as it came
        return str(payload.get("challenge", ""))[:1_000]
    return None


def _fitting(pattern: "re.Pattern[str]", value: Any) -> str:
    return value if isinstance(value, str) and pattern.fullmatch(value) else ""


async def _find(call: Call, name: str) -> SignedTrigger:
    fits = _NAME.fullmatch(name)
    found = await triggers.find_trigger(call.pool, call.tenant, name, call.services.keys) if fits else None
    return lookup.require_found(found, "There is no such trigger.")


def _secret(body: NewTrigger, known: SignedTrigger | None) -> tuple[str, str | None]:
    """The secret to store, and the one to show."""
    standard = body.signature is SignatureKind.STANDARD
    if body.secret is not None:
        if standard and not is_secret(body.secret):
            raise _invalid("/secret", "invalid_secret", "a secret of Standard Webhooks is whsec_ and base64")
        return body.secret, None
    if known is not None and known.trigger.rules.signature is body.signature:
        # only for the same kind of signature, because the kinds have different forms of secrets
        return known.secret, None
    if body.signature is SignatureKind.SLACK:
        raise _invalid("/secret", "missing", "Slack brings its own signing secret")
    made = new_secret()
    return made, made


async def _session(call: Call, name: str, body: NewTrigger) -> tuple[NewSession | None, str]:
    if body.task is None:
        return None, ""
    refuse_parts(body.task, "history", "history_session", "files", "archives")
    if body.conversation_id is not None:
        await _check_conversation(call, body.conversation_id)
    with pointers_moved("", "/task"):
        task = await submit.check_task(call, body.task)
    session = submit.build_session(
        task, task.spec.title or name, SessionPlace(trigger=Trigger.EVENT), call.caller.created_by
    )
    return session, opening(task.spec, [])


async def _check_conversation(call: Call, conversation_id: str) -> None:
    """A conversation that the caller may continue; the one of a mission need not have begun."""
    mission = await missions.of_conversation(call.pool, call.tenant, conversation_id)
    if mission is None:
        await lookup.open_conversation(call, conversation_id)
        return
    lookup.check_owner(call.caller, mission)
    if mission.status is not MissionStatus.WORKING:
        raise Conflict("The mission has ended.", type=HoldKind.ENDED, mission_status=mission.status)


def _invalid(pointer: str, code: str, message: str, *, path: bool = False) -> Invalid:
    problem = finding(pointer, code, message, place="path" if path else None)
    return Invalid("The trigger is not valid.", errors=[problem])


def trigger_fields(trigger: EventTrigger) -> dict[str, Any]:
    session = trigger.session
    return {
        **trigger.rules.model_dump(),
        **trigger.model_dump(include={"id", "name", "prompt", "created_by", "created_at"}),
        "url": f"/triggers/{trigger.id}",
        "agent": session.agent if session else None,
        "agent_version": session.agent_version if session else None,
    }

"""Signed events: verified, parsed, filtered, and decided once. Sessions that an event starts or answers are signalled
afterwards."""

import hashlib
import re
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from api.control import answer as answering
from api.conversations import arrivals
from api.http.body import decode_text, parse_json
from api.http.problems import Unauthenticated
from api.services import Services
from domain.errors import Conflict, Invalid, NotAllowed
from domain.signatures import check_github, check_slack, check_standard_webhook
from domain.triggers import EventAccepted, ExternalEvent, SignatureKind, render_key, untrusted
from store import missions, trigger_events
from store.external_events import NewEvent
from store.triggers import SignedTrigger

_TYPE = re.compile(r"[A-Za-z0-9._:/-]{1,100}")
_ID = re.compile(r"[!-~]{1,200}")


def signed_by(candidates: list[SignedTrigger], headers: Mapping[str, str], body: bytes) -> SignedTrigger:
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


def read(kind: SignatureKind, headers: Mapping[str, str], body: bytes) -> tuple[ExternalEvent, str]:
    """The event, and the key by which a repetition is recognised: only signed parts count, as others could be
    changed."""
    form = headers.get("content-type", "").startswith("application/x-www-form-urlencoded")
    payload = parse_json(_form_payload(body) if form else body)
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


async def accept(services: Services, signed: SignedTrigger, event: ExternalEvent, event_id: str) -> EventAccepted:
    trigger = signed.trigger
    rules = trigger.rules
    holds = all(condition.holds(event) for condition in rules.filter)
    new = NewEvent(
        source=trigger.id,
        origin=trigger.name,
        event_id=event_id,
        type=event.type,
        key=render_key(rules.correlation, event) if rules.correlation and holds else None,
        text=untrusted(event, f"trigger {trigger.name}", rules.template),
    )
    message = trigger_events.arriving(trigger, new, trigger.prompt) if holds else None
    if message is not None:
        # the session was prepared when the trigger was made, and values of the tenant may have changed since
        session = await services.shared_variables.renewed(services.pool, trigger.tenant, message.session)
        message = message.model_copy(update={"session": session})
    if rules.conversation_id is not None:
        await missions.settle_of_conversation(services.pool, trigger.tenant, rules.conversation_id)
    receipt = await trigger_events.receive(services.pool, trigger, new, message)
    if receipt.refused is not None:
        raise arrivals.refusal(receipt.refused)
    if receipt.held is not None:
        raise Conflict(f"The event was not accepted; send it again later: {receipt.held.text}.", type=receipt.held.kind)
    # after the receipt is committed: a repetition of the event is answered from it, and the sweeper starts what is left
    if receipt.session is not None:
        await services.starts.start(receipt.session)
    if receipt.answered is not None:
        await answering.signal(services, receipt.answered.session_id, receipt.answered.request_id)
    assert receipt.accepted is not None
    return receipt.accepted


def challenge(kind: SignatureKind, event: ExternalEvent) -> str | None:
    """The challenge that Slack expects back when it checks the address."""
    payload = event.payload
    if kind is SignatureKind.SLACK and payload.get("type") == "url_verification":
        # bounded, because this text of the sender is sent back as it came
        return str(payload.get("challenge", ""))[:1_000]
    return None


def _form_payload(body: bytes) -> bytes:
    fields = parse_qs(decode_text(body))
    if len(fields.get("payload", [])) != 1:
        raise Invalid("A form needs the field payload.")
    return fields["payload"][0].encode(errors="replace")


def _fitting(pattern: "re.Pattern[str]", value: Any) -> str:
    return value if isinstance(value, str) and pattern.fullmatch(value) else ""

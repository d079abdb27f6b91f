"""/subscriptions: who is told of what, by which channel. To be told of everybody's tasks is a supervisor's right."""

from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, Field

from api.auth import Call, Reader, needs
from api.http.accept_header import accepts_json
from api.http.body import read_model
from api.http.problems import finding
from api.openapi import BODY, problems, ref, request_body
from api.routes.deliveries import DeliveryRecord, delivery_record
from api.schemas.subscriptions import NewSubscription
from api.services import ServicesDep
from api.submission.notification_rules import check_target
from domain.errors import Conflict, Invalid, NotFound
from domain.ids import is_id
from domain.notification import TEST, ChannelName, Notice, Subscription, SubscriptionStatus, new_secret
from store import deliveries, subscriptions
from store.keys import Right

router = APIRouter(tags=["notifications"], dependencies=[Depends(accepts_json)])

Supervisor = Annotated[Call, needs(Right.SUPERVISE)]
MOST = 100  # of one tenant: each of them may be a delivery for every event
_EXAMPLE = {"name": "ops", "channel": "webhook", "target": "https://hooks.example.org/errand"}


class SubscriptionRecord(BaseModel):
    id: str
    name: str
    channel: ChannelName
    target: str = Field(description="of a URL only the host: the rest may be a secret")
    events: list[str]
    every_task: bool
    subagents: bool
    status: SubscriptionStatus
    failing_since: datetime | None = Field(description="since when nothing has got through")
    last_error: str | None
    old_secret_until: datetime | None = Field(description="until then the secret before the last rotation signs too")
    created_by: str
    created_at: datetime


class CreatedSubscription(SubscriptionRecord):
    secret: str | None = Field(description="of a webhook: checks its signatures. It is not shown again")


class SubscriptionPage(BaseModel):
    items: list[SubscriptionRecord]


async def _body(request: Request, services: ServicesDep) -> NewSubscription:
    return await read_model(request, NewSubscription, services.settings.max_body_bytes)


@router.post(
    "/subscriptions",
    status_code=201,
    responses=problems(403, 409, *BODY),
    openapi_extra=request_body({"application/json": {"schema": ref(NewSubscription), "example": _EXAMPLE}}),
    summary="Subscribe to what happens",
)
async def subscribe(call: Supervisor, body: Annotated[NewSubscription, Depends(_body)]) -> CreatedSubscription:
    check_target(body.channel, body.target, call.settings)
    known = await subscriptions.listing(call.pool, call.tenant)
    if body.name in list(ChannelName):
        taken = finding("/name", "reserved", "this means all subscriptions of that channel")
        raise Invalid("This name means all subscriptions of that channel; choose another.", errors=[taken])
    if len(known) >= MOST:
        raise Conflict(f"There are {MOST} subscriptions, as many as there may be.")
    secret = new_secret() if body.channel is ChannelName.WEBHOOK else None
    made = await subscriptions.create(call.pool, call.tenant, body.model_dump(), secret, call.caller.created_by)
    if made is None:
        raise Conflict("There is a subscription with this name.", type="name-taken")
    return _with_secret(made, secret)


@router.get("/subscriptions", responses=problems(), summary="List the subscriptions")
async def list_subscriptions(call: Reader) -> SubscriptionPage:
    return SubscriptionPage(items=[_record(one) for one in await subscriptions.listing(call.pool, call.tenant)])


@router.get("/subscriptions/{subscription_id}", responses=problems(404), summary="Look at a subscription")
async def show_subscription(call: Reader, subscription_id: str) -> SubscriptionRecord:
    return _record(await _found(call, subscription_id))


@router.delete(
    "/subscriptions/{subscription_id}", status_code=204, responses=problems(403, 404), summary="End a subscription"
)
async def unsubscribe(call: Supervisor, subscription_id: str) -> Response:
    """What is still on its way to it is given up."""
    await _found(call, subscription_id)
    await subscriptions.remove(call.pool, call.tenant, subscription_id, call.caller.created_by)
    return Response(status_code=204)


@router.post(
    "/subscriptions/{subscription_id}/rotate",
    responses=problems(403, 404, 409),
    summary="Give a webhook a new secret",
)
async def rotate_secret(call: Supervisor, subscription_id: str) -> CreatedSubscription:
    """For a day both secrets sign, so that a receiver can change over without missing anything."""
    await _found(call, subscription_id)
    secret = new_secret()
    made = await subscriptions.rotate(call.pool, call.tenant, subscription_id, secret, call.caller.created_by)
    if made is None:
        raise Conflict("Only webhooks have a secret.")
    return _with_secret(made, secret)


@router.post(
    "/subscriptions/{subscription_id}/enable",
    responses=problems(403, 404),
    summary="Switch a subscription on again",
)
async def enable_subscription(call: Supervisor, subscription_id: str) -> SubscriptionRecord:
    """One is switched off when nothing got through for long. What was given up meanwhile can be sent again."""
    await _found(call, subscription_id)
    made = await subscriptions.enable(call.pool, call.tenant, subscription_id, call.caller.created_by)
    if made is None:
        raise NotFound()
    return _record(made)


@router.post(
    "/subscriptions/{subscription_id}/test",
    status_code=202,
    responses=problems(403, 404),
    summary="Send a notice to see that it arrives",
)
async def send_test(call: Supervisor, subscription_id: str) -> DeliveryRecord:
    found = await _found(call, subscription_id)
    notice = Notice(type=TEST, timestamp=datetime.now(UTC).isoformat(), data={"name": found.name})
    return delivery_record(await deliveries.put(call.pool, call.tenant, found.id, notice))


async def _found(call: Call, subscription_id: str) -> Subscription:
    found = await subscriptions.get(call.pool, call.tenant, subscription_id) if is_id(subscription_id) else None
    if found is None:
        raise NotFound()
    return found


def _record(one: Subscription) -> SubscriptionRecord:
    return SubscriptionRecord(**_shown(one))


def _with_secret(one: Subscription, secret: str | None) -> CreatedSubscription:
    return CreatedSubscription(**_shown(one), secret=secret)


def _shown(one: Subscription) -> dict[str, Any]:
    url = urlsplit(one.target)
    target = one.target if one.channel is ChannelName.EMAIL else f"{url.scheme}://{url.netloc}/…"
    return {**one.model_dump(), "target": target, "old_secret_until": one.old_until}

"""/subscriptions: which events are sent where, over which channel. Changes need the right supervise."""

from datetime import UTC, datetime
from typing import Annotated

from errand import models
from fastapi import APIRouter, Depends, Response

from api.http.auth import Call, Reader, needs
from api.http.body import accepts_json, json_body
from api.http.problems import finding
from api.openapi import BODY, problems, ref, request_body
from api.routes.deliveries import delivery_record
from api.schemas.subscriptions import check_target
from domain.errors import Conflict, Invalid, NotFound
from domain.ids import is_id
from domain.notifications import (
    SIGNED,
    TEST,
    ChannelName,
    NewSubscription,
    Notice,
    Subscription,
    new_secret,
)
from store import deliveries, subscriptions
from store.keys import Right

router = APIRouter(tags=["notifications"], dependencies=[Depends(accepts_json)])

Supervisor = Annotated[Call, needs(Right.SUPERVISE)]
MOST = 100  # per tenant: each subscription may cause a delivery for every event
_EXAMPLE = {"name": "ops", "channel": "webhook", "target": "https://hooks.example.org/errand"}


@router.post(
    "/subscriptions",
    status_code=201,
    responses=problems(403, 409, *BODY),
    openapi_extra=request_body({"application/json": {"schema": ref(NewSubscription), "example": _EXAMPLE}}),
    summary="Create a subscription",
)
async def create_subscription(
    call: Supervisor, body: Annotated[NewSubscription, json_body(NewSubscription)]
) -> models.CreatedSubscription:
    check_target(body.channel, body.target, call.settings)
    known = await subscriptions.listing(call.pool, call.tenant)
    if body.name in list(ChannelName):
        taken = finding("/name", "reserved", "this name means all subscriptions of that channel")
        raise Invalid("This name means all subscriptions of that channel; choose another.", errors=[taken])
    if len(known) >= MOST:
        raise Conflict(f"There may be at most {MOST} subscriptions.")
    secret = new_secret() if body.channel in SIGNED else None
    made = await subscriptions.create(call.pool, call.tenant, body, secret, call.caller.created_by, call.services.keys)
    if made is None:
        raise Conflict("There is a subscription with this name.", type="name-taken")
    return _with_secret(made, secret)


@router.get("/subscriptions", responses=problems(), summary="List the subscriptions")
async def list_subscriptions(call: Reader) -> models.SubscriptionPage:
    return models.SubscriptionPage(items=[_record(one) for one in await subscriptions.listing(call.pool, call.tenant)])


@router.get("/subscriptions/{subscription_id}", responses=problems(404), summary="Show a subscription")
async def show_subscription(call: Reader, subscription_id: str) -> models.Subscription:
    return _record(await _found(call, subscription_id))


@router.delete(
    "/subscriptions/{subscription_id}", status_code=204, responses=problems(403, 404), summary="End a subscription"
)
async def delete_subscription(call: Supervisor, subscription_id: str) -> Response:
    """Its pending deliveries end as failed."""
    await _found(call, subscription_id)
    await subscriptions.remove(call.pool, call.tenant, subscription_id, call.caller.created_by)
    return Response(status_code=204)


@router.post(
    "/subscriptions/{subscription_id}/rotate",
    responses=problems(403, 404, 409),
    summary="Give a webhook a new secret",
)
async def rotate_secret(call: Supervisor, subscription_id: str) -> models.CreatedSubscription:
    """Both secrets sign for a day, so that the receiver can switch without missing anything."""
    await _found(call, subscription_id)
    secret = new_secret()
    made = await subscriptions.rotate(
        call.pool, call.tenant, subscription_id, secret, call.caller.created_by, call.services.keys
    )
    if made is None:
        raise Conflict("Only webhooks have a secret.")
    return _with_secret(made, secret)


@router.post(
    "/subscriptions/{subscription_id}/enable",
    responses=problems(403, 404),
    summary="Enable a subscription again",
)
async def enable_subscription(call: Supervisor, subscription_id: str) -> models.Subscription:
    """A subscription is disabled after its deliveries have failed for a long time. Failed deliveries can be resent."""
    await _found(call, subscription_id)
    made = await subscriptions.enable(call.pool, call.tenant, subscription_id, call.caller.created_by)
    if made is None:
        raise NotFound()
    return _record(made)


@router.post(
    "/subscriptions/{subscription_id}/test",
    status_code=202,
    responses=problems(403, 404),
    summary="Send a test notice",
)
async def send_test_notice(call: Supervisor, subscription_id: str) -> models.Delivery:
    found = await _found(call, subscription_id)
    notice = Notice(type=TEST, timestamp=datetime.now(UTC).isoformat(), data={"name": found.name})
    return delivery_record(await deliveries.put(call.pool, call.tenant, found.id, notice))


async def _found(call: Call, subscription_id: str) -> Subscription:
    found = await subscriptions.get(call.pool, call.tenant, subscription_id) if is_id(subscription_id) else None
    if found is None:
        raise NotFound()
    return found


def _record(one: Subscription) -> models.Subscription:
    return models.Subscription(**one.model_dump(), target=one.target_shown, old_secret_until=one.old_until)


def _with_secret(one: Subscription, secret: str | None) -> models.CreatedSubscription:
    return models.CreatedSubscription(**dict(_record(one)), secret=secret)

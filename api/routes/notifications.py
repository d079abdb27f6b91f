"""/notifications: one feed of everything that happens; /subscriptions: which events are sent where; /deliveries: what
was sent, and sending it again. Changes need the right supervise."""

import asyncio
import contextlib
import re
import socket
from typing import Annotated, Any
from urllib.parse import urlsplit

from errand import models
from fastapi import APIRouter, Query, Request, Response, WebSocket
from fastapi.responses import JSONResponse
from pydantic import Field
from starlette.websockets import WebSocketDisconnect

from api.http.auth import Call, Reader, Supervisor
from api.http.body import choose_media_type, json_body
from api.http.lookup import find, require_found
from api.http.paging import ListParameters, Parameters
from api.http.problems import finding, refuse
from api.openapi import problems, ref
from api.routes.events import LastEventId
from api.streams.feeds import LOOK_SECONDS, TenantFeed, tenant_position
from api.streams.readers import still_allowed, stream_feed
from domain.errors import Conflict, Invalid, NotAllowed
from domain.notifications import (
    SIGNED,
    ChannelName,
    DeliveryStatus,
    NewSubscription,
    new_secret,
)
from domain.policy.addresses import public
from domain.task import Id
from settings import Settings
from store import notifications
from store.database import TRANSIENT_ERRORS
from store.keys import Right

router = APIRouter(tags=["notifications"])
MOST = 100  # per tenant: each subscription may cause a delivery for every event
_ANSWER = {
    "description": "Server-sent events, or a page of them as JSON",
    "content": {
        "text/event-stream": {
            "schema": {"type": "string"},
            "example": 'event: mailbox_updated\ndata: {"type": "mailbox_updated", "pending_count": 2}\nid: 7\n\n',
        },
        "application/json": {"schema": ref(models.NoticePage)},
    },
}
_EXAMPLE = {"name": "ops", "channel": "webhook", "target": "https://hooks.example.org/errand"}
LONGEST_URL = 2_048
EMAIL = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*")
_URL = re.compile(r"[!-~]+")  # international names are written as xn--…
_HOST = re.compile(r"(?=.{1,253}\Z)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*|[0-9a-f:.]+")
_LOCAL = ("localhost", "local", "internal", "localdomain", "home.arpa")


class FeedQuery(Parameters):
    after: str | None = Field(
        default=None,
        max_length=100,
        description="only notices with a higher number; 0: all that are kept; default: only new ones",
    )
    mine: bool = Field(default=False, description="only notices about sessions that this key started")
    limit: int = Field(default=200, ge=1, le=1_000, description="of a page; a stream has no limit")


@router.get(
    "/notifications",
    response_class=Response,
    responses={**problems(409, 410), 200: _ANSWER},
    summary="Follow all sessions",
)
async def follow_notifications(
    request: Request,
    call: Reader,
    query: Annotated[FeedQuery, Query()],
    last_event_id: LastEventId = None,
) -> Response:
    """The feed has sessions that start and end, input requests, low budgets, mailbox counts and changed conversations.
    `id:` is the number of a notice in the tenant's feed; `Last-Event-ID` or `after` continues after it. Notices are
    kept for 30 days."""
    after = await tenant_position(call.pool, call.tenant, last_event_id if last_event_id is not None else query.after)
    feed = _feed(call, query.mine)
    if choose_media_type(request, "text/event-stream", "application/json") == "application/json":
        found, next_after = await feed.read(call.pool, after, query.limit)
        page = models.NoticePage(items=found, next_after=next_after)
        return JSONResponse(page.model_dump(mode="json"))
    return stream_feed(call, feed, after)


def _feed(call: Call, mine: bool) -> TenantFeed:
    return TenantFeed(call.tenant, call.caller.created_by if mine else None)


@router.websocket("/notifications")
async def notifications_socket(websocket: WebSocket, query: Annotated[FeedQuery, Query()]) -> None:
    """The same feed, one JSON text per notice; the parameters are those above. Messages from the client are ignored."""
    call = Call(websocket.app.state.services, websocket.state.caller)
    if not call.caller.may(Right.READ):
        raise NotAllowed("This needs a key with the right read.", needed=[Right.READ])
    after = await tenant_position(call.pool, call.tenant, query.after)
    # before the socket is accepted, because only then a refusal can still be a problem
    call.services.slots.check(call.tenant, call.caller.created_by)
    await websocket.accept()
    feed = _feed(call, query.mine)
    slot = call.services.slots.take(call.tenant, call.caller.created_by)
    with slot, call.services.metrics.streams.track_inprogress():
        sending = asyncio.create_task(_send(websocket, call, feed, after))
        gone = asyncio.create_task(_await_end(websocket))
        # the sender alone would notice a closed socket only at its next notice, and hold the slot until then
        await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
        for task in (sending, gone):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, WebSocketDisconnect):
                await task


async def _await_end(websocket: WebSocket) -> None:
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass


async def _send(websocket: WebSocket, call: Call, feed: TenantFeed, after: int) -> None:
    loop = asyncio.get_running_loop()
    checked_at = loop.time()
    with call.services.listener.watching(feed.tenant, feed.id) as news:
        while not call.services.listener.draining:
            if loop.time() - checked_at >= LOOK_SECONDS:
                with contextlib.suppress(*TRANSIENT_ERRORS):
                    if not await still_allowed(call):
                        break
                checked_at = loop.time()
            news.clear()  # before the read, so that a notice during the read sets it again
            with contextlib.suppress(*TRANSIENT_ERRORS):
                found, after = await feed.read(call.pool, after)
                for notice in found:
                    await websocket.send_text(notice.model_dump_json())
                if found:  # there may be more
                    continue
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), LOOK_SECONDS)
    # 1012 (restart) invites the client to reconnect, 1008 (policy) does not: its key is no longer valid
    await websocket.close(1012 if call.services.listener.draining else 1008)


# Subscriptions.


@router.post("/subscriptions", status_code=201, responses=problems(409), summary="Create a subscription")
async def create_subscription(
    call: Supervisor, body: Annotated[NewSubscription, json_body(NewSubscription, example=_EXAMPLE)]
) -> models.CreatedSubscription:
    check_target(body.channel, body.target, call.settings)
    known = await notifications.list_subscriptions(call.pool, call.tenant)
    if body.name in list(ChannelName):
        raise refuse("/name", "reserved", "this name means all subscriptions of that channel")
    if len(known) >= MOST:
        raise Conflict(f"There may be at most {MOST} subscriptions.")
    secret = new_secret() if body.channel in SIGNED else None
    made = await notifications.create_subscription(
        call.pool, call.tenant, body, secret, call.caller.created_by, call.services.keys
    )
    if made is None:
        raise Conflict("There is a subscription with this name.", type="name-taken")
    return _with_secret(made, secret)


@router.get("/subscriptions", summary="List the subscriptions")
async def list_subscriptions(call: Reader) -> models.SubscriptionPage:
    return models.SubscriptionPage(items=await notifications.list_subscriptions(call.pool, call.tenant))


@router.delete("/subscriptions/{subscription_id}", status_code=204, summary="End a subscription")
async def delete_subscription(call: Supervisor, subscription_id: str) -> Response:
    """Its pending deliveries end as failed."""
    await _find(call, subscription_id)
    await notifications.remove_subscription(call.pool, call.tenant, subscription_id, call.caller.created_by)
    return Response(status_code=204)


@router.post("/subscriptions/{subscription_id}/rotate", responses=problems(409), summary="Give a webhook a new secret")
async def rotate_secret(call: Supervisor, subscription_id: str) -> models.CreatedSubscription:
    """Both secrets sign for a day, so that the receiver can switch without missing anything."""
    await _find(call, subscription_id)
    secret = new_secret()
    made = await notifications.rotate_secret(
        call.pool, call.tenant, subscription_id, secret, call.caller.created_by, call.services.keys
    )
    if made is None:
        raise Conflict("Only webhooks have a secret.")
    return _with_secret(made, secret)


@router.post("/subscriptions/{subscription_id}/enable", summary="Enable a subscription again")
async def enable_subscription(call: Supervisor, subscription_id: str) -> models.Subscription:
    """A subscription is disabled after its deliveries have failed for a long time. Failed deliveries can be resent."""
    await _find(call, subscription_id)
    made = await notifications.enable_subscription(call.pool, call.tenant, subscription_id, call.caller.created_by)
    return require_found(made)


async def _find(call: Call, subscription_id: str) -> models.Subscription:
    return await find(call, notifications.get_subscription, subscription_id)


def _with_secret(one: models.Subscription, secret: str | None) -> models.CreatedSubscription:
    return models.CreatedSubscription(**dict(one), secret=secret)


# Deliveries.


class DeliveryQuery(ListParameters):
    status: DeliveryStatus | None = None
    subscription_id: Id | None = None
    task_id: Id | None = None


@router.get("/deliveries", summary="List deliveries, the newest first")
async def list_deliveries(call: Reader, query: Annotated[DeliveryQuery, Query()]) -> models.DeliveryPage:
    found = await notifications.find_deliveries(
        call.pool,
        call.tenant,
        status=query.status,
        subscription_id=query.subscription_id,
        session_id=query.task_id,
        before_id=query.after(),
        limit=query.limit + 1,
    )
    shown, more = query.page(found, lambda one: one.id)
    return models.DeliveryPage(items=shown, next_cursor=more)


@router.post(
    "/deliveries/{delivery_id}/resend",
    status_code=202,
    responses=problems(409),
    summary="Send a delivery again, with the same id",
)
async def resend_delivery(call: Supervisor, delivery_id: str) -> models.Delivery:
    """A delivery that waits for its next attempt is sent immediately."""
    await find(call, notifications.get_delivery, delivery_id)
    moved = await notifications.deliver_again(call.pool, call.tenant, delivery_id)
    if moved is None:
        why = "Its subscription is disabled or was removed, or the content of its task was removed."
        raise Conflict(why, type="subscription-disabled")
    return moved


def check_target(channel: ChannelName, target: str, settings: Settings) -> None:
    """Check the form of a target and its literal address. The address of a name is checked at each delivery."""
    if channel is ChannelName.EMAIL:
        if not settings.smtp_host:
            raise _refuse_target(
                "/channel", "not_available", "no mail server is set", [c for c in ChannelName if c is not channel]
            )
        if not EMAIL.fullmatch(target) or len(target) > 254:
            raise _refuse_target("/target", "invalid_address", "must be one e-mail address", ["name@example.org"])
        return
    try:
        url = urlsplit(target)
        host, port = (url.hostname or "").rstrip("."), url.port or {"http": 80}.get(url.scheme, 443)
    except ValueError:
        raise _refuse_target("/target", "invalid_url", "must be a URL", ["https://host/path"]) from None
    entries = {entry.lower() for entry in settings.notify_private_hosts}
    trusted = host in entries or f"{host}:{port}" in entries
    formed = _URL.fullmatch(target) and _HOST.fullmatch(host) and url.port != 0
    # plain HTTP only to hosts of the operator: a delivery contains the content of tasks
    if not formed or url.scheme not in (("http", "https") if trusted else ("https",)):
        raise _refuse_target("/target", "invalid_url", "must be an https:// URL with a host", ["https://host/path"])
    # a password in the URL would appear in the records of deliveries and in logs
    if url.username is not None or url.password is not None or url.fragment or len(target) > LONGEST_URL:
        rule = f"no user name, no fragment, at most {LONGEST_URL} characters"
        raise _refuse_target("/target", "invalid_url", rule, ["https://host/path"])
    if not trusted and _private(host):
        raise _refuse_target("/target", "private_address", "private addresses are not notified", ["a public host"])


def _private(host: str) -> bool:
    if host in _LOCAL or host.endswith(tuple(f".{name}" for name in _LOCAL)):
        return True
    try:  # no lookup: this finds only addresses, in any notation such as 127.1 or 0x7f000001
        found = socket.getaddrinfo(host, None, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return False
    return not all(public(str(address[0])) for *_, address in found)


def _refuse_target(pointer: str, code: str, message: str, allowed: list[Any]) -> Invalid:
    return Invalid(
        "This cannot be subscribed to.", type="invalid-target", errors=[finding(pointer, code, message, allowed)]
    )

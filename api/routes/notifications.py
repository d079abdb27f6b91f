"""/notifications: one resumable feed of all sessions of a tenant, as server-sent events, pages or a WebSocket."""

import asyncio
import contextlib
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response, WebSocket
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.websockets import WebSocketDisconnect

from api.http.auth import Call, Reader
from api.http.body import choose_media_type
from api.openapi import problems, ref
from api.routes.events import LastEventId
from api.schemas.events import NoticePage
from api.streams.feeds import LOOK_SECONDS, TenantFeed, shown_notice, tenant_position
from api.streams.sse import still_allowed, streaming
from domain.errors import NotAllowed
from store.database import TRANSIENT_ERRORS
from store.keys import Right

router = APIRouter(tags=["notifications"])

_ANSWER = {
    "description": "Server-sent events, or a page of them as JSON",
    "content": {
        "text/event-stream": {
            "schema": {"type": "string"},
            "example": 'event: mailbox_updated\ndata: {"type": "mailbox_updated", "pending_count": 2}\nid: 7\n\n',
        },
        "application/json": {"schema": ref(NoticePage)},
    },
}


class FeedQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

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
    responses={**problems(409, 410, 422), 200: _ANSWER},
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
        found = await feed.read(call.pool, after, query.limit)
        next_after = found[-1].number if found else after
        page = NoticePage(items=[shown_notice(notice) for notice in found], next_after=next_after)
        return JSONResponse(page.model_dump(mode="json"))
    return streaming(call, feed, after)


def _feed(call: Call, mine: bool) -> TenantFeed:
    return TenantFeed(call.tenant, call.caller.created_by if mine else None)


@router.websocket("/notifications")
async def notifications_socket(websocket: WebSocket) -> None:
    """The same feed, one JSON text per notice; `after` and `mine` as above. Messages from the client are ignored."""
    call = Call(websocket.app.state.services, websocket.state.caller)
    if not call.caller.may(Right.READ):
        raise NotAllowed("This needs a key with the right read.", needed=[Right.READ])
    after = await tenant_position(call.pool, call.tenant, websocket.query_params.get("after"))
    # before the socket is accepted, because only then a refusal can still be a problem
    call.services.slots.check(call.tenant, call.caller.created_by)
    await websocket.accept()
    feed = _feed(call, websocket.query_params.get("mine") == "true")
    slot = call.services.slots.taken(call.tenant, call.caller.created_by)
    with slot, call.services.metrics.streams.track_inprogress():
        sending = asyncio.create_task(_send(websocket, call, feed, after))
        gone = asyncio.create_task(_until_gone(websocket))
        # the sender alone would notice a closed socket only at its next notice, and hold the slot until then
        await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
        for task in (sending, gone):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, WebSocketDisconnect):
                await task


async def _until_gone(websocket: WebSocket) -> None:
    while (await websocket.receive())["type"] != "websocket.disconnect":
        pass


async def _send(websocket: WebSocket, call: Call, feed: TenantFeed, after: int) -> None:
    with call.services.listener.watching(feed.tenant, feed.id) as news:
        while not call.services.listener.draining:
            news.clear()  # before the read, so that a notice during the read sets it again
            with contextlib.suppress(*TRANSIENT_ERRORS):
                while found := await feed.read(call.pool, after):
                    for notice in found:
                        await websocket.send_text(shown_notice(notice).model_dump_json())
                        after = notice.number
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), LOOK_SECONDS)
                continue
            with contextlib.suppress(*TRANSIENT_ERRORS):
                if not await still_allowed(call):
                    break
    # 1012 (restart) invites the client to reconnect, 1008 (policy) does not: its key is no longer valid
    await websocket.close(1012 if call.services.listener.draining else 1008)

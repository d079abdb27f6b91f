"""…/events: the events of a task or conversation, as a resumable stream or in pages."""

from typing import Annotated

from errand import models
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from api.http.auth import Reader
from api.http.body import choose_media_type
from api.http.lookup import check_kept, conversation_of, find, session_of
from api.http.paging import Parameters
from api.openapi import problems, ref
from api.streams.feeds import Feed, read_cursor
from api.streams.readers import stream_feed
from store import events

router = APIRouter()

_ANSWERS = {
    "text/event-stream": {
        "schema": {"type": "string"},
        "example": 'event: progress\ndata: {"type": "progress", "seq": 7, "message": "tests pass"}\nid: 7\n\n',
    },
    "application/json": {"schema": ref(models.EventPage)},
}
_ANSWER = {"description": "Server-sent events, or a page of them as JSON", "content": _ANSWERS}
LastEventId = Annotated[str | None, Header(description="id of the last event that was received")]


class EventQuery(Parameters):
    after: str | None = Field(
        default=None, description="only events with a higher seq; `latest`: only new ones", max_length=100
    )
    limit: int = Field(default=200, ge=1, le=1_000, description="of a page; a stream has no limit")


@router.get(
    "/tasks/{task_id}/events",
    tags=["tasks", "core"],
    response_class=Response,
    responses={
        **problems(409, 410),
        200: _ANSWER,
        204: {"description": "The task has ended and has no event after the cursor: do not reconnect"},
    },
    summary="Follow a task",
)
async def follow_task(
    request: Request,
    call: Reader,
    task_id: str,
    query: Annotated[EventQuery, Query()],
    last_event_id: LastEventId = None,
) -> Response:
    """All events from the start or from a cursor, then new ones as they happen; the terminal event is the last.

    `id:` is the number of the event in its session, without gaps. Any number of readers may follow; none slows the
    task.
    """
    last, closed = await find(call, events.head_of_session, task_id)
    # only then: the content of a running task is never removed, and this saves a query
    if closed:
        check_kept(await session_of(call, task_id))
    return await _respond(request, call, Feed(call.tenant, task_id), query, last_event_id, last, closed=closed)


@router.get(
    "/conversations/{conversation_id}/events",
    tags=["conversations", "core"],
    response_class=Response,
    responses={**problems(409), 200: _ANSWER},
    summary="Follow a conversation: all its sessions in one feed",
)
async def follow_conversation(
    request: Request,
    call: Reader,
    conversation_id: str,
    query: Annotated[EventQuery, Query()],
    last_event_id: LastEventId = None,
) -> Response:
    """The events of all its sessions, subagents included; `session_id` names the session. `id:` is the number of the
    event in the conversation, without gaps. `mailbox_updated` has the number of pending outcomes. The stream does not
    end.
    """
    await conversation_of(call, conversation_id)
    last = await events.head_of_conversation(call.pool, call.tenant, conversation_id)
    feed = Feed(call.tenant, conversation_id, conversation=True)
    return await _respond(request, call, feed, query, last_event_id, last)


async def _respond(
    request: Request,
    call: Reader,
    feed: Feed,
    query: EventQuery,
    last_event_id: str | None,
    last: int,
    *,
    closed: bool = False,
) -> Response:
    # a browser that reconnects sends the header, and repeats the URL with its old `after`
    after = _position(last_event_id if last_event_id is not None else query.after, last)
    if choose_media_type(request, "text/event-stream", "application/json") == "application/json":
        found = await feed.read(call.pool, after, query.limit)
        next_after = feed.number(found[-1]) if found else after
        page = models.EventPage(items=[feed.show(event) for event in found], next_after=next_after, closed=closed)
        return JSONResponse(page.model_dump(mode="json"))
    # 204 stops a browser's EventSource, which would otherwise reconnect again and again
    if closed and after == last:
        return Response(status_code=204, media_type="text/event-stream")
    return stream_feed(call, feed, after)


def _position(given: str | None, last: int) -> int:
    text = (given or "").strip()
    if not text:
        return 0
    return last if text == "latest" else read_cursor(text, last)

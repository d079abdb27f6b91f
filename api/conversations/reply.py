"""The response to a turn: a handle, or the event stream of its session."""

from errand import models
from fastapi import Request, Response

from api.conversations.run import NewTurn
from api.http.auth import Call
from api.http.body import choose_media_type
from api.openapi import Responses, problems
from api.streams.feeds import Feed
from api.streams.sse import streaming

EXAMPLE = 'event: task_submitted\ndata: {"type": "task_submitted", "seq": 1, "agent": "assistant"}\nid: 1\n\n'


def answers(*statuses: int) -> Responses:
    """The `responses` of a route that runs a turn."""
    stream = {"text/event-stream": {"schema": {"type": "string"}, "example": EXAMPLE}}
    return {
        **problems(*statuses),
        200: {"description": "transport=sse: the session's events, until it has ended", "content": stream},
        202: {
            "description": "transport=stream, or the message waits or went to the running session",
            "model": models.SessionHandle,
        },
    }


def check_accept(request: Request, transport: str) -> None:
    """Check, before anything is created, that the caller accepts the media type of the response."""
    if transport == "sse":
        choose_media_type(request, "text/event-stream", "application/json")
    else:
        choose_media_type(request, "application/json")


def answer(call: Call, turn: NewTurn, transport: str) -> Response:
    handle = turn.handle
    headers = {"X-Session-Id": handle.session_id, "X-Conversation-Id": handle.conversation_id}
    if turn.replayed:
        headers["Idempotent-Replayed"] = "true"
    # a queued session may begin much later, and the events of a steered one began with another request
    if transport == "sse" and not handle.queued and not handle.steered:
        return streaming(call, Feed(call.tenant, handle.session_id), headers=headers)
    return Response(handle.model_dump_json(), 202, headers, media_type="application/json")

"""OpenAI's events about background responses: which response a delivery is about, and how it ended.

They are derived from the session's log when they are sent. The log only grows, so every attempt sends the same bytes.
"""

import json

from api.faces.responses.project import Fold, ResponseId, SessionFacts
from domain.json_object import JsonObject
from domain.notifications import TEST, Notice, NotificationSubject
from store import events, face_requests, input_requests, sessions
from store.database import Pool
from store.deliveries import Job

FACE = "responses"
PAGE = 1_000


class NotDueError(Exception):
    """There is nothing to send now. `later`: there may be."""

    def __init__(self, message: str, *, later: bool = False) -> None:
        super().__init__(message)
        self.later = later


async def response_event(pool: Pool, tenant: str, job: Job) -> bytes:
    if job.session_id is None:
        assert job.event == TEST
        return _event(job.id, TEST, Notice.model_validate_json(job.body).seconds, {})
    session = await sessions.get(pool, tenant, job.session_id)
    if session is None:
        raise NotDueError("The task was removed.")
    first = (await face_requests.of_session(pool, tenant, FACE, session.id)).get(1)
    fold = Fold(SessionFacts.of(session.id, session.external_tools, first.request if first else None))
    asked: dict[int, int] = {}  # number of a response that waits for its caller -> position of its last request
    after = 0
    while page := await events.without_deltas(pool, tenant, session.id, PAGE, after):
        ids = [event.data["request_id"] for event in page if event.type == "input_required"]
        requests = await input_requests.by_ids(pool, tenant, ids) if ids else {}
        for event in page:
            was_open = bool(fold.parts) and not fold.part.closed
            fold.feed(event, requests)
            if event.type == "input_required" and was_open:
                asked[fold.part.number] = event.seq
        after = page[-1].seq
    if not fold.parts:
        raise NotDueError("The content of the task was removed.")
    number = len(fold.parts)
    if job.event == NotificationSubject.INPUT_REQUIRED:
        # A response that asks for several results waits once; the last of its requests notifies.
        number = next((part for part, seq in asked.items() if seq == job.seq), 0)
        if not number or fold.parts[number - 1].ended:
            raise NotDueError("Another notice is about this response.")
    state = fold.parts[number - 1].state
    if state.completed_at is None:
        raise NotDueError("The response has not ended yet.", later=True)
    about = {"id": str(ResponseId(session.id, number))}
    return _event(job.id, f"response.{state.status}", int(state.completed_at), about)


def _event(delivery_id: str, kind: str, at: int, data: JsonObject) -> bytes:
    event = {"id": f"evt_{delivery_id}", "object": "event", "created_at": at, "type": kind, "data": data}
    return json.dumps(event).encode()

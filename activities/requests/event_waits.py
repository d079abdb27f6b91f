"""Waits for events: input requests that only an event answers. The event becomes the result of the call."""

from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import ValidationError

from activities.attempt import run_of
from activities.requests.external_tools import Unaskable
from activities.tools.builtin import wait_for_event
from domain.sessions.input_request import InputRequest, OnExpiry, OpenedRequest, OpenRequest, RequestKind, RequestStatus
from domain.sessions.request_writes import NewRequest, RequestOpening
from domain.sessions.step import CallState
from store import event_waits
from store.database import Pool
from store.sessions import SessionRow

TOOL = wait_for_event.TOOL


async def open_wait(
    pool: Pool, request: OpenRequest, session: SessionRow, arguments: dict[str, Any]
) -> OpenedRequest | None:
    """Open the wait; None if the session has ended. Raises Unaskable, with the other session for the model, if another
    session waits for the key."""
    try:
        given = wait_for_event.Input.model_validate(arguments)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, one['loc'])) or 'arguments'}: {one['msg']}" for one in error.errors()]
        raise Unaskable(TOOL.name, "; ".join(lines[:20])) from None
    deadline = min(request.deadline, datetime.now(UTC) + timedelta(seconds=given.timeout_s))
    row = NewRequest(
        id=request.id,
        conversation_id=request.ref.conversation_id,
        session_id=request.ref.session_id,
        kind=RequestKind.EXTERNAL_EVENT,
        question=f"waits for the event {given.key}",
        details={"tool": TOOL.name, "arguments": arguments, "trigger": given.trigger},
        deadline=deadline,
        on_expiry=OnExpiry.DENY,
        event_key=given.key,
    )
    opening = RequestOpening(tenant=request.ref.tenant, run=run_of(request.ref), request=row)
    found = await event_waits.open_wait(pool, opening, given.trigger, session.created_at)
    if found.held_by is not None:
        raise Unaskable(TOOL.name, f"the task {found.held_by} waits for {given.key!r} already")
    if found.opened is None:
        return None
    return OpenedRequest(deadline=found.opened.deadline, settled=found.opened.status is not RequestStatus.OPEN)


def outcome(request: InputRequest) -> tuple[CallState, str]:
    """The state and the text of the call's result."""
    if request.status is not RequestStatus.ANSWERED:
        key = request.details["arguments"]["key"]
        return CallState.FAILED, f"No event with the key {key} arrived in time."
    return CallState.OK, str(request.answer["text"])

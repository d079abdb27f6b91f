"""What a caller does to a running session: answer it, send it a message, stop it, or reset its conversation.

The row is written first and counts; the signal to the workflow only speeds it up, and a lost one is found in the row.
"""

import asyncio
import contextlib
import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel, Field

from api.http import lookup
from api.http.auth import Call, Caller
from api.http.idempotency import IdempotencyKey
from api.http.problems import finding
from api.submission import rules
from api.submission.submit import Prepared
from domain.agents.variables import graph_variables, seal_secrets
from domain.conversations.requests import Steer
from domain.errors import Conflict, Invalid, NotAllowed, NotFound, Unavailable
from domain.events import EventRow, InputReceived
from domain.ids import derive_id
from domain.policy.rules import Action, ApprovalRules
from domain.sessions.input_request import APPROVALS, InputRequest, RequestKind, RequestStatus
from domain.sessions.session import Reason, RecordedStop, Scope, SessionRef, StopRequest
from domain.sessions.writes import RequestAnswer, ThreadMessage
from store import agents, conversations, resets, sessions
from store.keys import Right
from store.resets import DroppedMessage
from store.sessions import SessionRow

AT_ONCE = 20  # stops sent at the same time
# For all waits together, of which the one for a start takes at most three. The message is stored, so without an answer
# it is only read later.
ANSWER_WITHIN = timedelta(seconds=5)


class ResetDone(BaseModel):
    conversation_id: str
    generation: int
    at: datetime
    dropped: list[DroppedMessage] = Field(description="messages that waited; they will not be answered")
    interrupted: list[str] = Field(description="the session of the main thread that was running")


@dataclass(frozen=True)
class Stop:
    """How a session must end, and how long its tools may still run."""

    reason: Reason
    note: str = ""
    grace_ms: int = 0
    tree: bool = False  # its subagents must not start anything new either

    def record(self, call: Call, key: str = "") -> RecordedStop:
        return RecordedStop(
            reason=self.reason,
            by=call.caller.name,
            note=self.note,
            grace_ms=self.grace_ms,
            at=datetime.now(UTC),
            request_id=key or None,
            scope=Scope.TREE if self.tree else None,
            actor=call.caller.created_by,  # the id, because names of keys may repeat
        )


# Answers to input requests.


async def check_answer(caller: Caller, session: SessionRow, request: InputRequest, value: Any) -> None:
    """Refuse an answer that the caller may not give, or that does not fit the request."""
    if request.kind is RequestKind.EXTERNAL_EVENT:  # else a person could forge an event, which must be signed
        raise unknown_request(session)
    # the right first: a key without it must not find out whether the request is still open
    right = Right.APPROVE if request.kind in APPROVALS else Right.ANSWER
    if not caller.may(right, Right.SUPERVISE):
        raise NotAllowed(f"This is a {request.kind}, which needs a key with the right {right}.", needed=[right])
    if request.status is not RequestStatus.OPEN:
        raise refuse_settled(request.status)
    if request.answer_schema is not None:
        await rules.check_answer(request.answer_schema, value)
    if request.gate is not None and "arguments" in value:
        found = ApprovalRules.model_validate(request.gate).verdict(value["arguments"])
        # an approver's changes that a rule denies to everybody; the request stays open
        if found.action is Action.DENY and found.rule is not None:
            denied = finding("/input/arguments", "denied", f"a rule denies this: {found.rule}")
            rule = found.rule.model_dump(mode="json")
            raise Invalid("The rules of the task forbid this call.", type="denied-by-rule", rule=rule, errors=[denied])


async def seal_answer(call: Call, session: SessionRow, request: InputRequest, value: Any) -> Any:
    """The answer as it is stored: values of secret variables are encrypted."""
    if request.kind is not RequestKind.MISSING_VARIABLES:
        return value
    # the whole graph, because a value may be for a subagent, whose definition says whether it is a secret
    definition = await agents.load(call.pool, session.agent_ref)
    known = graph_variables(await agents.find_reachable(call.pool, call.tenant, definition))
    return seal_secrets(call.services.keys, call.tenant, value, known)


def build_answer(caller: Caller, session: SessionRow, request: InputRequest, value: Any) -> RequestAnswer:
    """The answer as the store takes it, with its event."""
    received = InputReceived(request_id=request.id, kind=request.kind, by=caller.name)
    return RequestAnswer(
        tenant=caller.tenant,
        id=request.id,
        session_id=session.id,
        answer=json.dumps(value),
        by=caller.name,
        # the id, because names of keys may repeat
        actor=caller.created_by,
        events=[EventRow.of(session.ref, received)],
    )


def unknown_request(session: SessionRow) -> Conflict:
    return Conflict("The task has no such request.", type="unknown-request", task_status=session.status)


def refuse_settled(status: RequestStatus) -> Conflict:
    details = {
        RequestStatus.ANSWERED: "This request has been answered already.",
        RequestStatus.EXPIRED: "Nobody answered this request in time.",
        RequestStatus.WITHDRAWN: "The task no longer waits for this.",
    }
    return Conflict(details[status], type="request-settled", request_status=status)


# Messages to a running session: stored first, so that they are not lost, then delivered to its conversation.


def message_id_of(ref: SessionRef, key: IdempotencyKey) -> str:
    """The id of a message: equal for every repetition with one key, so that the message is delivered once."""
    return derive_id(ref.conversation_id, "message", key.value) if key.value else derive_id(ref.session_id, "message")


async def write_message(call: Call, conversation_id: str, thread_id: str, message_id: str, prepared: Prepared) -> None:
    """Store a message to a thread, with the files that it names, without delivering it."""
    message = ThreadMessage(
        id=message_id,
        conversation_id=conversation_id,
        thread_id=thread_id,
        text=prepared.opening_text,
        files=prepared.opening_files,
        author=call.caller.name,
        unsignalled=True,
    )
    files = (prepared.acceptance.session.workspace_id, prepared.files)
    await conversations.add_message(call.pool, call.tenant, message, files)


async def deliver_message(
    call: Call, conversation_id: str, thread_id: str, message_id: str, live: str, attempt: int = 0
) -> str | None:
    """Deliver a stored message to the running session and return the id of the session that reads it; None if no
    session is running. If the conversation does not answer, a worker lets it read the message later.
    """
    ref = SessionRef(tenant=call.tenant, session_id=live, conversation_id=conversation_id)
    began = time.monotonic()
    await call.services.starts.ensure_started(ref)
    left = ANSWER_WITHIN - timedelta(seconds=time.monotonic() - began)
    steer = Steer(request_id=derive_id(message_id, attempt), thread=thread_id, message=message_id)
    try:
        steered = await call.services.workflows.steer(call.tenant, conversation_id, steer, left)
    except Unavailable:  # the update may have arrived although its response was lost
        return live
    except NotFound:
        return None
    await conversations.mark_signalled(call.pool, call.tenant, message_id)
    return steered.session_id or live


async def reload_messages(call: Call, conversation_id: str, message_id: str) -> None:
    """Let the conversation find a stored message in its rows; if it cannot be reached, a worker does this later."""
    with contextlib.suppress(Unavailable):
        await call.services.workflows.reopen(call.tenant, conversation_id, reload=True)
        await conversations.mark_signalled(call.pool, call.tenant, message_id)


# Stops. A reset keeps the conversation's id and history; its next message begins with an empty context.


async def stop_session(call: Call, session: SessionRow, how: Stop, key: str = "") -> None:
    """Record the request, then end a queued session here or signal the workflow of a running one."""
    if session.status.terminal:
        return
    request = StopRequest(reason=how.reason, by=call.caller.name, note=how.note, grace_ms=how.grace_ms)
    if await sessions.record_stop(call.pool, session, how.record(call, key)):
        await call.services.workflows.stop(session.id, request)  # if Temporal does not take it, a worker repeats it


async def stop_sessions(call: Call, session_ids: list[str], how: Stop) -> None:
    # each stop uses a connection of the pool, which other requests need too
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(session_id: str) -> None:
        async with gate:
            session = await sessions.get(call.pool, call.tenant, session_id)
            if session is not None:
                await stop_session(call, session, how)

    await asyncio.gather(*(one(session_id) for session_id in session_ids))


async def reset_conversation(call: Call, conversation_id: str) -> ResetDone:
    """Drop waiting messages and interrupt the main thread. Subagents keep running, because their outcomes are
    messages."""
    await lookup.own_conversation(call, conversation_id)
    how = Stop(Reason.INTERRUPTED, note="reset")
    done = await resets.reset(call.pool, call.tenant, conversation_id, how.record(call))
    if done is None:
        raise lookup.refuse_terminated()
    # the rows already hold the new generation and these stops; the signals only speed it up
    await stop_sessions(call, done.sessions, how)
    queued = {one.session_id for one in done.dropped}
    return ResetDone(
        conversation_id=conversation_id,
        generation=done.generation,
        at=done.at,
        dropped=done.dropped,
        interrupted=[session_id for session_id in done.sessions if session_id not in queued],
    )

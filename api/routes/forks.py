"""/conversations/{id}/fork: a new conversation from the end of a session, executed at once or only prepared."""

from typing import Annotated

from errand import models
from fastapi import APIRouter, Request, Response

from api.conversations import run
from api.conversations.reply import answer, answers, check_accept
from api.conversations.run import NewTurn
from api.http.auth import Call, Submitter
from api.http.body import json_body
from api.http.idempotency import IdempotencyKey, Key, reused
from api.http.lookup import own_conversation, session_of
from api.http.problems import finding
from api.openapi import BODY, ref, request_body
from api.schemas.conversations import ForkBody, MessageBody, check_value, handle
from api.submission import accept as submit
from domain.errors import Conflict, Invalid
from domain.events import EventRow, TaskCompleted, TaskSubmitted
from domain.sessions.new_session import Trigger
from domain.sessions.session import Reason, SessionRef, Usage
from domain.sessions.session_writes import Acceptance, SessionEnding
from domain.sessions.submitted_task import TRANSPORT
from store import conversation_reads, new_sessions, workspaces
from store.sessions import SessionRow

router = APIRouter(tags=["conversations"])


@router.post(
    "/conversations/{conversation_id}/fork",
    response_class=Response,
    responses=answers(404, 409, *BODY),
    openapi_extra=request_body(
        {"application/json": {"schema": ref(ForkBody), "example": {"execute": True, "input": "Try another way."}}},
        required=False,
    ),
    summary="Fork a conversation",
)
async def fork_conversation(
    request: Request,
    call: Submitter,
    conversation_id: str,
    body: Annotated[ForkBody, json_body(ForkBody, optional=True, check_value=check_value)],
    idempotency_key: Key = None,
) -> Response:
    """The new conversation gets a copy of the history and of the workspace. Without `execute` nothing runs; the next
    message to the new conversation continues from there."""
    check_accept(request, body.transport)
    key = IdempotencyKey.of(call, f"POST /conversations/{conversation_id}/fork", body, idempotency_key)
    if (known := await key.answered(call.pool, call.tenant)) is not None:
        turn = NewTurn(models.SessionHandle.model_validate_json(known), replayed=True)
        return answer(call, turn, body.transport)
    source = await _source(call, conversation_id, body)
    if body.execute:
        turn = await run.fork(call, _message(body), source, key)
    else:
        turn = await _prepare(call, body, source, key)
    return answer(call, turn, body.transport)


async def _source(call: Call, conversation_id: str, body: ForkBody) -> SessionRow:
    await own_conversation(call, conversation_id)
    if body.from_session is not None:
        return await run.fork_source(call, body.from_session, conversation_id)
    latest = await conversation_reads.latest_committed(call.pool, call.tenant, conversation_id)
    if latest is None:
        raise Conflict("The conversation has nothing to fork from yet.", type="not-committed")
    return await session_of(call, latest)


def _message(body: ForkBody) -> MessageBody:
    if body.input is None:
        problem = finding("/input", "missing", "executing needs an input")
        raise Invalid("Executing needs an input.", errors=[problem])
    shared = body.model_dump(include={"agent", "input", "title", "transport", "metadata"})
    return MessageBody.model_construct(**shared)


async def _prepare(call: Call, body: ForkBody, source: SessionRow, key: IdempotencyKey) -> NewTurn:
    """Write a session for the copied state: it ended where its source did, and nothing is executed."""
    spec = MessageBody(input=body.input if body.input is not None else "Fork").task(body.agent or source.agent)
    task = await submit.check(call, spec, schema=False, variables=source.variables)
    _, manifest = await workspaces.get(call.pool, call.tenant, source.workspace_id)
    place = submit.SessionPlace(parent=source, manifest=manifest, trigger=Trigger.FORK, await_children=False)
    prepared = submit.prepare(call, task, place).acceptance
    copied = {"title": body.title or f"{source.title[:190]} (fork)", "spec": {**source.spec, "transport": TRANSPORT}}
    session = prepared.session.model_copy(update=copied)
    made = handle(session.id, session.conversation_id)
    submitted = TaskSubmitted(agent=session.agent, agent_version=session.agent_version, title=session.title)
    acceptance = Acceptance(
        session=session,
        manifest=prepared.manifest,
        events=[EventRow.of(session.ref, submitted)],
        idempotency=key.record(made.model_dump_json()),
        metadata=body.metadata or {},
    )
    accepted = await new_sessions.accept_ended(call.pool, acceptance, _ending(source, session.ref))
    if accepted.reused:
        raise reused()
    if accepted.replay:
        return NewTurn(models.SessionHandle.model_validate_json(accepted.replay.response), replayed=True)
    return NewTurn(made)


def _ending(source: SessionRow, ref: SessionRef) -> SessionEnding:
    reason = Reason.GOAL_REACHED
    ended = TaskCompleted(status=reason.status, reason=reason, partial=False, usage=Usage(), output=source.output)
    return SessionEnding(
        ref=ref,
        reason=reason,
        output=source.output,
        head=source.head,
        step=0,
        version=1,
        events=[EventRow.of(ref, ended)],
    )

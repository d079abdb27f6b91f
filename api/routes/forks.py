"""/conversations/{id}/fork: a new conversation from where a session ended, executed at once or only prepared."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response

from api.auth import Caller, Submitter
from api.conversations import run
from api.conversations.reply import answer, answers, check_accept
from api.conversations.run import NewTurn
from api.http.idempotency import IdempotencyKey, Key, reused
from api.http.lookup import conversation_of, session_of
from api.http.problems import finding
from api.openapi import BODY, ref, request_body
from api.schemas.conversation_bodies import ForkBody, MessageBody, fork_body
from api.schemas.conversations import Handle, handle
from api.services import Services, ServicesDep
from api.submission import accept as submit
from domain.errors import Conflict, Invalid
from domain.events import TaskCompleted, TaskSubmitted
from domain.ids import derive_id
from domain.sessions.session import Reason, Usage
from store import conversation_reads, endings, events, workspaces
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
    caller: Submitter,
    parts: ServicesDep,
    conversation_id: str,
    wish: Annotated[ForkBody, Depends(fork_body)],
    idempotency_key: Key = None,
) -> Response:
    """The new conversation has a copy of the history and of the workspace. Without `execute` nothing runs: the next
    message to the new conversation goes on from there."""
    check_accept(request, wish.transport)
    once = IdempotencyKey.of(f"POST /conversations/{conversation_id}/fork", wish, idempotency_key)
    if (known := await once.answered(parts.pool, caller.tenant)) is not None:
        turn = NewTurn(Handle.model_validate_json(known), replayed=True)
        return answer(parts, caller, turn, wish.transport)
    source = await _source(parts, caller, conversation_id, wish)
    if wish.execute:
        turn = await run.fork(parts, caller, _message(wish), source, once)
    else:
        turn = await _prepare(parts, caller, wish, source, once)
    return answer(parts, caller, turn, wish.transport)


async def _source(parts: Services, caller: Caller, conversation_id: str, wish: ForkBody) -> SessionRow:
    await conversation_of(parts, caller, conversation_id)
    if wish.from_session is not None:
        return await run.fork_source(parts, caller, wish.from_session, conversation_id)
    latest = await conversation_reads.latest_committed(parts.pool, caller.tenant, conversation_id)
    if latest is None:
        raise Conflict("The conversation has nothing to fork from yet.", type="not-committed")
    return await session_of(parts, caller, latest)


def _message(wish: ForkBody) -> MessageBody:
    if wish.input is None:
        problem = finding("/input", "missing", "executing needs an input")
        raise Invalid("Executing needs an input.", errors=[problem])
    shared = wish.model_dump(include={"agent", "input", "title", "transport", "metadata"})
    return MessageBody.model_construct(**shared)


async def _prepare(
    parts: Services, caller: Caller, wish: ForkBody, source: SessionRow, once: IdempotencyKey
) -> NewTurn:
    """A session that stands for the copied state: it ended where its source did, and nothing was executed."""
    spec = MessageBody(input=wish.input if wish.input is not None else "Fork").task(wish.agent or source.agent)
    task = await submit.check(parts, caller, spec, schema=False, variables=source.variables)
    _, manifest = await workspaces.get(parts.pool, caller.tenant, source.workspace_id)
    place = submit.SessionPlace(parent=source, manifest=manifest, trigger="fork", await_children=False)
    prepared = submit.prepare(parts, caller, task, place)
    title = wish.title or f"{source.title[:190]} (fork)"
    document = {**prepared.document, "title": title, "spec": submit.spec_of(source.spec, place)}
    ref = prepared.ref
    made = handle(ref.session_id, ref.conversation_id)
    submitted = TaskSubmitted(agent=document["agent"], agent_version=document["agent_version"], title=title)
    accepted = await endings.accept_ended(
        parts.pool,
        caller.tenant,
        document,
        [events.to_row(ref, submitted)],
        _ending(source, prepared),
        once.record(made.model_dump_json()),
        metadata=wish.metadata or {},
    )
    if accepted.reused:
        raise reused()
    if accepted.replay:
        return NewTurn(Handle.model_validate_json(accepted.replay["response"]), replayed=True)
    return NewTurn(made)


def _ending(source: SessionRow, prepared: submit.Prepared) -> dict[str, Any]:
    ref, reason = prepared.ref, Reason.GOAL_REACHED
    ended = TaskCompleted(status=reason.status, reason=reason, partial=False, usage=Usage(), output=source.output)
    return {
        "tenant": ref.tenant,
        "session_id": ref.session_id,
        "status": reason.status,
        "reason": reason,
        "partial": False,
        "output": source.output,
        "head": source.head,
        "step": 0,
        "version": 1,
        "message_id": derive_id(ref.session_id, "outcome"),
        "nodes": [],
        "events": [events.to_row(ref, ended)],
    }

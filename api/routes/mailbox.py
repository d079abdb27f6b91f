"""/conversations/{id}/mailbox and …/fire: pending outcomes of subagents, and the turn that consumes them."""

from typing import Annotated

from errand import models
from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from api.conversations import fire
from api.conversations.reply import answer, answers, check_accept
from api.http.auth import Reader, Submitter
from api.http.body import accepts_json, json_body
from api.http.idempotency import IdempotencyKey, Key
from api.http.lookup import conversation_of
from api.http.paging import cursor, position
from api.openapi import BODY, problems, ref, request_body
from api.schemas.conversations import FireBody, check_value
from store import mailbox

router = APIRouter(tags=["conversations"])


class MailboxQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    all: bool = Field(default=False, description="delivered outcomes too")
    live: bool = Field(default=False, description="as the running conversation sees it; needs a worker")
    cursor: str | None = Field(default=None, max_length=200)
    limit: int = Field(default=200, ge=1, le=1_000)


@router.get(
    "/conversations/{conversation_id}/mailbox",
    tags=["core"],
    responses=problems(404, 422),
    dependencies=[Depends(accepts_json)],
    summary="Show the mailbox",
)
async def show_mailbox(
    call: Reader, conversation_id: str, query: Annotated[MailboxQuery, Query()]
) -> models.MailboxPage:
    """The pending outcomes in the order of their arrival. Reading consumes nothing."""
    await conversation_of(call, conversation_id)
    pool, tenant = call.pool, call.tenant
    if query.live:
        pending = await call.services.workflows.mailbox(conversation_id) or []
        found = await mailbox.by_ids(pool, tenant, [outcome.id for outcome in pending])
        items = [models.MailboxMessage.model_validate(one) for one in found]
        return models.MailboxPage(items=items, pending_count=len(pending), next_cursor=None)
    filters = {"mailbox": conversation_id, "all": query.all}
    page = await mailbox.of_conversation(
        pool,
        tenant,
        conversation_id,
        pending_only=not query.all,
        after_id=position(filters, query.cursor),
        limit=query.limit + 1,
    )
    shown = page[: query.limit]
    return models.MailboxPage(
        items=[models.MailboxMessage.model_validate(one) for one in shown],
        pending_count=await mailbox.pending_count(pool, tenant, conversation_id),
        next_cursor=cursor(filters, shown[-1].message_id) if len(page) > query.limit else None,
    )


@router.post(
    "/conversations/{conversation_id}/fire",
    tags=["core"],
    response_class=Response,
    responses=answers(404, 409, *BODY),
    openapi_extra=request_body(
        {"application/json": {"schema": ref(FireBody), "example": {"input": "Compare what they found."}}},
        required=False,
    ),
    summary="Deliver everything in the mailbox as one turn",
)
async def fire_mailbox(
    request: Request,
    call: Submitter,
    conversation_id: str,
    body: Annotated[FireBody, json_body(FireBody, optional=True, check_value=check_value)],
    idempotency_key: Key = None,
) -> Response:
    """All pending outcomes and your own message become one session, which continues the latest that committed a step.
    An empty mailbox is 422 and nothing is created. If the session ends without a commit, the outcomes are pending
    again."""
    check_accept(request, body.transport)
    key = IdempotencyKey.of(call, f"POST /conversations/{conversation_id}/fire", body, idempotency_key)
    turn = await fire.fire(call, conversation_id, body, key)
    return answer(call, turn, body.transport)

"""The record of a task: its effects, and the audit log, whose hash chains can be verified."""

from typing import Annotated

from errand import models
from fastapi import APIRouter, Query
from pydantic import Field

from api.http.auth import Reader, Supervisor
from api.http.lookup import session_of
from api.http.paging import Parameters
from domain.task import Id
from store import audit, tool_calls

router = APIRouter(tags=["record"])


class AuditPosition(Parameters):
    before: int | None = Field(default=None, ge=1, le=2**62, description="only entries before the one with this number")
    limit: int = Field(default=200, ge=1, le=1_000)


class AuditQuery(AuditPosition):
    conversation_id: Id | None = None


class VerifyQuery(Parameters):
    head: str | None = Field(
        default=None, max_length=64, description="head of an earlier verification, which must still be in the log"
    )


@router.get("/tasks/{task_id}/effects", summary="List the effects of a task so far")
async def list_effects(call: Reader, task_id: str) -> models.EffectPage:
    """This includes the effects of its subagents. For a dry run: what would have been done."""
    session = await session_of(call, task_id)
    return await tool_calls.get_ledger(call.pool, call.tenant, session.id)


@router.get("/tasks/{task_id}/audit", summary="List the audit log of a task, newest first")
async def list_task_audit(call: Reader, task_id: str, query: Annotated[AuditPosition, Query()]) -> models.AuditPage:
    session = await session_of(call, task_id)
    found = await audit.find(call.pool, call.tenant, session_id=session.id, before=query.before, limit=query.limit + 1)
    return _page(found, query.limit)


@router.get("/tasks/{task_id}/audit/verify", summary="Verify the audit log of a task's conversation")
async def verify_task_audit(call: Reader, task_id: str) -> models.ChainState:
    """Checks the links of its own chain; `/audit/verify` also detects a chain that was replaced as a whole."""
    session = await session_of(call, task_id)
    verdict = await audit.verify_chain(call.pool, call.tenant, session.conversation_id)
    return models.ChainState(intact=verdict.found is None, entries=verdict.entries, broken=verdict.found)


@router.get("/audit", summary="List the audit log, newest first")
async def list_audit(call: Supervisor, query: Annotated[AuditQuery, Query()]) -> models.AuditPage:
    """Entries of all tasks, keys and agents, or of one conversation, which is one chain."""
    found = await audit.find(
        call.pool, call.tenant, chain=query.conversation_id, before=query.before, limit=query.limit + 1
    )
    return _page(found, query.limit)


@router.get("/audit/verify", summary="Verify that nothing in the audit log was changed or removed")
async def verify_audit(call: Supervisor, query: Annotated[VerifyQuery, Query()]) -> models.Verification:
    verdict = await audit.verify(call.pool, call.tenant, query.head)
    return models.Verification(
        intact=verdict.found is None,
        chains=verdict.chains,
        entries=verdict.entries,
        broken=verdict.found,
        head=verdict.head,
    )


def _page(found: list[models.AuditEntry], limit: int) -> models.AuditPage:
    shown = found[:limit]
    return models.AuditPage(items=shown, next_before=shown[-1].number if len(found) > limit else None)

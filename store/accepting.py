"""Accepting sessions: row, input and first event in one transaction, for one or for many."""

import json
from typing import Any

from pydantic import BaseModel

from store import workspaces
from store.database import Connection, Pool, call
from store.workspaces import Manifest


class IdempotencyRecord(BaseModel):
    key: str
    digest: str
    status: int
    response: str


class NewMessage(BaseModel):
    id: str
    kind: str = "user"
    author: str = ""
    parts: str  # JSON


class Accepted(BaseModel):
    """What accepting a task came to; exactly one field is set when it was not simply accepted."""

    replay: dict[str, Any] | None = None
    reused: bool = False
    quota: int | None = None
    busy: str | None = None  # the thread's live session
    terminated: bool = False
    unknown: bool = False  # no such conversation
    mail_taken: bool = False
    cancelled: bool = False  # nothing may begin below what spawns it
    budget: str | None = None  # what of the tree's is spent

    @property
    def refused(self) -> str | None:
        """Why a session of a known conversation was not opened."""
        if self.terminated:
            return "terminated"
        if self.quota is not None:
            return "quota"
        if self.cancelled or self.budget:
            return "budget_spent" if self.budget else "cancelled"
        return "unknown" if self.unknown else "mail_taken" if self.mail_taken else None


async def accept(
    pool: "Pool | Connection",
    tenant: str,
    session: dict[str, Any],
    inbox: list[NewMessage],
    events: list[dict[str, Any]],
    idempotency: IdempotencyRecord | None = None,
    live_quota: int | None = None,
    **more: Any,
) -> Accepted:
    """`more`: take, mail, queue, delivery, metadata, tree, as the SQL function accept_session knows them."""
    document = acceptance(tenant, session, inbox, events, idempotency, live_quota, **more)
    return Accepted.model_validate_json(await call(pool, "accept_session", json.dumps(document)))


async def accept_with_files(
    pool: Pool, tenant: str, session: dict[str, Any], *rest: Any, files: Manifest, **more: Any
) -> Accepted:
    """`rest` and `more` as in accept; the files go into a workspace in use, with the message that speaks of them."""
    async with pool.acquire() as connection, connection.transaction():
        accepted = await accept(connection, tenant, session, *rest, **more)
        if accepted == Accepted():
            await workspaces.change_in(connection, tenant, session["workspace_id"], lambda known: {**known, **files})
        return accepted


async def accept_all(pool: Pool, acceptances: list[dict[str, Any]]) -> list[Accepted]:
    """Several in one transaction, each with its own answer."""
    answers = json.loads(await call(pool, "accept_sessions", json.dumps(acceptances)))
    return [Accepted.model_validate(answer) for answer in answers]


def acceptance(
    tenant: str,
    session: dict[str, Any],
    inbox: list[NewMessage],
    events: list[dict[str, Any]],
    idempotency: IdempotencyRecord | None = None,
    live_quota: int | None = None,
    **more: Any,
) -> dict[str, Any]:
    return {
        **more,
        "tenant": tenant,
        "session": session,
        "inbox": [message.model_dump() for message in inbox],
        "events": events,
        "idempotency": idempotency.model_dump() if idempotency else None,
        "live_quota": live_quota,
    }

"""Input requests: sessions open them, people answer them once, and the sessions settle them."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel

from domain.events import EventRow
from domain.faces import FaceRequest
from domain.json_object import JsonObject
from domain.plan import Plan
from domain.policy.rules import Action, StandingRule
from domain.sessions.input_request import InputRequest, RequestOrder, RequestStatus
from domain.sessions.session import SessionRef
from domain.sessions.writes import IdempotencyRecord, NewRequest, RequestAnswer, RequestOpening, RequestSettlement
from store import face_requests, idempotency
from store.database import Connection, Pool, call, decide, fetch_all, fetch_one, to_json

_COLUMNS = """id, conversation_id, session_id, kind, question, details, answer_schema, status, answer, answered_by,
              answered_at, deadline, on_expiry, default_answer, created_at, gate"""
_JSON = ("details", "answer_schema", "answer", "default_answer", "gate")


def _read(**row: Any) -> InputRequest:
    return InputRequest(**{key: json.loads(value) if key in _JSON and value else value for key, value in row.items()})


class OpenedRow(BaseModel):
    """A request after it was opened, now or earlier."""

    deadline: datetime
    status: RequestStatus


async def open_request(pool: "Pool | Connection", opening: RequestOpening) -> OpenedRow | None:
    """Open a request. None if the session has ended, or has opened as many requests of this kind as it may."""
    document = opening.model_dump(mode="json", exclude={"request"})
    opened = await call(pool, "open_request", {**document, "request": _to_columns(opening.request)})
    return None if opened is None else OpenedRow.model_validate_json(opened)


def _to_columns(request: NewRequest) -> JsonObject:
    """The row for jsonb_populate_record. Texts that people are shown stay text, because jsonb would reorder their
    keys."""
    values = request.model_dump(mode="json")
    return {name: json.dumps(value) if name in _JSON and value is not None else value for name, value in values.items()}


async def answer(pool: "Pool | Connection", answer: RequestAnswer) -> RequestStatus | None:
    """Answer a request once. Returns the status of a request that was already settled."""
    settled = await call(pool, "answer_request", answer)
    return RequestStatus(settled) if settled else None


async def answer_all(
    pool: Pool,
    tenant: str,
    given: list[RequestAnswer],
    rest: list[RequestAnswer],
    record: IdempotencyRecord | None = None,
    face: FaceRequest | None = None,
) -> RequestStatus | None:
    """Write all of `given` or nothing. In the same transaction write those of `rest` that are still open, the response
    for a repetition, and the request of a face. Returns the status of a request of `given` that was already settled.
    Refuses a key that was used for another request meanwhile."""

    async def write(connection: Connection) -> RequestStatus | None:
        # Lock the session and all its requests before any counter: another answer or an expiry may run at the same
        # time.
        for row in (_SESSION, _REQUESTS):
            await connection.execute(row, tenant, [one.id for one in (*given, *rest)])
        for one in given:
            if (settled := await answer(connection, one)) is not None:
                return settled
        for one in rest:
            await answer(connection, one)
        if record is not None:
            await idempotency.reserve(connection, tenant, record)
        if face is not None:
            await face_requests.add(connection, tenant, face)
        return None

    return await decide(pool, write, lambda settled: settled is None)


_REQUESTS = "SELECT 1 FROM input_requests WHERE tenant = $1 AND id = ANY($2::text[]) ORDER BY id FOR UPDATE"
_SESSION = """SELECT 1 FROM sessions WHERE tenant = $1 AND id IN (
                  SELECT session_id FROM input_requests WHERE tenant = $1 AND id = ANY($2::text[])) FOR NO KEY UPDATE"""


async def settle(pool: Pool, settlement: RequestSettlement) -> InputRequest:
    return _read(**json.loads(await call(pool, "settle_request", settlement)))


async def get(pool: Pool, tenant: str, request_id: str) -> InputRequest | None:
    sql = f"SELECT {_COLUMNS} FROM input_requests WHERE tenant = $1 AND id = $2"
    return await fetch_one(pool, _read, sql, tenant, request_id)


async def by_ids(pool: Pool, tenant: str, request_ids: Sequence[str]) -> dict[str, InputRequest]:
    sql = f"SELECT {_COLUMNS} FROM input_requests WHERE tenant = $1 AND id = ANY($2::text[])"
    return {row["id"]: _read(**row) for row in await pool.fetch(sql, tenant, list(request_ids))}


async def of_sessions(pool: Pool, tenant: str, session_ids: list[str]) -> list[InputRequest]:
    """The open requests of these sessions, oldest first."""
    sql = f"""SELECT {_COLUMNS} FROM input_requests
               WHERE tenant = $1 AND session_id = ANY($2::text[]) AND status = 'open' ORDER BY created_at, id"""
    return await fetch_all(pool, _read, sql, tenant, session_ids)


async def standing_rules(pool: Pool, tenant: str, conversation_id: str) -> list[StandingRule]:
    """The calls that people have approved for the whole conversation."""
    sql = """SELECT details, answer FROM input_requests
              WHERE tenant = $1 AND conversation_id = $2 AND kind = 'tool_approval' AND status = 'answered'"""
    rows = await pool.fetch(sql, tenant, conversation_id)
    return [
        StandingRule(permission=asked["tool"], pattern=pattern, action=Action.ALLOW, external="external" in asked)
        for asked, answer in ((json.loads(row["details"]), json.loads(row["answer"] or "{}")) for row in rows)
        for pattern in answer.get("always", [])
    ]


async def find_unheard(pool: Pool, tenant: str, session_id: str) -> list[str]:
    """Answers that were not yet signalled to their session."""
    sql = "SELECT id FROM input_requests WHERE tenant = $1 AND session_id = $2 AND status = 'answered' AND NOT settled"
    return [row["id"] for row in await pool.fetch(sql, tenant, session_id)]


async def find(
    pool: Pool,
    tenant: str,
    *,
    status: RequestStatus | None = RequestStatus.OPEN,
    session_id: str | None = None,
    conversation_id: str | None = None,
    created_by: str | None = None,
    order: RequestOrder = RequestOrder.NEWEST,
    after: tuple[datetime | None, str] = (None, ""),
    limit: int = 100,
) -> list[InputRequest]:
    """The requests after a moment and an id in this order. Waits for events are listed only for one session or one
    conversation, because no person has to answer them."""
    ordering, is_after = _ORDERS[order]
    only = f"AND status = '{RequestStatus(status)}'" if status else ""  # not a parameter: indexes are of one status
    sql = f"""SELECT {_COLUMNS} FROM input_requests
               WHERE tenant = $1 AND (event_key IS NULL OR $2::text IS NOT NULL OR $3::text IS NOT NULL)
                 AND ($2::text IS NULL OR session_id = $2) AND ($3::text IS NULL OR conversation_id = $3) {only}
                 AND ($5::text = '' OR {is_after}) AND ($7::text IS NULL OR EXISTS (SELECT FROM sessions s
                      WHERE s.tenant = $1 AND s.id = input_requests.session_id AND s.created_by = $7))
               ORDER BY {ordering} LIMIT $6"""
    return await fetch_all(pool, _read, sql, tenant, session_id, conversation_id, *after, limit, created_by)


_ORDERS = {
    RequestOrder.NEWEST: ("id DESC", "$4::timestamptz IS NULL AND id < $5"),
    RequestOrder.DEADLINE: ("deadline, id", "(deadline, id) > ($4::timestamptz, $5)"),
    RequestOrder.ANSWERED: ("answered_at DESC, id DESC", "(answered_at, id) < ($4::timestamptz, $5)"),
}


async def set_plan(pool: Pool, ref: SessionRef, plan: Plan, events: Sequence[EventRow]) -> None:
    """Write a plan that a person changed. A repetition changes nothing and emits nothing."""
    async with pool.acquire() as connection, connection.transaction():
        sql = """UPDATE sessions SET plan = $3, updated_at = now()
                  WHERE tenant = $1 AND id = $2 AND plan IS DISTINCT FROM $3 RETURNING id"""
        changed = await connection.fetchval(sql, ref.tenant, ref.session_id, plan.model_dump_json())
        if changed:
            await connection.execute("SELECT append_events('', false, $1::jsonb)", to_json(events))

"""Budgets of conversation trees: a model call reserves the most it may use, and its commit settles its real usage."""

from datetime import timedelta

from pydantic import BaseModel

from domain.events import BudgetRaised, EventRow
from domain.limits import CallEstimate, Grant, Raise, Reserved, TreeBudget, grant
from domain.sessions.session import Limits, Scope, SessionRef
from store import audit, runs
from store.database import Pool, fetch_one, to_json

_TREE = "SELECT * FROM budgets WHERE tenant = $1 AND conversation_id = $2"
_HELD = """
SELECT count(*) AS calls, coalesce(sum(tokens), 0)::bigint AS tokens, coalesce(sum(cost_usd), 0) AS cost_usd
  FROM reservations WHERE tenant = $1 AND conversation_id = $2 AND NOT (session_id = $3 AND line = $4)
"""


async def get(pool: Pool, tenant: str, conversation_id: str) -> TreeBudget | None:
    return await fetch_one(pool, TreeBudget, _TREE, tenant, conversation_id)


async def sum_reserved(pool: Pool, tenant: str, conversation_id: str) -> Reserved:
    """The amounts that running calls may still use."""
    row = await pool.fetchrow(_HELD, tenant, conversation_id, "", "")
    return Reserved(**row) if row else Reserved()


async def reserve(pool: Pool, ref: SessionRef, line: str, estimate: CallEstimate, run: str | None = None) -> Grant:
    """Reserve under the lock of the tree's row, so that concurrent calls never reserve the same money twice. Nothing is
    reserved for a session that has ended, because nobody would release it."""
    async with pool.acquire() as connection, connection.transaction():
        await runs.check(connection, ref, run)
        row = await connection.fetchrow(f"{_TREE} FOR UPDATE", ref.tenant, ref.conversation_id)
        if row is None:
            return Grant(output_tokens=estimate.output_tokens)
        others = await connection.fetchrow(_HELD, ref.tenant, ref.conversation_id, ref.session_id, line)
        given = grant(TreeBudget(**row), Reserved(**others) if others else Reserved(), estimate)
        if given.given:
            share = given.output_tokens / estimate.output_tokens
            await connection.execute(
                """INSERT INTO reservations (tenant, session_id, line, conversation_id, tokens, cost_usd)
                   VALUES ($1, $2, $3, $4, $5, $6)
                   ON CONFLICT (tenant, session_id, line) DO UPDATE
                      SET tokens = excluded.tokens, cost_usd = excluded.cost_usd""",
                ref.tenant,
                ref.session_id,
                line,
                ref.conversation_id,
                estimate.input_tokens + given.output_tokens,
                (estimate.input_usd or 0) + share * (estimate.output_usd or 0),
            )
        return given


async def release(pool: Pool, ref: SessionRef, line: str) -> None:
    sql = "DELETE FROM reservations WHERE tenant = $1 AND session_id = $2 AND line = $3"
    await pool.execute(sql, ref.tenant, ref.session_id, line)


class RaisedBudget(BaseModel):
    """The limits of a session after a raise, and the limits of the session and its tree that the raise changed."""

    limits: Limits
    changes: list[BudgetRaised]


async def raise_limits(pool: Pool, ref: SessionRef, wanted: Raise, by: str, actor: str) -> RaisedBudget | None:
    """Raise limits of a session and of its tree, with events and an audit entry; None if the session has ended.

    Values that are not higher than before change nothing, so a repetition writes nothing.
    """
    async with pool.acquire() as connection, connection.transaction():
        sql = """SELECT limits FROM sessions WHERE tenant = $1 AND id = $2
                    AND status NOT IN ('completed', 'failed', 'cancelled') FOR UPDATE"""
        text = await connection.fetchval(sql, ref.tenant, ref.session_id)
        if text is None:
            return None
        before = Limits.model_validate_json(text)
        limits = wanted.limits(before)
        if limits != before:
            # A question may wait as long as its session, so its deadline moves by the same time.
            await connection.execute(
                """WITH moved AS (
                       UPDATE sessions SET limits = $3, deadline = deadline + $4::interval, updated_at = now(),
                                           emitted_once = array(SELECT name FROM unnest(emitted_once) AS name
                                                                 WHERE NOT starts_with(name, 'budget_low/'))
                        WHERE tenant = $1 AND id = $2 RETURNING deadline - $4::interval AS deadline)
                   UPDATE input_requests r SET deadline = r.deadline + $4::interval FROM moved
                    WHERE r.tenant = $1 AND r.session_id = $2 AND r.status = 'open' AND r.deadline = moved.deadline""",
                ref.tenant,
                ref.session_id,
                limits.model_dump_json(),
                timedelta(milliseconds=limits.ttl_ms - before.ttl_ms),
            )
        changes = [BudgetRaised(scope=Scope.SESSION, by=by, **dict(change)) for change in wanted.changes(before)]
        tree = await connection.fetchrow(f"{_TREE} FOR UPDATE", ref.tenant, ref.conversation_id)
        if tree is not None and (higher := wanted.tree_changes(TreeBudget(**tree))):
            for change in higher:
                sql = f"""UPDATE budgets SET max_{change.budget} = $3, low_reported = array_remove(low_reported, $4)
                           WHERE tenant = $1 AND conversation_id = $2"""
                await connection.execute(sql, ref.tenant, ref.conversation_id, change.limit, change.budget)
            changes += [BudgetRaised(scope=Scope.TREE, by=by, **dict(change)) for change in higher]
        if changes:
            events = [EventRow.of(ref, change) for change in changes]
            await connection.execute("SELECT append_events('', false, $1::jsonb)", to_json(events))
            await audit.append(
                connection,
                ref.tenant,
                ref.conversation_id,
                actor,
                "raise_budget",
                session_id=ref.session_id,
                subject=", ".join(f"{change.scope} {change.budget}" for change in changes),
                inputs=wanted.model_dump_json(exclude_none=True),
            )
        return RaisedBudget(limits=limits, changes=changes)

"""Budgets of conversation trees: a model call reserves what it may use, its commit settles what it has used."""

from domain.limits.budget import CallEstimate, Grant, Reserved, TreeBudget, grant
from domain.sessions.session import SessionRef
from store.database import Pool

_TREE = "SELECT * FROM budgets WHERE tenant = $1 AND conversation_id = $2"
_HELD = """
SELECT count(*) AS calls, coalesce(sum(tokens), 0)::bigint AS tokens, coalesce(sum(cost_usd), 0) AS cost_usd
  FROM reservations WHERE tenant = $1 AND conversation_id = $2 AND NOT (session_id = $3 AND line = $4)
"""


async def get(pool: Pool, tenant: str, conversation_id: str) -> TreeBudget | None:
    row = await pool.fetchrow(_TREE, tenant, conversation_id)
    return TreeBudget(**row) if row else None


async def held(pool: Pool, tenant: str, conversation_id: str) -> Reserved:
    """What the calls under way may still use."""
    row = await pool.fetchrow(_HELD, tenant, conversation_id, "", "")
    return Reserved(**row) if row else Reserved()


async def reserve(pool: Pool, ref: SessionRef, line: str, estimate: CallEstimate) -> Grant:
    """Under the lock of the tree's row, so that calls side by side never promise themselves the same money twice."""
    async with pool.acquire() as connection, connection.transaction():
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
    await pool.execute(
        "DELETE FROM reservations WHERE tenant = $1 AND session_id = $2 AND line = $3",
        ref.tenant,
        ref.session_id,
        line,
    )

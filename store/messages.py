"""The immutable message tree: append a step, read the path to a head."""

import logging
from datetime import datetime

import asyncpg
from errand.models import RegistryEntry
from pydantic import BaseModel, Field, Json, ValidationError

from domain.agents.definition import ExternalTool
from domain.conversations.mailbox import Outcome
from domain.conversations.requests import InboxKind
from domain.conversations.subagents import SubagentTerms
from domain.events import EventRow
from domain.json_object import JsonObject
from domain.limits import TreeBudget
from domain.messages import Node, UserBlock, calls_of, repair_gaps
from domain.sessions.new_session import TaskTerms
from domain.sessions.session import ModelReply, Status, ToolCallResult, Usage
from domain.sessions.writes import StepBegin, StepCommit
from store import events, mailbox
from store.database import Pool, call

log = logging.getLogger("errand.store")


class HistoryLost(Exception):
    """The messages up to a head no longer exist, or none of them can be read."""


class TakenMessage(BaseModel):
    """A message of the inbox that enters the context."""

    id: str
    kind: InboxKind
    author: str
    parts: Json[list[UserBlock]]
    source: str | None = None  # the session whose outcome it carries
    visible: bool = True  # false: it is in the context but not shown to people


class LiveChild(BaseModel):
    """A running subagent."""

    session_id: str
    name: str


class StepFacts(BaseModel):
    """The data that an attempt of a model call reads before it asks the model."""

    reply: str | None = None  # set if this very call was committed before
    status: Status | None = None
    plan: str | None = None
    tools: list[str] | None = None  # the session's tools, if they differ from its definition's
    children: list[LiveChild] = Field(default_factory=list)  # only for a checkpoint
    cancel_requested: str | None = None
    rules: str = "[]"  # JSON: layers of permission rules in addition to the agent's own
    may_ask: bool = False
    approval_required: bool = False
    external_tools: Json[list[ExternalTool]] = Field(default_factory=list)
    variables: Json[dict[str, str]] = Field(default_factory=dict)
    task_terms: Json[TaskTerms] | None = None  # the task's additions to the definition
    arguments: Json[JsonObject] | None = None  # with which its thread was created
    subagent: Json[SubagentTerms] | None = None  # the terms of a child that a tool of its parent's prompt started
    registry: list[RegistryEntry] = Field(default_factory=list)  # its own children of that kind
    briefing: str | None = None  # what the files of the workspace say to every model that works in it
    rerun: str | None = None  # JSON: the session that this one repeats, and whether with recorded answers
    limits: str | None = None  # JSON
    created_at: datetime | None = None
    started_at: datetime | None = None
    tree: TreeBudget | None = None
    inbox: list[TakenMessage] = Field(default_factory=list)
    outcomes: dict[str, Outcome] = Field(default_factory=dict)  # by the source session of an inbox message
    results: list[ToolCallResult] = Field(default_factory=list)


async def begin_step(pool: Pool, begin: StepBegin) -> StepFacts:
    facts = StepFacts.model_validate_json(await call(pool, "begin_step", begin))
    sources = [message.source for message in facts.inbox if message.source is not None]
    if not sources:
        return facts
    found = await mailbox.outcomes_of_sessions(pool, begin.tenant, sources)
    return facts.model_copy(update={"outcomes": {outcome.session_id: outcome for outcome in found}})


async def commit_step(pool: Pool, commit: StepCommit) -> ModelReply:
    """Append prelude and reply; returns the reply that was committed first."""
    return ModelReply.model_validate_json(await call(pool, "commit_step", commit))


async def note_retry(pool: Pool, event: EventRow) -> None:
    """Show that a model call waits for its next attempt; the event is a ModelRetry."""
    async with pool.acquire() as connection, connection.transaction():
        sql = """UPDATE sessions SET retry = $3, updated_at = now()
                  WHERE tenant = $1 AND id = $2 AND status NOT IN ('completed', 'failed', 'cancelled') RETURNING id"""
        if await connection.fetchval(sql, event.tenant, event.session_id, event.data) is not None:
            await events.append(connection, "", [event])


async def prompt(pool: Pool, tenant: str, call: str) -> str:
    """The prompt inside a tool call, given as "node/index"."""
    node_id, _, index = call.rpartition("/")
    [node] = await path(pool, tenant, node_id, limit=1)
    found: str = calls_of(node)[int(index)].arguments["prompt"]
    return found


async def path(
    pool: Pool, tenant: str, head: str | None, known: str | None = None, limit: int | None = None
) -> list[Node]:
    """The nodes from the root (or from just after `known`, an ancestor) to `head`, oldest first; at most the last
    `limit`."""
    if head is None or head == known:
        return []
    return _read(await _walk(pool, tenant, head, known, limit))


async def context(pool: Pool, tenant: str, head: str, known: str | None = None) -> tuple[list[Node], bool]:
    """The same for a model, and whether the nodes follow `known`. A single unreadable message is left out. HistoryLost
    is raised if the path does not reach its beginning, or if nothing of it can be read."""
    rows = await _walk(pool, tenant, head, known, None)
    nodes = _read(rows)
    follows = bool(rows) and known is not None and rows[0]["parent"] == known
    if not follows and (not nodes or rows[0]["parent"] is not None):
        raise HistoryLost(head)
    return nodes, follows


async def _walk(pool: Pool, tenant: str, head: str, known: str | None, limit: int | None) -> list[asyncpg.Record]:
    sql = """WITH RECURSIVE walk AS (
                 SELECT id, parent, session_id, kind, author, line, side, step, body, 1 AS depth
                   FROM messages WHERE tenant = $1 AND id = $2
                 UNION ALL
                 SELECT m.id, m.parent, m.session_id, m.kind, m.author, m.line, m.side, m.step, m.body, depth + 1
                   FROM walk JOIN messages m ON m.tenant = $1 AND m.id = walk.parent
                  WHERE walk.parent IS DISTINCT FROM $3 AND ($4::int IS NULL OR depth < $4))
             SELECT id, parent, session_id, kind, author, line, side, step, body FROM walk ORDER BY depth DESC"""
    rows: list[asyncpg.Record] = await pool.fetch(sql, tenant, head, known, limit)
    return rows


async def usage_of(pool: Pool, tenant: str, nodes: list[str]) -> list[Usage]:
    """The usage of each model call that committed one of these nodes as its reply."""
    query = "SELECT reply FROM messages WHERE tenant = $1 AND id = ANY($2::text[]) AND reply IS NOT NULL"
    return [ModelReply.model_validate_json(row["reply"]).usage for row in await pool.fetch(query, tenant, nodes)]


async def of_session(pool: Pool, tenant: str, session_id: str) -> list[Node]:
    """Every node that a session wrote, oldest first, including branches that a reset left behind."""
    sql = """SELECT id, parent, session_id, kind, author, line, side, step, body FROM messages
              WHERE tenant = $1 AND session_id = $2 ORDER BY created_at, id"""
    rows = await pool.fetch(sql, tenant, session_id)
    return _read(rows)


def _read(rows: list[asyncpg.Record]) -> list[Node]:
    """The nodes. An unreadable one is left out, so that the rest of its conversation can be continued."""
    nodes: list[Node] = []
    for row in rows:
        try:
            nodes.append(Node(**row))
        except ValidationError:
            log.warning("message %s cannot be read and is left out", row["id"])
    return nodes if len(nodes) == len(rows) else repair_gaps(nodes)

"""Removal of content: every column of every table is emptied or named here, and nothing of others is touched."""

import json
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest

from domain.ids import new_id
from store.database import Pool
from tests.behaviour.store.conftest import Accept

PAST, FUTURE = datetime(2020, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
KEYED = ("sessions", "conversations", "workspaces", "workspace_changes")  # by an id of their own
NUMBERS = ("bigint", "integer", "double precision")
_numbers = count(1)
# What keeps its value: ids, names and words of the platform, figures, policy, and what was set up apart from any task.
STAYS = {
    "address_messages": "key",
    "addresses": "key kind",
    "audit": "action actor chain digest hash previous subject",
    "budgets": "low_reported",
    "call_attempts": "call",
    "channels": "channel_id connector user_id",
    "conversations": "delivery status",
    "event_subscriptions": "pattern",
    "external_events": "body event_id key outcome source type",  # a body stays only in an event that nobody got
    "face_requests": "digest face public_id",
    "input_requests": "answered_by event_key kind on_expiry status",
    "notices": "created_by type",
    "reservations": "line",
    "resets": "by",
    "schedule_runs": "reason schedule_id status",
    "schedules": "created_by name pause_reason prompt reason rules session status summary",
    "sessions": "agent agent_owner cancel_requested created_by delivery emitted_once error_type handed_to limits "
    "models reason rerun retry rules run_id session_type sides status subagent subagent_name tools trigger usage",
    "threads": "agent name parent_thread_id",
    "tool_calls": "effect holder kind node state tool usage",
}


async def columns(pool: Pool) -> dict[str, dict[str, str]]:
    """By table, for those with rows of a conversation: the columns and their types."""
    rows = await pool.fetch(
        """SELECT c.table_name, c.column_name, c.data_type FROM information_schema.columns c
             JOIN information_schema.tables t USING (table_schema, table_name)
            WHERE c.table_schema = 'public' AND t.table_type = 'BASE TABLE' AND c.is_identity = 'NO'
              AND c.is_generated = 'NEVER' AND c.data_type <> 'tstzmultirange'"""
    )
    tables: dict[str, dict[str, str]] = {}
    for row in rows:
        tables.setdefault(row["table_name"], {})[row["column_name"]] = row["data_type"]
    names = {"session_id", "conversation_id"}
    return {table: found for table, found in tables.items() if table in KEYED or names & set(found)}


async def fill(pool: Pool, tenant: str, session: str) -> None:
    """Write one row into every table for a conversation with one session, with a canary in every other column."""
    canary = json.dumps({"said": f"canary {session}"})
    values = {"text": canary, "jsonb": canary, "ARRAY": [canary], "boolean": False}
    ids = ("id", "session_id", "conversation_id", "thread_id", "workspace_id", "file_id")
    for table, found in (await columns(pool)).items():
        given: dict[str, Any] = {name: values.get(kind, PAST) for name, kind in found.items()}
        given |= {name: next(_numbers) for name, kind in found.items() if kind in NUMBERS}
        given |= {name: session for name in ids if name in found} | {"tenant": tenant}
        if table == "sessions":
            given |= {"parent_session_id": None, "spawned_by": None, "content_removed_at": None}
        if table in ("workspaces", "workspace_changes", "files"):
            blobs = {"workspaces": "manifest", "workspace_changes": "undo", "files": "sha256"}
            text = f"blob of {table}"
            given[blobs[table]] = text if table == "files" else json.dumps({"canary": {"sha256": text}})
        marks = ", ".join(f"${number}" for number in range(1, len(given) + 1))
        statement = f"INSERT INTO {table} ({', '.join(map(json.dumps, given))}) VALUES ({marks})"
        await pool.execute(statement, *given.values())


async def rows_of(pool: Pool, tenant: str, session: str) -> dict[str, list[str]]:
    found = {}
    for table in await columns(pool):
        rows = await pool.fetch(
            f"SELECT row FROM (SELECT to_jsonb(t)::text AS row FROM {table} t) x WHERE row LIKE $1 AND row LIKE $2",
            f'%"{tenant}"%',
            f"%{session}%",
        )
        found[table] = sorted(row["row"] for row in rows)
    return found


async def test_all_that_was_said_is_removed_and_nothing_of_others(pool: Pool) -> None:
    tenant, other, session, beside = f"t-{new_id()}", f"t-{new_id()}", new_id(), new_id()
    for owner, ref in ((tenant, session), (other, session), (tenant, beside)):
        await fill(pool, owner, ref)
    neighbours = ((other, session), (tenant, beside))
    before = [await rows_of(pool, owner, ref) for owner, ref in neighbours]
    assert await pool.fetchval("SELECT remove_content($1, $2)", tenant, session)
    left: dict[str, set[str]] = {}
    for table, rows in (await rows_of(pool, tenant, session)).items():
        for row in rows:
            names = {name for name, value in json.loads(row).items() if "canary" in str(value)}
            left.setdefault(table, set()).update(names)
    assert {table: " ".join(sorted(names)) for table, names in left.items() if names} == STAYS
    assert [await rows_of(pool, owner, ref) for owner, ref in neighbours] == before
    blobs = await pool.fetch("SELECT sha256 FROM loose_blobs WHERE tenant = $1", tenant)
    assert sorted(row[0] for row in blobs) == ["blob of files", "blob of workspace_changes", "blob of workspaces"]
    assert not await pool.fetchval("SELECT remove_content($1, $2)", tenant, session)  # it is done


async def test_figures_stay_and_texts_inside_of_what_stays_go(pool: Pool) -> None:
    tenant, session = f"t-{new_id()}", new_id()
    await fill(pool, tenant, session)
    definition = {"prompt": "canary", "mcp_servers": {"canary": 1}, "name": "rerun"}
    changes = {
        "UPDATE events SET type = 'usage_updated', data = '{}' WHERE session_id = $1": None,
        'UPDATE sessions SET cancel_requested = \'{"by": "ann", "note": "canary"}\' WHERE id = $1': None,
        """INSERT INTO agent_versions (owner, name, version, digest, definition, created_by)
           VALUES ('rerun/' || $1, 'rerun', 1, '', $2, '')""": json.dumps(definition),
        "UPDATE deliveries SET status = 'pending' WHERE session_id = $1": None,
    }
    for statement, value in changes.items():
        await pool.execute(statement, session, *([value] if value else []))
    assert await pool.fetchval("SELECT remove_content($1, $2)", tenant, session)
    row = await pool.fetchrow(
        """SELECT (SELECT count(*) FROM events WHERE session_id = $1) AS figures,
                  (SELECT cancel_requested FROM sessions WHERE id = $1) AS stop,
                  (SELECT definition FROM agent_versions WHERE owner = 'rerun/' || $1) AS definition,
                  (SELECT concat(status, body, next_at) FROM deliveries WHERE session_id = $1) AS sent""",
        session,
    )
    assert row is not None and row["figures"] == 1 and row["sent"] == "failed"
    assert json.loads(row["stop"]) == {"by": "ann", "note": ""}
    assert json.loads(row["definition"]) == {"prompt": "(removed)", "name": "rerun"}


@pytest.mark.parametrize(
    ("own", "beside", "removed"),
    [
        ({"keep_until": PAST}, None, True),
        ({"keep_until": None}, None, False),  # it has not ended
        ({"keep_until": FUTURE}, None, False),
        ({}, {"keep_until": FUTURE}, False),  # one of two is kept longer
        ({}, {"keep_until": None}, False),
        ({}, {"keep_until": None, "content_removed_at": PAST}, True),
        ({}, {"keep_until": PAST, "continues": True}, True),  # in the same conversation
        ({}, {"keep_until": FUTURE, "apart": True}, True),  # another conversation
        ({}, {"keep_until": FUTURE, "apart": True, "continues": True}, False),  # and it continues from this one
        ({}, {"keep_until": PAST, "apart": True, "continues": True, "content_removed_at": PAST}, True),
    ],
)
async def test_content_is_removed_when_nobody_needs_it(
    pool: Pool, accept: Accept, own: dict[str, Any], beside: dict[str, Any] | None, removed: bool
) -> None:
    ref, other = await accept(), await accept()
    change = """UPDATE sessions SET keep_until = $2, content_removed_at = $3, conversation_id = $4,
                       parent_session_id = $5 WHERE id = $1"""
    at = ref.conversation_id
    await pool.execute(change, ref.session_id, own.get("keep_until", PAST) if own else PAST, None, at, None)
    if beside is not None:
        home = other.conversation_id if beside.get("apart") else at
        parent = ref.session_id if beside.get("continues") else None
        ends = (beside["keep_until"], beside.get("content_removed_at"))
        await pool.execute(change, other.session_id, *ends, home, parent)
    assert await pool.fetchval("SELECT remove_content($1, $2)", ref.tenant, at) is removed

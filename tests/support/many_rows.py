"""Rows for many tasks, many requests, and a task of many steps: copies of what a real task has written."""

from domain.ids import new_id
from store.database import Pool

_TASKS = """
INSERT INTO sessions SELECT (jsonb_populate_record(s, jsonb_build_object(
           'id', one.id, 'title', 'copy ' || one.n || ' of ' || s.id, 'created_at', s.created_at))).*
  FROM sessions s, unnest($2::text[]) WITH ORDINALITY AS one (id, n) WHERE s.id = $1
"""
_EVENTS = """
INSERT INTO events SELECT (jsonb_populate_record(e, jsonb_build_object(
           'session_id', $2::text, 'conversation_id', $2::text, 'seq', n * 100 + e.seq, 'conv_seq', n * 100 + e.seq,
           'data', (e.data::jsonb || jsonb_build_object('step', n))::text))).*
  FROM events e, generate_series(1, $3) AS n
 WHERE e.session_id = $1 AND e.data::jsonb ? 'step' AND (e.data::jsonb ->> 'step')::int = 1
"""
_REQUESTS = """
INSERT INTO input_requests SELECT (jsonb_populate_record(r, jsonb_build_object(
           'id', one.id, 'question', 'copy ' || one.n || ' of ' || r.id,
           'deadline', now() + interval '5 minutes' + one.n * interval '10 seconds'))).*
  FROM input_requests r, unnest($2::text[]) WITH ORDINALITY AS one (id, n) WHERE r.id = $1
"""


async def copy_task(pool: Pool, task_id: str, count: int) -> list[str]:
    """Add this many newer copies of an ended task, as turns of its conversation, with its id in their titles."""
    ids = sorted(new_id() for _ in range(count))
    await pool.execute(_TASKS, task_id, ids)
    return ids


async def copy_steps(pool: Pool, task_id: str, count: int) -> str:
    """Add a task whose log repeats the first step of another this many times."""
    [long_id] = await copy_task(pool, task_id, 1)
    await pool.execute(_EVENTS, task_id, long_id, count)
    return long_id


async def copy_request(pool: Pool, request_id: str, count: int) -> list[str]:
    """Add this many open copies of a request. The first expires in five minutes, each other one ten seconds later."""
    ids = sorted(new_id() for _ in range(count))
    await pool.execute(_REQUESTS, request_id, ids)
    return ids

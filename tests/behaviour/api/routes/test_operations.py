"""Health, a database that is away, and how many objects of a kind a tenant may have."""

from dataclasses import replace
from typing import Any

import httpx2

from api.routes import channels, schedules, triggers
from domain.ids import new_id
from settings import Settings
from store import workers
from store.database import Pool
from tests.behaviour.api.conftest import key_for, problem, serving
from tests.support.launch import free_port


async def test_health_and_readiness_are_reported(api: httpx2.AsyncClient, pool: Pool) -> None:
    assert (await api.get("/healthz")).json() == {"status": "ok"}
    await workers.beat(pool, "seen", "bwrap")
    answer = await api.get("/readyz")
    assert answer.status_code == 503  # Temporal does not run in these tests
    assert answer.json() == {
        "ready": False,
        "postgres": True,
        "temporal": False,
        "worker": True,
        "workers": {"seen": "bwrap"},
        "missing": [],
    }
    await workers.leave(pool, "seen")


async def test_api_starts_and_answers_503_while_the_database_is_unreachable(settings: Settings) -> None:
    away = replace(settings, database_url=f"postgresql://app@127.0.0.1:{free_port()}/postgres")
    async with serving(away) as url, httpx2.AsyncClient(base_url=url) as client:
        assert (await client.get("/healthz")).status_code == 200
        spec = {"agent": "assistant", "input": "x"}
        for answer in (await client.post("/tasks", json=spec), await client.get(f"/tasks/{new_id()}")):
            problem(answer, 503, "dependency-unavailable")
            assert int(answer.headers["retry-after"]) > 0
        ready = await client.get("/readyz")
        assert ready.status_code == 503 and ready.json()["postgres"] is False


ROWS = {
    schedules.MOST: """INSERT INTO schedules (tenant, id, name, rules, session, prompt, conversation_id, synced,
                                         created_by)
        SELECT $1, $1 || n, 's' || n, '{"name": "x", "every": 60000}', '{}', '', '', 1, ''
          FROM generate_series(1, $2::int) n""",
    triggers.MOST: """INSERT INTO triggers (tenant, id, name, rules, secret, prompt, created_by)
        SELECT $1, $1 || n, 't' || n, '{"signature": "github"}', '', '', '' FROM generate_series(1, $2::int) n""",
    channels.MOST: """INSERT INTO connectors (tenant, id, name, kind, agent, target, secrets, debounce_ms, created_by)
        SELECT $1, $1 || n, 'c' || n, 'webhook', 'assistant', '', '{}', 0, ''
          FROM generate_series(1, $2::int) n""",
}
DAILY: dict[str, Any] = {"name": "one-more", "every": 86_400_000, "task": {"agent": "assistant", "input": "x"}}
ONE_MORE: list[tuple[str, str, dict[str, Any], str]] = [
    ("POST", "/schedules", DAILY, "20000 schedules"),
    ("PUT", "/triggers/one-more", {"signature": "github", "task": DAILY["task"]}, "1000 triggers"),
    ("PUT", "/connectors/one-more", {"kind": "webhook", "agent": "assistant"}, "100 connectors"),
]


async def test_one_more_than_a_tenant_may_have_is_refused(keyed_url: str, pool: Pool) -> None:
    full, other = new_id(), new_id()
    keys = {tenant: await key_for(pool, tenant) for tenant in (full, other)}
    for most, insert in ROWS.items():
        await pool.execute(insert, full, most)
    async with httpx2.AsyncClient(base_url=keyed_url) as client:
        for method, path, body, most_of in ONE_MORE:
            refused = await client.request(method, path, json=body, headers=keys[full])
            assert (refused.status_code, refused.json()["detail"]) == (409, f"There may be at most {most_of}."), path
            name = {**body, "name": f"m-{new_id()}"} if "name" in body else body
            made = await client.request(method, path, json=name, headers=keys[other])
            assert made.status_code in (200, 201), made.text
    for table in ("schedules", "triggers", "connectors"):
        await pool.execute(f"DELETE FROM {table} WHERE tenant = $1", full)

"""Keys, rates and quotas over HTTP; the rights of keys are tested in test_rights.py."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import httpx2
import pytest

from settings import Settings
from store import keys
from store.database import Pool
from store.keys import Right
from tests.behaviour.api.conftest import end, key_for, problem, serving, submitted

NOBODY = "ek_000000000000_" + "x" * 43


@pytest.mark.parametrize("path", ["/tasks", "/agents", "/metrics", "/openapi.json", "/docs", "/nowhere"])
async def test_other_addresses_need_a_key_for_everything(keyed_url: str, path: str) -> None:
    async with httpx2.AsyncClient(base_url=keyed_url) as client:
        answer = await client.get(path)
        problem(answer, 401, "unauthenticated")
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert (await client.get("/healthz")).status_code == 200


async def test_every_bad_key_gets_the_same_answer(keyed_url: str, pool: Pool) -> None:
    key, expired = await keys.create(pool, "bad", "old", [Right.READ], datetime.now(UTC) - timedelta(seconds=1))
    key, revoked = await keys.create(pool, "bad", "gone", [Right.READ])
    assert await keys.revoke(pool, "bad", key.id)
    _, good = await keys.create(pool, "bad", "good", [Right.READ])
    wrong = good[:-2] + ("AA" if not good.endswith("AA") else "BB")
    async with httpx2.AsyncClient(base_url=keyed_url) as client:
        details = set()
        for presented in (NOBODY, expired, revoked, wrong, "ek_", "x" * 5_000, good + "x", f"{good} {good}"):
            answer = await client.get("/tasks", headers={"Authorization": f"Bearer {presented}"})
            details.add(problem(answer, 401, "unauthenticated")["detail"])
        assert len(details) == 1
        assert (await client.get("/tasks", headers={"Authorization": f"bearer {good}"})).status_code == 200


async def test_a_key_that_is_sent_must_be_valid_on_loopback_too(api: httpx2.AsyncClient, pool: Pool) -> None:
    problem(await api.get("/tasks", headers={"Authorization": f"Bearer {NOBODY}"}), 401, "unauthenticated")
    headers = await key_for(pool, "guest", Right.READ)
    # the request runs as the key's tenant, not as the default one
    assert (await api.get("/tasks", headers=headers)).json()["items"] == []


async def test_rate_is_shared_by_all_processes(settings: Settings, pool: Pool) -> None:
    limited = replace(settings, requests_per_minute=20)
    headers = await key_for(pool, "rate", Right.READ)
    other = await key_for(pool, "rate", Right.READ)
    async with serving(limited) as one, serving(limited) as two, httpx2.AsyncClient() as client:
        urls = [f"{url}/tasks" for url in (one, two) for _ in range(20)]
        answers = await asyncio.gather(*(client.get(url, headers=headers) for url in urls))
        taken = [answer for answer in answers if answer.status_code == 200]
        assert 20 <= len(taken) <= 21
        refused = next(answer for answer in answers if answer.status_code == 429)
        problem(refused, 429, "rate-limited")
        assert 1 <= int(refused.headers["retry-after"]) <= 4
        assert (await client.get(f"{one}/tasks", headers=other)).status_code == 200


async def test_wrong_secret_does_not_use_up_the_rate_of_the_key(settings: Settings, pool: Pool) -> None:
    limited = replace(settings, requests_per_minute=3)
    headers = await key_for(pool, "victim", Right.READ)
    id = headers["Authorization"].split("_")[1]
    async with serving(limited) as url, httpx2.AsyncClient(base_url=url) as client:
        for _ in range(10):
            await client.get("/tasks", headers={"Authorization": f"Bearer ek_{id}_{'x' * 43}"})
        assert (await client.get("/tasks", headers=headers)).status_code == 200


async def test_live_tasks_are_limited_per_key(settings: Settings, pool: Pool) -> None:
    headers = await key_for(pool, "quota")
    async with serving(replace(settings, live_tasks=3)) as url, httpx2.AsyncClient(base_url=url) as client:
        spec = {"agent": "assistant", "input": "x"}
        answers = await asyncio.gather(*(client.post("/tasks", json=spec, headers=headers) for _ in range(10)))
        accepted = [answer.json()["task_id"] for answer in answers if answer.status_code == 202]
        assert len(accepted) == 3
        refused = next(answer for answer in answers if answer.status_code == 429)
        problem(refused, 429, "live-tasks")
        assert int(refused.headers["retry-after"]) > 0
        await end(pool, accepted[0], tenant="quota")
        assert await submitted(client, headers)
        assert await submitted(client, await key_for(pool, "quota"))  # another key has its own limit


async def test_database_keeps_no_secret_of_a_key(pool: Pool) -> None:
    _, secret = await keys.create(pool, "kept", "k", [Right.READ])
    row = await pool.fetchrow("SELECT * FROM api_keys WHERE tenant = 'kept'")
    assert row and secret.split("_", 2)[2] not in str(dict(row))

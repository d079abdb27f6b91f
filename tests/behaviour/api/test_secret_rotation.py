"""`errand secrets rotate` encrypts every stored secret again, however often the command is interrupted."""

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from domain.credentials import CredentialSpec
from domain.ids import new_id
from domain.sealing import KeyRing
from settings import Settings
from store import connectors, credentials, notifications, resealing, sessions
from store.database import Pool
from store.resealing import Resealer
from tests.behaviour.api.conftest import submitted
from tests.support.launch import SECRET_KEYS

OLD = "test"  # the name of the key that the API of the tests uses
NEW = "next:" + "B" * 43 + "="
AGENT = {"name": "locksmith", "description": "x", "prompt": "x", "tools": []}
SECRET: dict[str, Any] = {"agent": "locksmith", "context": {"variables": {"pin": "pin-canary", "city": "Bern"}}}


@pytest.fixture
def small_batches() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resealing, "BATCH", 2)
        yield


async def stored_under(pool: Pool, key_id: str) -> dict[str, int]:
    """The columns of all tables that hold values encrypted with this key."""
    found: dict[str, int] = {}
    for row in await pool.fetch("SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public'"):
        count = await pool.fetchval(
            f'SELECT count(*) FROM "{row["name"]}" t WHERE strpos(t::text, $1) > 0', f"sealed:{key_id}:"
        )
        found |= {row["name"]: count} if count else {}
    return found


async def store_secrets(api: httpx2.AsyncClient, pool: Pool) -> dict[str, str]:
    """Store a secret in every column that holds any; return where to find some of them."""
    variables = {"pin": {"description": "x", "kind": "secret"}, "city": "where"}
    assert (await api.put("/agents/locksmith", json={**AGENT, "variables": variables})).is_success
    for _ in range(3):
        task = await submitted(api, **SECRET)
    name = new_id()
    hook = {"name": name, "channel": "webhook", "target": "https://x.example.org/target-canary"}
    subscription = (await api.post("/subscriptions", json=hook)).json()["id"]
    assert (await api.post(f"/subscriptions/{subscription}/rotate")).is_success
    connector = {"kind": "slack", "agent": "assistant", "signing_secret": "signing-canary", "token": "xoxb-canary"}
    assert (await api.put(f"/connectors/c-{name[-6:]}", json=connector)).is_success
    schedule = {"name": name, "cron": "0 0 1 1 *", "task": {"input": "x", **SECRET}}
    assert (await api.post("/schedules", json=schedule)).status_code == 201
    trigger = {"signature": "github", "secret": "trigger-secret-canary", "task": {"input": "x", **SECRET}}
    assert (await api.put(f"/triggers/{name}", json=trigger)).is_success
    assert (await api.put(f"/credentials/{name}", json={"secret": "credential-canary"})).is_success
    ring = KeyRing.parse(SECRET_KEYS)
    for owner in ("user/one", "user/two", f"task/{task}"):
        one = credentials.seal(ring, "default", owner, name, CredentialSpec(secret="credential-canary"))
        await credentials.put(pool, "default", one, "nobody")
    sealed = await pool.fetchval("SELECT variables FROM sessions WHERE id = $1", task)
    await pool.execute(
        """INSERT INTO input_requests
                  (tenant, id, conversation_id, session_id, kind, question, details, answer, deadline, on_expiry)
           VALUES ('default', $1, $2, $2, 'missing_variables', 'x', '{}', $3, now(), 'cancel')""",
        new_id(),
        task,
        sealed,
    )
    return {"task": task, "subscription": subscription, "connector": f"c-{name[-6:]}"}


async def test_all_stored_secrets_are_encrypted_with_the_new_key(
    api: httpx2.AsyncClient, pool: Pool, settings: Settings, small_batches: None
) -> None:
    made = await store_secrets(api, pool)
    places = await stored_under(pool, OLD)
    assert places.keys() >= {
        *("subscriptions", "connectors", "sessions", "schedules", "triggers", "input_requests", "credentials")
    }
    keys = KeyRing.parse([NEW, *settings.secret_keys])

    interrupted = Resealer(pool, keys)
    running = asyncio.create_task(interrupted.run())
    while not interrupted.changed.total():  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert await stored_under(pool, OLD)  # the interrupted command has not reached every secret

    again = Resealer(pool, keys)
    await again.run()
    assert again.changed and not again.unreadable
    assert await stored_under(pool, OLD) == {}
    assert await stored_under(pool, "next") == places

    alone = KeyRing.parse([NEW])
    hook = await connectors.find(pool, "default", made["connector"], alone)
    assert hook is not None and hook.secrets.token == "xoxb-canary" and hook.secrets.signing == "signing-canary"
    row = await pool.fetchrow(
        "SELECT target, secret, old_secret FROM subscriptions WHERE id = $1", made["subscription"]
    )
    opened = [alone.unseal(text, "default", notifications.SEALED_FOR, made["subscription"]) for text in row or ()]
    assert opened[0].endswith("target-canary") and len(set(opened)) == 3
    session = await sessions.get(pool, "default", made["task"])
    assert session is not None and alone.unseal(session.variables["pin"], "default", "variable", "pin") == "pin-canary"
    assert session.variables["city"] == session.spec["context"]["variables"]["city"] == "Bern"

    repeated = Resealer(pool, keys)
    await repeated.run()
    assert not repeated.changed

    lost = Resealer(pool, KeyRing.parse(["third:" + "C" * 43 + "="]))  # a key ring without the key that encrypted them
    await lost.run()
    assert lost.unreadable and not lost.changed
    assert await stored_under(pool, "next") == places

    # restore the old key, because other tests use this database too
    back = Resealer(pool, KeyRing.parse([*settings.secret_keys, NEW]))
    await back.run()
    assert await stored_under(pool, "next") == {}

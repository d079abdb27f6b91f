"""Addresses and secrets are never in plain text: not in a table, in Temporal, in a log, or in a response."""

import asyncio
from dataclasses import replace
from pathlib import Path

import httpx2

from tests.behaviour.api.conftest import problem, serving
from tests.behaviour.notifications.receivers import Receiver
from tests.behaviour.notifications.subscribers import Subscribers

TOKEN = "canary-81f2c40e"


async def test_no_secret_is_stored_or_shown(subscribers: Subscribers, receiver: Receiver) -> None:
    receiver.answers[f"/{TOKEN}"] = ["500 Oh", "204 No Content"]
    made = await subscribers.subscribe(f"{receiver.url}/{TOKEN}", every_task=False)  # only for the task that names it
    rotated = (await subscribers.stack.http.post(f"/subscriptions/{made['id']}/rotate")).json()
    secrets = [TOKEN, made["secret"], rotated["secret"]]
    await subscribers.stack.run("[[script:say text=x]]", config={"notify": [made["name"]]})
    pending = await subscribers.delivery(made, attempts=1)
    await subscribers.pass_time(subscribers.workflow(pending), seconds=6)
    await subscribers.delivery(made, status="delivered")
    for path in ("/subscriptions", "/deliveries"):
        shown = (await subscribers.stack.http.get(path)).text
        assert not [secret for secret in secrets if secret in shown], path
    tables = await subscribers.stack.pool.fetch("SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public'")
    for table in tables:
        for row in await subscribers.stack.pool.fetch(f'SELECT t::text AS row FROM "{table["name"]}" t'):
            assert not [secret for secret in secrets if secret in row["row"]], table["name"]
    for file in await asyncio.to_thread(_files, subscribers.stack.root):
        content = await asyncio.to_thread(file.read_bytes)
        assert not [secret for secret in secrets if secret.encode() in content], file


def _files(root: Path) -> list[Path]:
    found = [*(root / "temporal").glob("temporal.db*"), *(root / "logs").iterdir(), root / "stack.json"]
    assert len(found) > 5
    return [path for path in found if path.is_file()]


async def test_without_a_key_no_secret_is_stored(subscribers: Subscribers) -> None:
    """An API without ERRAND_SECRET_KEYS refuses subscriptions and secret variables, and names the setting."""
    settings = replace(
        subscribers.stack.settings, database_url=subscribers.stack.database_url, secret_keys=(), local_token=None
    )
    async with serving(settings) as url, httpx2.AsyncClient(base_url=url) as client:
        for channel, target in (("webhook", "https://x.example.org/t"), ("email", "ops@example.org")):
            body = {"name": f"no-key-{channel}", "channel": channel, "target": target}
            refused = await client.post("/subscriptions", json=body)
            assert "ERRAND_SECRET_KEYS" in problem(refused, 409, "no-secret-key")["detail"]
        definition = {"name": "locked-out", "description": "x", "prompt": "x", "tools": []}
        secret = {"pin": {"description": "x", "kind": "secret"}, "city": "where"}
        assert (await client.put("/agents/locked-out", json={**definition, "variables": secret})).is_success
        task = {"agent": "locked-out", "input": "x", "context": {"variables": {"pin": "0000", "city": "x"}}}
        problem(await client.post("/tasks", json=task), 409, "no-secret-key")

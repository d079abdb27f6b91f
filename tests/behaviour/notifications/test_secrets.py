"""Addresses and secrets stay in their table: neither Temporal nor a log nor an answer shows them again."""

import asyncio
from pathlib import Path

import pytest

from tests.behaviour.notifications.receivers import Receiver
from tests.behaviour.notifications.subscribers import Told

TOKEN = "canary-81f2c40e"


@pytest.mark.proves("S1-27")
async def test_no_secret_leaves_its_table(told: Told, receiver: Receiver) -> None:
    receiver.answers[f"/{TOKEN}"] = ["500 Oh", "204 No Content"]
    made = await told.subscribe(f"{receiver.url}/{TOKEN}")
    rotated = (await told.stack.http.post(f"/subscriptions/{made['id']}/rotate")).json()
    secrets = [TOKEN, made["secret"], rotated["secret"]]
    await told.stack.run("[[script:say text=x]]", config={"notify": [made["name"]]})
    pending = await told.delivery(made, attempts=1)
    await told.pass_time(told.workflow(pending), seconds=6)
    await told.delivery(made, status="delivered")
    for path in ("/subscriptions", f"/subscriptions/{made['id']}", "/deliveries", f"/deliveries/{pending['id']}"):
        shown = (await told.stack.http.get(path)).text
        assert not [secret for secret in secrets if secret in shown], path
    tables = await told.stack.pool.fetch("SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public'")
    for table in tables:
        for row in await told.stack.pool.fetch(f'SELECT t::text AS row FROM "{table["name"]}" t'):
            found = [secret for secret in secrets if secret in row["row"]]
            assert not found or table["name"] == "subscriptions", table["name"]
    for file in await asyncio.to_thread(_files, told.stack.root):
        content = await asyncio.to_thread(file.read_bytes)
        assert not [secret for secret in secrets if secret.encode() in content], file


def _files(root: Path) -> list[Path]:
    found = [*(root / "temporal").glob("temporal.db*"), *(root / "logs").iterdir(), root / "stack.json"]
    assert len(found) > 5
    return [path for path in found if path.is_file()]

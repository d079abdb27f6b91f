"""Secrets are visible nowhere: not in Temporal's file, the database, logs or events, nor to a command."""

from store import keys
from store.keys import Right
from tests.support.launch import MODEL_KEY
from tests.support.secrets import secrets_found
from tests.support.stack import Stack, calls


async def test_no_secret_leaves_its_place(stack: Stack) -> None:
    _, key = await keys.create(stack.pool, "default", "canary", list(Right))
    password = stack.database_url.partition("://")[2].partition("@")[0].partition(":")[2]
    secrets = [MODEL_KEY.encode(), key.encode(), password.encode()]

    headers = {"Authorization": f"Bearer {key}"}
    task = {"agent": "tester", "input": "[[fault:auth]]"}
    assert (await stack.http.post("/tasks", json=task, headers=headers)).status_code == 202
    assert (await stack.http.get("/tasks", headers={"Authorization": f"Bearer {key[:-1]}x"})).status_code == 401
    record = await stack.run(calls(("bash", {"command": "env; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'"})))
    assert record["status"] == "completed"

    assert await secrets_found(stack, secrets) == []

"""The audit log: each action is recorded in its own transaction, and a removed entry is noticed."""

import asyncio
import hashlib
import os
import pwd
from typing import Any

import pytest
from errand.models import ChainedEntry

from domain.audit import link
from domain.ids import new_id
from store import audit, keys
from tests.support.command import cli
from tests.support.stack import Stack, calls, steps

ACCOUNT = pwd.getpwuid(os.geteuid()).pw_name  # that runs the tests, and calls without a key
PERSON = f"account {ACCOUNT}"
WRITE = ("write_file", {"path": "a.txt", "content": "one\n"})


async def entries(stack: Stack, path: str) -> list[dict[str, Any]]:
    """Return the entries, oldest first."""
    answer = await stack.http.get(path, params={"limit": 1000})
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
    return items[::-1]


def reported(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(entry["actor"], entry["action"]) for entry in found]


@pytest.mark.proves("S1-65")
async def test_a_task_leaves_a_chain_of_who_did_what(recorded: Stack) -> None:
    ask = [{"permission": "bash", "pattern": "*", "action": "ask"}]
    script = steps([WRITE, ("read_file", {"path": "a.txt"})], [("bash", {"command": "true"})])
    task_id = await recorded.submit(script, permissions=ask)
    request = (await recorded.seen(task_id, "input_required"))["request_id"]
    await recorded.http.post(f"/tasks/{task_id}/input", json={"response_to": request, "input": {"approved": True}})
    await recorded.wait(task_id)
    found = await entries(recorded, f"/tasks/{task_id}/audit")
    agent = "agent tester"
    assert reported(found) == [
        (PERSON, "submit"),
        *[(agent, "tool_begun"), (agent, "tool_ended")],
        *[(agent, "ask"), (PERSON, "answer")],
        *[(agent, "tool_begun"), (agent, "tool_ended")],
        (agent, "end"),
    ]
    assert found[-1]["subject"] == "completed goal_reached"
    assert [entry["hash"] for entry in found[:-1]] == [entry["previous"] for entry in found[1:]]
    # our hash function and the database's agree
    assert all(link(ChainedEntry(**entry)) == entry["hash"] for entry in found)
    output = (await recorded.result(task_id))["output"]
    assert found[-1]["digest"] == hashlib.sha256(output.encode()).hexdigest()
    submitted = await recorded.pool.fetchval(
        "SELECT s.spec || i.parts FROM sessions s JOIN inbox i ON i.id = s.inbox[1] WHERE s.id = $1", task_id
    )
    assert found[0]["digest"] == hashlib.sha256(submitted.encode()).hexdigest()


async def test_agents_and_keys_are_in_the_tenants_own_chain(recorded: Stack) -> None:
    tenant = f"audited-{new_id()}"
    key, secret = await keys.create(recorded.pool, tenant, "boss", list(keys.Right))
    headers = {"Authorization": f"Bearer {secret}"}
    definition = {"name": "mine", "description": "Mine.", "prompt": "Be mine.", "tools": []}
    assert (await recorded.http.put("/agents/mine", json=definition, headers=headers)).is_success
    await keys.revoke(recorded.pool, tenant, key.id)
    found = (await audit.find(recorded.pool, tenant, chain="", limit=100))[::-1]
    assert [(entry.actor, entry.action) for entry in found] == [
        ("operator", "create_key"),
        (key.id, "define_agent"),
        ("operator", "revoke_key"),
    ]
    assert found[1].subject == "mine 1"
    assert (await audit.verify(recorded.pool, tenant)).found is None


async def test_a_deleted_last_entry_is_shown_by_every_reader(recorded: Stack) -> None:
    task = await recorded.run(calls(WRITE))
    deleted = "DELETE FROM audit WHERE chain = $1 AND seq = (SELECT max(seq) FROM audit WHERE chain = $1) RETURNING *"
    row = None
    try:
        async with recorded.pool.acquire() as connection, connection.transaction():
            await connection.execute("ALTER TABLE audit DISABLE TRIGGER USER")
            row = await connection.fetchrow(deleted, task["conversation_id"])
            await connection.execute("ALTER TABLE audit ENABLE TRIGGER USER")
        assert row is not None
        for path in ("/audit/verify", f"/tasks/{task['task_id']}/audit/verify"):
            said = (await recorded.http.get(path)).json()
            assert not said["intact"], path
            broken = {"chain": task["conversation_id"], "seq": row["seq"], "problem": "it is missing"}
            assert said["broken"] == broken, path
        verified = await cli(recorded, "audit", "verify")
        assert verified.exit_code == 1 and task["conversation_id"] in verified.output
    finally:
        if row is not None:  # the log of the other tests is whole
            names, places = ", ".join(row.keys()), ", ".join(f"${n + 1}" for n in range(len(row)))
            await recorded.pool.execute(
                f"INSERT INTO audit ({names}) OVERRIDING SYSTEM VALUE VALUES ({places})", *row.values()
            )
    assert (await recorded.http.get("/audit/verify")).json()["intact"]


@pytest.mark.exactly_once
async def test_concurrent_writers_leave_whole_chains_that_are_sealed(recorded: Stack) -> None:
    await asyncio.gather(*(recorded.run(calls(*[WRITE] * 3)) for _ in range(4)))
    await recorded.sweep()
    said = (await recorded.http.get("/audit/verify")).json()
    assert said["intact"] and said["broken"] is None and said["chains"] > 4, said
    unsealed = "SELECT count(*) FROM audit_heads WHERE seq > sealed AND chain <> '' AND tenant = 'default'"
    assert await recorded.pool.fetchval(unsealed) == 0
    again = (await recorded.http.get("/audit/verify", params={"head": said["head"]})).json()
    assert again["intact"]
    other = (await recorded.http.get("/audit/verify", params={"head": "0" * 64})).json()
    assert not other["intact"] and "recorded elsewhere" in other["broken"]["problem"]

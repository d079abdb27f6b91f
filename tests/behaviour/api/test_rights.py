"""The rights in docs/api.md, request by request: on a key's own objects and on those of another."""

from typing import Any

import httpx2
import pytest

from api.app import create_app
from domain.ids import new_id
from store.database import Pool
from store.keys import Right
from tests.behaviour.api.conftest import end, problem, run, submitted
from tests.behaviour.api.every_route import Owner, Row, documented, request, routes_of

TABLE = documented()
COMBINATIONS = [*(frozenset([right]) for right in Right), frozenset([Right.SUBMIT, Right.SUPERVISE])]


def test_table_names_every_route_of_the_application() -> None:
    assert set(TABLE) == routes_of(create_app())


@pytest.mark.parametrize("row", TABLE.values(), ids=lambda row: f"{row.method} {row.path}")
async def test_each_request_needs_the_rights_of_the_table(row: Row, keyed_url: str, pool: Pool) -> None:
    async with httpx2.AsyncClient(base_url=keyed_url, timeout=30) as client:
        tenant = new_id()
        maker, other = [await Owner.new(pool, client, tenant) for _ in range(2)]
        for caller, rule in ((maker, row.own), (other, row.foreign)):
            ids: dict[str, str] = {}
            for rights in COMBINATIONS if rule is not None else ():
                # a refused request changes nothing, so its object serves the next one too
                ids = ids or await maker.made(row.path, new_id())
                await caller.keep_only(rights)
                answer = await _send(client, row, ids, caller)
                if rule is not None and rule.allows(rights):
                    assert answer.status_code not in (401, 403, 500), (sorted(rights), answer.text)
                    ids = ids if row.method == "GET" else {}
                elif row.path.startswith("/v1/"):
                    code = answer.json()["error"]["code"]
                    assert (answer.status_code, code) == (403, "insufficient_scope"), (sorted(rights), answer.text)
                else:
                    problem(answer, 403, "insufficient-scope")


async def _send(client: httpx2.AsyncClient, row: Row, ids: dict[str, str], caller: Owner) -> httpx2.Response:
    options = request(row.method, row.path)
    # without this type of media a stream would not end
    headers = {"Accept": "application/json", **options.get("headers", {}), **caller.headers}
    return await client.request(row.method, row.path.format(**ids), **{**options, "headers": headers})


@pytest.mark.parametrize("reference", ["conversation_id", "fork_from", "history_session", "files", "artifact"])
async def test_a_new_task_may_refer_to_what_its_key_may_use(reference: str, keyed_url: str, pool: Pool) -> None:
    """Continuing and forking are actions and need supervise. A history or a file is only read, which needs read."""
    reads = reference in ("history_session", "files", "artifact")
    async with httpx2.AsyncClient(base_url=keyed_url) as client:
        tenant = new_id()
        maker, other = [await Owner.new(pool, client, tenant) for _ in range(2)]
        task_id = await submitted(client, maker.headers)
        await end(pool, task_id, tenant=tenant, head="node-1")
        file_id = (await maker.made("{file_id}", new_id()))["file_id"]
        if reference == "artifact":
            await pool.execute("UPDATE files SET session_id = $2, created_by = '' WHERE id = $1", file_id, task_id)
        context = {"files": [file_id]} if reference != "history_session" else {"history_session": task_id}
        fields: dict[str, Any] = {"context": context} if reads else {reference: task_id}
        body = {**({"agent": "assistant"} if reads else {}), "input": "x", "transport": "stream", **fields}
        for caller, extra, allowed in (
            (maker, set(), True),
            (other, set(), False),
            (other, {Right.READ}, reads),
            (other, {Right.SUPERVISE}, True),
        ):
            await caller.keep_only(frozenset([Right.SUBMIT, *extra]))
            answer = await client.post("/conversations/run", json=body, headers=caller.headers)
            if allowed:
                assert answer.status_code in (202, 409), answer.text  # the conversation may be busy by now
            else:
                problem(answer, 403, "insufficient-scope")


async def test_owner_of_a_conversation_acts_on_sessions_that_others_added(keyed_url: str, pool: Pool) -> None:
    async with httpx2.AsyncClient(base_url=keyed_url) as client:
        tenant = new_id()
        maker, supervisor = [await Owner.new(pool, client, tenant) for _ in range(2)]
        first = await submitted(client, maker.headers)
        await end(pool, first, tenant=tenant, head="node-1")
        added = (await run(client, supervisor.headers, conversation_id=first))["session_id"]
        await maker.keep_only(frozenset([Right.SUBMIT]))
        answer = await client.post(f"/tasks/{added}/cancel", headers=maker.headers)
        assert answer.status_code == 202, answer.text


async def test_an_idempotency_key_replays_only_to_the_key_that_used_it(keyed_url: str, pool: Pool) -> None:
    async with httpx2.AsyncClient(base_url=keyed_url) as client:
        tenant = new_id()
        maker, other = [await Owner.new(pool, client, tenant) for _ in range(2)]
        body, key = {"agent": "assistant", "input": "x"}, {"Idempotency-Key": "1"}
        first = await client.post("/tasks", json=body, headers={**maker.headers, **key})
        again = await client.post("/tasks", json=body, headers={**maker.headers, **key})
        assert again.json() == first.json() and again.headers["idempotent-replayed"] == "true"
        await other.keep_only(frozenset([Right.SUBMIT]))
        foreign = await client.post("/tasks", json=body, headers={**other.headers, **key})
        assert first.json()["task_id"] not in problem(foreign, 422, "idempotency-key-reused")["detail"]

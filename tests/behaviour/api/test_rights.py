"""The rights in docs/api.md, request by request: on a key's own objects and on those of another."""

from itertools import chain
from typing import Any

import httpx2
import pytest

from api.app import create_app
from domain.ids import new_id
from store import keys
from store.database import Pool
from store.keys import Right
from tests.behaviour.api.conftest import end, problem, run, submitted, waiting_subagent
from tests.support.rights_table import Row, Rule, documented, routes_of

TABLE = documented()
COMBINATIONS = [*(frozenset([right]) for right in Right), frozenset([Right.SUBMIT, Right.SUPERVISE])]
JSON = {"headers": {"Accept": "application/json"}}  # without it a stream would not end
WEBHOOK = {"channel": "webhook", "target": "https://hooks.example.org/x"}
SCHEDULE = {"name": "x", "every": 86_400_000, "task": {"agent": "assistant", "input": "x"}}
TRIGGER = {"signature": "github", "secret": "0123456789abcdef", "task": {"agent": "assistant", "input": "x"}}
OPTIONS: dict[tuple[str, str], dict[str, Any]] = {
    ("GET", "/tasks/{task_id}/events"): JSON,
    ("GET", "/conversations/{conversation_id}/events"): JSON,
    ("GET", "/notifications"): JSON,
    ("POST", "/tasks"): {"json": {"agent": "assistant", "input": "x"}},
    ("POST", "/v1/responses"): {"json": {"model": "assistant", "input": "x", "background": True}},
    ("POST", "/conversations/run"): {"json": {"agent": "assistant", "input": "x", "transport": "stream"}},
    ("POST", "/conversations/{conversation_id}/messages"): {"json": {"input": "x", "transport": "stream"}},
    ("POST", "/conversations/{conversation_id}/fork"): {"json": {"execute": False}},
    ("PATCH", "/conversations/{conversation_id}"): {"json": {"title": "x"}},
    ("POST", "/tasks/{task_id}/rerun"): {"json": {"prompt": "Say the opposite."}},
    ("POST", "/tasks/{task_id}/steer"): {"json": {"message": "x"}},
    ("POST", "/tasks/{task_id}/budget"): {"json": {"max_steps": 100}},
    ("POST", "/tasks/{task_id}/input"): {"json": {"response_to": "x", "input": "x"}},
    ("PUT", "/threads/{thread_id}/variables"): {"json": {"variables": {"REGION": "x-value"}}},
    ("POST", "/threads/{thread_id}/variables/{request_id}"): {"json": {"variables": {"unknown": "x"}}},
    ("POST", "/files"): {"params": {"name": "x"}, "content": b"x"},
    ("PUT", "/agents/{name}"): {"json": {"name": "assistant", "description": "x", "prompt": "x"}},
    ("PUT", "/connectors/{connector}"): {"json": {"kind": "webhook", "agent": "assistant"}},
    ("POST", "/channels/{connector}/{channel_id}/{user_id}/messages"): {"json": {"text": "x"}},
    ("PUT", "/triggers/{trigger}"): {"json": TRIGGER},
    ("POST", "/triggers/{trigger}"): {
        "content": b"{}",
        "headers": {"x-hub-signature-256": "sha256=f91e3e9f05cc2df64ac1c26f8adccdffda8d1e4a7a8c50a1a08eeadac6ddfec5"},
    },
    ("POST", "/missions"): {"json": {**SCHEDULE, "total": {"runs": 9}}},
    ("PUT", "/missions/{mission_id}/files"): {"json": {}},
    ("POST", "/schedules"): {"json": SCHEDULE},
    ("PUT", "/schedules/{schedule_id}"): {"json": SCHEDULE},
    ("POST", "/schedules/{schedule_id}/backfill"): {
        "json": {"start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"}
    },
    **{("POST", f"/codec/{verb}"): {"json": {"payloads": []}} for verb in ("decode", "encode")},
    ("POST", "/subscriptions"): {"json": {"name": "x", **WEBHOOK}},
}


class Holder:
    """A key whose rights can be removed after it has created something."""

    def __init__(self, pool: Pool, client: httpx2.AsyncClient, tenant: str, key: keys.Key, secret: str) -> None:
        self._pool, self._client, self._tenant, self._key = pool, client, tenant, key
        self.headers = {"Authorization": f"Bearer {secret}"}

    @classmethod
    async def new(cls, pool: Pool, client: httpx2.AsyncClient, tenant: str) -> "Holder":
        return cls(pool, client, tenant, *await keys.create(pool, tenant, "holder", list(Right)))

    async def keep_only(self, rights: frozenset[Right]) -> None:
        await self._pool.execute("UPDATE api_keys SET rights = $2 WHERE id = $1", self._key.id, sorted(rights))

    async def ids(self, path: str) -> dict[str, str]:
        """Create the object that the path names, with this key."""
        await self.keep_only(frozenset(Right))
        made: dict[str, str] = {"name": "assistant"}
        names = ("{task_id}", "{session_id}", "{conversation_id}", "{thread_id}", "{response_id}")
        if any(name in path for name in names):
            task_id = await submitted(self._client, self.headers)
            made["response_id"] = f"resp_{task_id}"
            made |= {"task_id": task_id, "session_id": task_id, "conversation_id": task_id, "thread_id": task_id}
        if "{request_id}" in path:
            task_id = await submitted(self._client, self.headers)
            made |= {"thread_id": task_id, "request_id": await waiting_subagent(self._pool, self._tenant, task_id)}
        if "{connector}" in path:
            made |= {"connector": f"c-{new_id()}", "channel_id": "room", "user_id": "ann"}
            body = {"kind": "webhook", "agent": "assistant"}
            await self._client.put(f"/connectors/{made['connector']}", json=body, headers=self.headers)
            await self._post(f"/channels/{made['connector']}/room/ann/messages", json={"text": "x"})
        if "{connector_id}" in path:
            made["connector_id"] = new_id()
        if "{trigger}" in path:
            made["trigger"] = f"t-{new_id()}"
            await self._client.put(f"/triggers/{made['trigger']}", json=TRIGGER, headers=self.headers)
        if "{mission_id}" in path:
            mission = {**SCHEDULE, "name": new_id(), "total": {"runs": 9}}
            made["mission_id"] = (await self._post("/missions", json=mission))["id"]
        if "{schedule_id}" in path:
            made["schedule_id"] = (await self._post("/schedules", json={**SCHEDULE, "name": new_id()}))["id"]
        if "{file_id}" in path:
            made["file_id"] = (await self._post("/files?name=x", content=b"x"))["file_id"]
        if "{subscription_id}" in path or "{delivery_id}" in path:
            made["subscription_id"] = (await self._post("/subscriptions", json={"name": new_id(), **WEBHOOK}))["id"]
        if "{delivery_id}" in path:
            made["delivery_id"] = (await self._post(f"/subscriptions/{made['subscription_id']}/test"))["id"]
        return made

    async def _post(self, path: str, **options: Any) -> dict[str, Any]:
        answer = await self._client.post(path, headers=self.headers, **options)
        assert answer.status_code in (201, 202), answer.text
        body: dict[str, Any] = answer.json()
        return body


def test_table_names_every_route_of_the_application() -> None:
    assert set(TABLE) == routes_of(create_app())


@pytest.mark.parametrize("row", TABLE.values(), ids=lambda row: f"{row.method} {row.path}")
async def test_each_request_needs_the_rights_of_the_table(row: Row, keyed_url: str, pool: Pool) -> None:
    async with httpx2.AsyncClient(base_url=keyed_url, timeout=30) as client:
        tenant = new_id()
        maker, other = [await Holder.new(pool, client, tenant) for _ in range(2)]
        for rights in COMBINATIONS:
            for caller, rule in ((maker, row.own), (other, row.foreign)):
                if rule is not None:
                    ids = await maker.ids(row.path)
                    await caller.keep_only(rights)
                    await _check(client, row, rule, rights, ids, caller)


async def _check(
    client: httpx2.AsyncClient, row: Row, rule: Rule, rights: frozenset[Right], ids: dict[str, str], caller: Holder
) -> None:
    options = OPTIONS.get((row.method, row.path), {})
    headers = {**options.get("headers", {}), **caller.headers}
    answer = await client.request(row.method, row.path.format(**ids), **{**options, "headers": headers})
    if rule.allows(rights):
        assert answer.status_code not in (401, 403, 500), (sorted(rights), answer.text)
    elif row.path.startswith("/v1/"):
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "insufficient_scope"), answer.text
    else:
        problem(answer, 403, "insufficient-scope")


@pytest.mark.parametrize("reference", ["conversation_id", "fork_from", "history_session", "files", "artifact"])
async def test_a_new_task_may_refer_to_what_its_key_may_use(reference: str, keyed_url: str, pool: Pool) -> None:
    """Continuing and forking are actions and need supervise. A history or a file is only read, which needs read."""
    reads = reference in ("history_session", "files", "artifact")
    async with httpx2.AsyncClient(base_url=keyed_url) as client:
        tenant = new_id()
        maker, other = [await Holder.new(pool, client, tenant) for _ in range(2)]
        task_id = await submitted(client, maker.headers)
        await end(pool, task_id, tenant=tenant, head="node-1")
        file_id = (await maker.ids("{file_id}"))["file_id"]
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
        maker, supervisor = [await Holder.new(pool, client, tenant) for _ in range(2)]
        first = await submitted(client, maker.headers)
        await end(pool, first, tenant=tenant, head="node-1")
        added = (await run(client, supervisor.headers, conversation_id=first))["session_id"]
        await maker.keep_only(frozenset([Right.SUBMIT]))
        answer = await client.post(f"/tasks/{added}/cancel", headers=maker.headers)
        assert answer.status_code == 202, answer.text


async def test_an_idempotency_key_replays_only_to_the_key_that_used_it(keyed_url: str, pool: Pool) -> None:
    async with httpx2.AsyncClient(base_url=keyed_url) as client:
        tenant = new_id()
        maker, other = [await Holder.new(pool, client, tenant) for _ in range(2)]
        body, key = {"agent": "assistant", "input": "x"}, {"Idempotency-Key": "1"}
        first = await client.post("/tasks", json=body, headers={**maker.headers, **key})
        again = await client.post("/tasks", json=body, headers={**maker.headers, **key})
        assert again.json() == first.json() and again.headers["idempotent-replayed"] == "true"
        await other.keep_only(frozenset([Right.SUBMIT]))
        foreign = await client.post("/tasks", json=body, headers={**other.headers, **key})
        assert first.json()["task_id"] not in problem(foreign, 422, "idempotency-key-reused")["detail"]


def test_combinations_distinguish_the_rules() -> None:
    """No two rules of the table allow the same combinations of rights, so a changed rule is noticed."""
    rules = set(chain.from_iterable((row.own, row.foreign) for row in TABLE.values())) - {None}
    seen = {tuple(rule.allows(rights) for rights in COMBINATIONS) for rule in rules if rule is not None}
    assert len(seen) == len(rules)

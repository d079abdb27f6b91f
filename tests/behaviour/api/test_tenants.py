"""Two tenants with the same kinds of objects, every route: neither can see, change or guess anything of the other."""

import re
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from api.app import create_app
from domain.events import EventRow, InputRequired
from domain.ids import new_id
from domain.sessions.input_request import OnExpiry, RequestKind
from domain.sessions.session import SessionRef
from domain.sessions.writes import NewRequest, RequestOpening
from settings import Settings
from store import input_requests
from store.database import Pool
from tests.behaviour.api.conftest import end, key_for, problem, ref, serving, spawned
from tests.behaviour.api.every_route import Owner, operation, request, routes_of

ANY_ID = re.compile(r"(?<![0-9a-z])[0-9a-z]{26}(?![0-9a-z])")
ROUTES = sorted(routes_of(create_app()))
CHOSEN = {
    # the caller chooses these names: it makes an object of its own, or another secret decides
    ("PUT", "/agents/{name}"),
    ("PUT", "/connectors/{connector}"),
    ("PUT", "/credentials/{credential}"),
    ("PUT", "/environments/{environment}"),
    ("PUT", "/triggers/{trigger}"),
    ("POST", "/triggers/{trigger}"),
    ("POST", "/hooks/{connector_id}"),
    ("GET", "/console/{name}"),
}
OF_THE_PLATFORM = {  # these responses are the same for everybody
    *("/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/docs/oauth2-redirect", "/redoc", "/"),
    *("/summary", "/figures", "/queues"),  # only counts
    "/console/session",  # only the caller itself
    "/audit/verify",  # counts and a hash
}
# needs more than rows to show something
MORE = (
    "/tasks/{task_id}/workspace/file",
    "/tasks/{task_id}/workspace/difference",
    "/threads/{thread_id}/variables",
)
JSON = {"Accept": "application/json"}
QUERIES = {"/notifications": {"after": "0"}}


class Tenant(Owner):
    """A tenant with an object of each kind."""

    ids: dict[str, str]

    @classmethod
    async def populated(cls, pool: Pool, client: httpx2.AsyncClient) -> "Tenant":
        mark = new_id()
        tenant = await cls.new(pool, client, mark)
        tenant.headers |= JSON
        tenant.ids = ids = await tenant.made(" ".join(path for _, path in ROUTES), mark)
        ids["name"] = f"a{mark}"
        definition = {"name": ids["name"], "description": mark, "prompt": mark}
        await tenant.send("PUT", f"/agents/{ids['name']}", json=definition)
        await tenant.send("PUT", "/variables", json={"variables": {ids["name"]: mark}, "kind": "text"})
        root = ids["task_id"]
        child, asking = [await spawned(pool, root, tenant=mark, name=name) for name in ("one", "two")]
        await _ask(pool, ref(asking, mark, root), mark)
        await end(pool, child, tenant=mark, output=mark)
        await end(pool, root, tenant=mark, output=mark)
        return tenant

    async def get(self, path: str, params: dict[str, str] | None = None) -> httpx2.Response:
        return await self.client.get(path, params=params, headers=self.headers)

    async def ask(self, method: str, path: str, ids: dict[str, str], options: dict[str, Any]) -> httpx2.Response:
        headers = {**self.headers, "Accept": "*/*", **options.get("headers", {})}
        return await self.client.request(method, path.format(**ids), **{**options, "headers": headers})


async def _ask(pool: Pool, who: SessionRef, question: str) -> None:
    deadline = datetime.now(UTC) + timedelta(hours=1)
    request = NewRequest(
        id=new_id(),
        session_id=who.session_id,
        conversation_id=who.conversation_id,
        kind=RequestKind.CLARIFICATION,
        question=question,
        deadline=deadline,
        on_expiry=OnExpiry.CANCEL,
    )
    event = InputRequired(request_id=request.id, kind=request.kind, question=question, deadline=deadline)
    opening = RequestOpening(tenant=who.tenant, request=request, events=[EventRow.of(who, event)])
    assert await input_requests.open_request(pool, opening)


@pytest.mark.proves("F-10")
@pytest.mark.parametrize("guarded", [True, False])
async def test_foreign_ids_are_404_everywhere(guarded: bool, settings: Settings, database_url: str, pool: Pool) -> None:
    """Without the policies of the database too, which would hide a statement that forgets its tenant."""
    async with _served(guarded, settings, database_url) as url, httpx2.AsyncClient(base_url=url, timeout=30) as client:
        mine, theirs = [await Tenant.populated(pool, client) for _ in range(2)]
        nothing = {name: f"a{new_id()}" if name == "name" else new_id() for name in mine.ids}
        nothing["response_id"] = f"resp_{nothing['task_id']}"
        for method, path in ROUTES:
            for options in _ways(method, path) if "{" in path and (method, path) not in CHOSEN else ():
                foreign = await theirs.ask(method, path, mine.ids, options)
                unknown = await theirs.ask(method, path, nothing, options)
                assert foreign.status_code == unknown.status_code == 404, (method, path, foreign.text)
                assert {**foreign.json(), "instance": ""} == {**unknown.json(), "instance": ""}, (method, path)
                assert not _ids(foreign.text) & {mine.tenant, *mine.ids.values()}, (method, path)
        for method, path in ROUTES:
            if method == "GET" and "{" in path and (method, path) not in CHOSEN and not path.startswith(MORE):
                assert (await mine.get(path.format(**mine.ids))).status_code == 200, f"{path} is gone"
        for field, prefix in (("previous_response_id", "resp"), ("conversation", "conv")):
            task = {"model": "assistant", "input": "mine now", "background": True}
            foreign, unknown = [
                await client.post("/v1/responses", json={**task, field: f"{prefix}_{one}"}, headers=theirs.headers)
                for one in (mine.ids["task_id"], nothing["task_id"])
            ]
            assert foreign.status_code in (400, 404) and foreign.json() == unknown.json(), field
        for field, type in (("conversation_id", "unknown-conversation"), ("fork_from", "unknown-session")):
            body = {"input": "mine", field: mine.ids["task_id"]}
            problem(await client.post("/conversations/run", json=body, headers=theirs.headers), 404, type)


def _served(guarded: bool, settings: Settings, database_url: str) -> AbstractAsyncContextManager[str]:
    """A server that requires a key; unguarded, with a role to which the policies of the database do not apply."""
    keyed = replace(settings, host="0.0.0.0", requests_per_minute=100_000)
    return serving(keyed if guarded else replace(keyed, database_url=database_url))


def _ways(method: str, path: str) -> Iterator[dict[str, Any]]:
    """The route's request, as JSON, as a stream, and with each choice that its query has."""
    options = request(method, path)
    yield {**options, "headers": JSON}
    if method == "GET":
        yield options
        names = [one["name"] for one in operation(method, path).get("parameters", ()) if _is_choice(one)]
        for name in ["stream"] if path == "/v1/responses/{response_id}" else names:
            yield {**options, "params": {**options.get("params", {}), name: "true"}}


def _is_choice(parameter: dict[str, Any]) -> bool:
    schema = parameter["schema"]
    return parameter["in"] == "query" and "boolean" in {one.get("type") for one in (schema, *schema.get("anyOf", ()))}


async def test_every_list_shows_one_tenant_only(settings: Settings, database_url: str, pool: Pool) -> None:
    async with _served(False, settings, database_url) as url, httpx2.AsyncClient(base_url=url, timeout=30) as client:
        mine, theirs = [await Tenant.populated(pool, client) for _ in range(2)]
        for path in [path for method, path in ROUTES if method == "GET" and "{" not in path]:
            own, other = [(await one.get(path, QUERIES.get(path))).text for one in (mine, theirs)]
            own_ids, other_ids = [{one.tenant, *one.ids.values()} for one in (mine, theirs)]
            assert not _ids(other) & own_ids, path
            if path in OF_THE_PLATFORM:
                continue
            assert not _ids(own) & _ids(other), path
            assert _ids(own) & own_ids and _ids(other) & other_ids, f"{path} shows a tenant nothing of its own"
            for name in [one["name"] for one in operation("GET", path).get("parameters", ())]:
                if name.endswith("_id"):
                    filtered = {**QUERIES.get(path, {}), name: mine.ids[name]}
                    assert _ids((await mine.get(path, filtered)).text) & _ids(own), (path, name)
                    assert not _ids((await theirs.get(path, filtered)).text) & _ids(own), (path, name)


def _ids(text: str) -> set[str]:
    return set(ANY_ID.findall(text))


@pytest.mark.proves("F-10")
async def test_lists_references_and_keys_show_one_tenant_only(keyed_url: str, pool: Pool) -> None:
    mine, theirs = await key_for(pool, "left"), await key_for(pool, "right")
    async with httpx2.AsyncClient(base_url=keyed_url) as client:
        key = {"Idempotency-Key": "the same"}
        spec = {"agent": "assistant", "input": "hi"}
        one = (await client.post("/tasks", json=spec, headers={**mine, **key})).json()["task_id"]
        two = (await client.post("/tasks", json=spec, headers={**theirs, **key})).json()["task_id"]
        assert one != two
        await client.post("/tasks", json=spec, headers=mine)
        page = (await client.get("/tasks?limit=1", headers=mine)).json()
        moved = await client.get("/tasks", params={"limit": 1, "cursor": page["next_cursor"]}, headers=theirs)
        assert all(item["task_id"] == two for item in moved.json()["items"])

        file = (await client.post("/files?name=a", content=b"a", headers=mine)).json()["file_id"]
        await end(pool, one, tenant="left")
        for context in ({"files": [file]}, {"history_session": one}):
            answer = await client.post("/tasks", json={**spec, "context": context}, headers=theirs)
            assert problem(answer, 422, "validation")["errors"][0]["code"] == "not_found"

        answer = await client.post("/tasks", json={**spec, "tenant": "left"}, headers=theirs)
        problem(answer, 422, "validation")

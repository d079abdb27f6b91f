"""Two tenants with the same kinds of objects: for every GET, each tenant sees its own objects and no others."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2

from api.app import create_app
from domain.events import EventRow, InputRequired
from domain.ids import new_id
from domain.sessions.input_request import OnExpiry, RequestKind
from domain.sessions.session import SessionRef
from domain.sessions.writes import NewRequest, RequestOpening
from settings import Settings
from store import input_requests
from store.database import Pool
from tests.behaviour.api.conftest import end, key_for, problem, ref, serving, spawned, submitted, waiting_subagent
from tests.support.rights_table import routes_of

ANY_ID = re.compile(r"(?<![0-9a-z])[0-9a-z]{26}(?![0-9a-z])")
OF_THE_PLATFORM = {  # these responses are the same for everybody
    *("/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/docs/oauth2-redirect", "/redoc", "/"),
    *("/summary", "/queues"),  # only counts
    "/console/session",  # only the caller itself
    "/audit/verify",  # counts and a hash
}
ELSEWHERE = {  # foreign ids are tested in test_tenants.py; these routes need more than a row to show something
    "/console/{name}",
    "/tasks/{task_id}/workspace/file",
    "/threads/{thread_id}/variables",
    "/threads/{thread_id}/variables/{request_id}",
}
GETS = sorted(path for method, path in routes_of(create_app()) if method == "GET" and path not in ELSEWHERE)
QUERIES = {"/notifications": {"after": "0"}}
JSON = {"Accept": "application/json"}


class Tenant:
    """Create one object of each kind, all of which contain the same text."""

    def __init__(self, client: httpx2.AsyncClient, headers: dict[str, str]) -> None:
        self.name = self.mark = new_id()
        self.ids: dict[str, str] = {"name": f"agent-{self.mark}"}
        self._client, self._headers = client, headers

    @classmethod
    async def populated(cls, client: httpx2.AsyncClient, pool: Pool) -> "Tenant":
        tenant = cls(client, {})
        tenant._headers = {**JSON, **await key_for(pool, tenant.name)}
        mark, ids = tenant.mark, tenant.ids
        definition = {"name": ids["name"], "description": mark, "prompt": mark}
        await tenant._made("PUT", f"/agents/{ids['name']}", json=definition)
        await tenant._made("PUT", "/variables", json={"variables": {"REGION": mark}, "kind": "text"})
        file = await tenant._made("POST", f"/files?name={mark}", content=mark.encode())
        webhook = {"name": mark, "channel": "webhook", "target": f"https://{mark}.example.org/x"}
        subscription = await tenant._made("POST", "/subscriptions", json=webhook)
        delivery = await tenant._made("POST", f"/subscriptions/{subscription['id']}/test")
        ids |= {"connector": f"c-{mark}", "channel_id": mark, "user_id": mark}
        await tenant._made("PUT", f"/connectors/c-{mark}", json={"kind": "webhook", "agent": ids["name"]})
        await tenant._made("POST", f"/channels/c-{mark}/{mark}/{mark}/messages", json={"text": mark})
        ids["trigger"] = f"t-{mark}"
        event = {"signature": "github", "task": {"agent": "assistant", "input": mark}}
        await tenant._made("PUT", f"/triggers/t-{mark}", json=event)
        daily = {"name": mark, "every": 86_400_000, "task": {"agent": "assistant", "input": mark}}
        mission = {**daily, "name": f"m-{mark}", "total": {"runs": 9}}
        ids["mission_id"] = (await tenant._made("POST", "/missions", json=mission))["id"]
        ids["schedule_id"] = (await tenant._made("POST", "/schedules", json=daily))["id"]
        root = await submitted(client, tenant._headers, input=mark, user_id=mark)
        await waiting_subagent(pool, tenant.name, root)
        child, asking = [await spawned(pool, root, tenant=tenant.name, name=name) for name in ("one", "two")]
        await _ask(pool, ref(asking, tenant.name, root), mark)
        await end(pool, child, tenant=tenant.name, output=mark)
        await end(pool, root, tenant=tenant.name, output=mark)
        ids |= {"task_id": root, "session_id": root, "conversation_id": root, "response_id": f"resp_{root}"}
        ids |= {"file_id": file["file_id"], "subscription_id": subscription["id"], "delivery_id": delivery["id"]}
        return tenant

    @property
    def own(self) -> set[str]:
        return {self.mark, *self.ids.values()}

    async def _made(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        answer = await self._client.request(method, path, headers=self._headers, **options)
        assert answer.status_code in (200, 201, 202), answer.text
        body: dict[str, Any] = answer.json()
        return body

    async def get(self, path: str, params: dict[str, str] | None = None) -> httpx2.Response:
        return await self._client.get(path, params=params, headers=self._headers)


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


async def test_every_get_shows_one_tenant_only(settings: Settings, database_url: str, pool: Pool) -> None:
    """The policies of the database are off here: they would hide a statement that forgets its tenant."""
    unguarded = replace(settings, database_url=database_url, host="0.0.0.0", requests_per_minute=100_000)
    async with serving(unguarded) as url, httpx2.AsyncClient(base_url=url, timeout=30) as client:
        mine, theirs = [await Tenant.populated(client, pool) for _ in range(2)]
        queries = _queries((await mine.get("/openapi.json")).json())
        for path in GETS:
            if "{" in path:
                assert (await mine.get(path.format(**mine.ids))).status_code == 200, path
                foreign = await theirs.get(path.format(**mine.ids))
                if path.startswith("/v1/"):  # refusals in the format of OpenAI's API
                    assert foreign.status_code == 404, path
                    assert foreign.json()["error"]["type"] == "invalid_request_error", path
                else:
                    problem(foreign, 404, "unknown-conversation" if "{conversation_id}" in path else "not-found")
                assert not _ids(foreign.text) & mine.own, path
                continue
            own, other = [(await one.get(path, QUERIES.get(path))).text for one in (mine, theirs)]
            if path in OF_THE_PLATFORM:
                assert not _ids(other) & mine.own, path
                continue
            assert not _ids(own) & _ids(other), path
            assert _ids(own) & mine.own and _ids(other) & theirs.own, f"{path} shows a tenant nothing of its own"
            for name in queries.get(path, ()):
                filtered = {**QUERIES.get(path, {}), name: mine.ids[name]}
                assert _ids((await mine.get(path, filtered)).text) & _ids(own), (path, name)
                assert not _ids((await theirs.get(path, filtered)).text) & _ids(own), (path, name)


def _ids(text: str) -> set[str]:
    return set(ANY_ID.findall(text))


def _queries(schema: dict[str, Any]) -> dict[str, list[str]]:
    """The parameters of each GET that name something of a tenant."""
    return {
        path: [one["name"] for one in methods["get"].get("parameters", ()) if one["name"].endswith("_id")]
        for path, methods in schema["paths"].items()
        if "get" in methods and "{" not in path
    }

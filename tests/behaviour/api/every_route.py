"""Every route of the application: the rights that it needs, a request that it accepts, and the objects in its path.

The rights are those of docs/api.md, the request is the example of the OpenAPI document: a new route needs no line here.
A new kind of id needs one in `Owner.made`.
"""

import re
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import httpx2
from fastapi import FastAPI
from starlette.routing import Route

from api.app import ROUTERS, create_app
from domain.ids import new_id
from settings import ROOT
from store import keys
from store.database import Pool
from store.keys import Right
from tests.behaviour.api.conftest import submitted, waiting_subagent

_REQUEST = re.compile(r"`(GET|POST|PUT|PATCH|DELETE) (/[^`]*)`")
ENVIRONMENT = {"git": {"url": "https://git.example.org/a.git"}}
CREDENTIAL = {"secret": "0123456789abcdef", "hosts": ["git.example.org"]}
SCHEDULE = {"name": "x", "every": 86_400_000, "task": {"agent": "assistant", "input": "x"}}
TRIGGER = {"signature": "github", "secret": "0123456789abcdef", "task": {"agent": "assistant", "input": "x"}}
STREAMS = {"transport": "stream"}  # the response is then a handle and no stream, which would not end
ASKED: dict[tuple[str, str], dict[str, Any]] = {  # requests that the document does not describe, or that would wait
    ("POST", "/v1/responses"): {"json": {"model": "assistant", "input": "x", "background": True}},
    ("POST", "/conversations/run"): {"json": {"agent": "assistant", "input": "x", **STREAMS}},
    ("POST", "/conversations/{conversation_id}/messages"): {"json": {"input": "x", **STREAMS}},
    ("POST", "/triggers/{trigger}"): {
        "content": b"{}",
        "headers": {"x-hub-signature-256": "sha256=f91e3e9f05cc2df64ac1c26f8adccdffda8d1e4a7a8c50a1a08eeadac6ddfec5"},
    },
    ("PUT", "/environments/{environment}"): {"json": ENVIRONMENT},
    ("PUT", "/credentials/{credential}"): {"json": CREDENTIAL},
    ("PUT", "/agents/{name}"): {"json": {"name": "assistant", "description": "x", "prompt": "x"}},
}


@dataclass(frozen=True)
class Rule:
    """The rights that one request needs: one of `any_of`, or all of `all_of`. If both are empty, any key is enough."""

    any_of: frozenset[Right] = frozenset()
    all_of: frozenset[Right] = frozenset()

    def allows(self, rights: frozenset[Right]) -> bool:
        if Right.ADMIN in rights or not (self.any_of or self.all_of):
            return True
        return bool(self.any_of & rights) or bool(self.all_of) and self.all_of <= rights


@dataclass(frozen=True)
class Row:
    method: str
    path: str
    own: Rule
    foreign: Rule | None  # None: the request concerns nothing that already exists


def documented() -> dict[tuple[str, str], Row]:
    """The tables of routes and rights in docs/api.md."""
    section = (ROOT / "docs" / "api.md").read_text().split("\n## Every route\n")[1]
    rows: dict[tuple[str, str], Row] = {}
    for line in section.splitlines():
        if not line.startswith("| `"):
            continue
        requests, own, foreign = (cell.strip() for cell in line.strip("|").split("|"))
        for method, path in _REQUEST.findall(requests):
            assert (method, path) not in rows, f"{method} {path} is in the table twice"
            rows[method, path] = Row(method, path, _rule(own), _rule(foreign) if foreign else None)
    return rows


def _rule(cell: str) -> Rule:
    named = frozenset(Right(name) for name in re.findall(r"`(\w+)`", cell))
    if not named:
        assert cell in ("no key", "any key"), cell
        return Rule()
    return Rule(all_of=named) if " and " in cell else Rule(any_of=named)


def routes_of(app: FastAPI) -> set[tuple[str, str]]:
    """Every method and path that the application answers, except the static files of its documentation."""
    routes = [*app.routes, *(route for router in ROUTERS for route in router.routes)]
    return {
        (method, route.path)
        for route in routes
        if isinstance(route, Route)  # not the mounted files, and not the WebSocket, which is another form of a feed
        for method in route.methods or ()
        if method not in ("HEAD", "OPTIONS")
    }


@cache
def openapi() -> dict[str, Any]:
    return create_app().openapi()


def operation(method: str, path: str) -> dict[str, Any]:
    """The description of a route; empty for those that the document leaves out."""
    described: dict[str, Any] = openapi()["paths"].get(path, {}).get(method.lower(), {})
    return described


def request(method: str, path: str) -> dict[str, Any]:
    """The options of a request that the route accepts: its first example, and the parameters that it requires."""
    if (method, path) in ASKED:
        return ASKED[method, path]
    described = operation(method, path)
    needed = [one["name"] for one in described.get("parameters", ()) if one["in"] == "query" and one["required"]]
    options: dict[str, Any] = {"params": dict.fromkeys(needed, "x")}
    content = described.get("requestBody", {}).get("content", {})
    if "application/json" in content:
        media = content["application/json"]
        examples = [one["value"] for one in media.get("examples", {}).values()]
        options["json"] = media.get("example", examples[0] if examples else {})
    elif content:
        options["content"] = b"x"
    return options


class Owner:
    """A key of a tenant, which creates what paths name. All that it creates contains its mark."""

    def __init__(self, pool: Pool, client: httpx2.AsyncClient, tenant: str, key: keys.Key, secret: str) -> None:
        self.pool, self.client, self.tenant, self._key = pool, client, tenant, key
        self.headers = {"Authorization": f"Bearer {secret}"}

    @classmethod
    async def new(cls, pool: Pool, client: httpx2.AsyncClient, tenant: str) -> Self:
        return cls(pool, client, tenant, *await keys.create(pool, tenant, "owner", list(Right)))

    async def keep_only(self, rights: frozenset[Right]) -> None:
        await self.pool.execute("UPDATE api_keys SET rights = $2 WHERE id = $1", self._key.id, sorted(rights))

    async def made(self, path: str, mark: str) -> dict[str, str]:
        """Create the objects that the path names, with all rights; return their ids."""
        await self.keep_only(frozenset(Right))
        made: dict[str, str] = {"name": "assistant", "connector_id": mark}
        task = {"agent": "assistant", "input": mark}
        webhook = {"name": mark, "channel": "webhook", "target": f"https://{mark}.example.org/x"}
        names = ("{task_id}", "{session_id}", "{conversation_id}", "{thread_id}", "{response_id}")
        if any(name in path for name in names):
            task_id = await submitted(self.client, self.headers, input=mark, user_id=mark)
            made["response_id"] = f"resp_{task_id}"
            made |= {"task_id": task_id, "session_id": task_id, "conversation_id": task_id, "thread_id": task_id}
        if "{request_id}" in path:
            made["request_id"] = await waiting_subagent(self.pool, self.tenant, made["thread_id"])
        if "{connector}" in path:
            made |= {"connector": f"c-{mark}", "channel_id": mark, "user_id": mark}
            await self.send("PUT", f"/connectors/c-{mark}", json={"kind": "webhook", "agent": "assistant"})
            await self.send("POST", f"/channels/c-{mark}/{mark}/{mark}/messages", json={"text": mark})
        if "{trigger}" in path:
            made["trigger"] = f"t-{mark}"
            await self.send("PUT", f"/triggers/t-{mark}", json={**TRIGGER, "task": task})
        if "{environment}" in path:
            made["environment"] = f"e-{mark}"
            await self.send("PUT", f"/environments/e-{mark}", json=ENVIRONMENT)
        if "{credential}" in path:
            made["credential"] = f"c-{mark}"
            await self.send("PUT", f"/credentials/c-{mark}", json=CREDENTIAL)
        if "{schedule_id}" in path:
            schedule = {**SCHEDULE, "name": mark, "task": task}
            made["schedule_id"] = (await self.send("POST", "/schedules", json=schedule))["id"]
        if "{file_id}" in path:
            made["file_id"] = (await self.send("POST", f"/files?name={mark}", content=mark.encode()))["file_id"]
        if "{subscription_id}" in path or "{delivery_id}" in path:
            made["subscription_id"] = (await self.send("POST", "/subscriptions", json=webhook))["id"]
        if "{delivery_id}" in path:
            made["delivery_id"] = new_id()
            sql = "INSERT INTO deliveries (tenant, id, subscription_id, event, body) VALUES ($1, $2, $3, 'anomaly', $4)"
            await self.pool.execute(sql, self.tenant, made["delivery_id"], made["subscription_id"], f'"{mark}"')
        return made

    async def send(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        answer = await self.client.request(method, path, headers=self.headers, **options)
        assert answer.status_code in (200, 201, 202), answer.text
        body: dict[str, Any] = answer.json()
        return body

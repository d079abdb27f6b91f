"""Two tenants, every route: neither can see, change or guess anything of the other."""

from typing import Any

import httpx2
import pytest

from api.app import create_app
from domain.ids import new_id
from store.database import Pool
from tests.behaviour.api.conftest import end, key_for, problem, submitted
from tests.support.rights_table import routes_of

DAILY = {"name": "secret", "every": 86_400_000, "task": {"agent": "assistant", "input": "secret"}}
BACKFILL = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"}
FOREIGN: list[tuple[str, str, dict[str, Any]]] = [
    ("GET", "/tasks/{task_id}", {}),
    ("GET", "/sessions/{session_id}", {}),
    ("GET", "/tasks/{task_id}/result", {}),
    ("GET", "/tasks/{task_id}/events", {}),
    ("GET", "/tasks/{task_id}/events", {"headers": {"Accept": "application/json"}}),
    ("GET", "/tasks/{task_id}/trace", {}),
    ("POST", "/tasks/{task_id}/budget", {"json": {"max_steps": 60}}),
    ("GET", "/tasks/{task_id}/workspace", {}),
    ("GET", "/tasks/{task_id}/workspace/file?path=a", {}),
    ("GET", "/tasks/{task_id}/agent", {}),
    ("GET", "/tasks/{task_id}/budget", {}),
    ("POST", "/tasks/{task_id}/rerun", {"json": {"input": "mine now"}}),
    ("POST", "/tasks/{task_id}/cancel", {"json": {"reason": "mine now"}}),
    ("POST", "/tasks/{task_id}/input", {"json": {"response_to": "x", "input": "mine now"}}),
    ("GET", "/tasks/{task_id}/input-requests", {}),
    ("GET", "/tasks/{task_id}/effects", {}),
    ("GET", "/tasks/{task_id}/audit", {}),
    ("GET", "/tasks/{task_id}/audit/verify", {}),
    ("POST", "/tasks/{task_id}/steer", {"json": {"message": "mine now"}}),
    ("POST", "/tasks/{task_id}/interrupt", {"json": {}}),
    ("POST", "/tasks/{task_id}/promote", {}),
    ("GET", "/files/{file_id}", {}),
    ("GET", "/files/{file_id}/meta", {}),
    ("DELETE", "/files/{file_id}", {}),
    ("GET", "/agents/{name}", {}),
    ("GET", "/agents/{name}/versions", {}),
    ("POST", "/agents/{name}/refresh", {}),
    ("DELETE", "/agents/{name}", {}),
    ("DELETE", "/variables/{name}", {}),
    ("POST", "/tasks/{task_id}/replay", {}),
    ("GET", "/threads/{thread_id}/variables/{request_id}", {}),
    ("POST", "/threads/{thread_id}/variables/{request_id}", {"json": {"variables": {"A": "mine now"}}}),
    ("GET", "/subscriptions/{subscription_id}", {}),
    ("DELETE", "/subscriptions/{subscription_id}", {}),
    ("POST", "/subscriptions/{subscription_id}/rotate", {}),
    ("POST", "/subscriptions/{subscription_id}/enable", {}),
    ("POST", "/subscriptions/{subscription_id}/test", {}),
    ("GET", "/connectors/{connector}", {}),
    ("DELETE", "/connectors/{connector}", {}),
    ("GET", "/missions/{mission_id}", {}),
    ("GET", "/missions/{mission_id}/runs", {}),
    ("PUT", "/missions/{mission_id}/files", {"json": {}}),
    *(("POST", f"/missions/{{mission_id}}/{verb}", {}) for verb in ("run", "pause", "resume", "cancel")),
    ("GET", "/triggers/{trigger}", {}),
    ("GET", "/triggers/{trigger}/events", {}),
    ("DELETE", "/triggers/{trigger}", {}),
    ("GET", "/channels/{connector}/{channel_id}/{user_id}", {}),
    ("POST", "/channels/{connector}/{channel_id}/{user_id}/reset", {}),
    ("POST", "/channels/{connector}/{channel_id}/{user_id}/messages", {"json": {"text": "mine now"}}),
    ("GET", "/schedules/{schedule_id}", {}),
    ("GET", "/schedules/{schedule_id}/runs", {}),
    ("PUT", "/schedules/{schedule_id}", {"json": DAILY}),
    ("DELETE", "/schedules/{schedule_id}", {}),
    ("POST", "/schedules/{schedule_id}/pause", {}),
    ("POST", "/schedules/{schedule_id}/resume", {}),
    ("POST", "/schedules/{schedule_id}/trigger", {}),
    ("POST", "/schedules/{schedule_id}/backfill", {"json": BACKFILL}),
    ("GET", "/deliveries/{delivery_id}", {}),
    ("POST", "/deliveries/{delivery_id}/resend", {}),
]
CONVERSATIONS: list[tuple[str, str, dict[str, Any]]] = [
    ("GET", "/conversations/{conversation_id}", {}),
    ("PATCH", "/conversations/{conversation_id}", {"json": {"title": "mine now"}}),
    ("GET", "/conversations/{conversation_id}/turns", {}),
    ("GET", "/conversations/{conversation_id}/mailbox", {}),
    ("GET", "/conversations/{conversation_id}/mailbox?live=true", {}),
    ("GET", "/conversations/{conversation_id}/events", {}),
    ("GET", "/conversations/{conversation_id}/events", {"headers": {"Accept": "application/json"}}),
    ("POST", "/conversations/{conversation_id}/messages", {"json": {"input": "mine now"}}),
    ("POST", "/conversations/{conversation_id}/fire", {"json": {"input": "mine now"}}),
    ("POST", "/conversations/{conversation_id}/fork", {"json": {"execute": False}}),
    ("POST", "/conversations/{conversation_id}/interrupt", {}),
    ("POST", "/conversations/{conversation_id}/reset", {}),
    ("POST", "/conversations/{conversation_id}/terminate", {}),
]
THREADS: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/threads/{thread_id}/terminate", {}),
    ("GET", "/threads/{thread_id}/variables", {}),
    ("PUT", "/threads/{thread_id}/variables", {"json": {"variables": {"A": "mine now"}}}),
]
# refusals in the format of OpenAI's API
RESPONSES: list[tuple[str, str, dict[str, Any]]] = [
    ("GET", "/v1/responses/{response_id}", {}),
    ("GET", "/v1/responses/{response_id}?stream=true", {}),
    ("GET", "/v1/responses/{response_id}/input_items", {}),
    ("POST", "/v1/responses/{response_id}/cancel", {}),
    ("DELETE", "/v1/responses/{response_id}", {}),
    ("GET", "/v1/models/{name}", {}),
]
SHARED = {  # routes whose path contains no id of a tenant
    *(("GET", path) for path in ("/", "/console/{name}", "/docs", "/docs/oauth2-redirect", "/openapi.json", "/redoc")),
    ("GET", "/v1/models"), ("POST", "/v1/responses"), ("POST", "/mcp"),
    ("POST", "/conversations/run"), ("GET", "/conversations"), ("POST", "/tasks"), ("GET", "/tasks"),
    ("GET", "/variable-requests"), ("GET", "/variables"), ("PUT", "/variables"),
    ("GET", "/input-requests"), ("GET", "/agents"), ("PUT", "/agents/{name}"), ("GET", "/files"), ("POST", "/files"),
    ("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/metrics"), ("GET", "/notifications"),
    ("GET", "/audit"), ("GET", "/audit/verify"), ("GET", "/summary"), ("GET", "/queues"),
    *((verb, "/console/session") for verb in ("GET", "POST", "DELETE")),
    ("GET", "/subscriptions"), ("POST", "/subscriptions"), ("GET", "/deliveries"),
    ("GET", "/connectors"), ("PUT", "/connectors/{connector}"), ("GET", "/schedules"), ("POST", "/schedules"),
    ("POST", "/codec/decode"), ("POST", "/codec/encode"),  # only for administrators of the platform
    ("POST", "/hooks/{connector_id}"),  # the signature identifies the tenant
    ("GET", "/missions"), ("POST", "/missions"),
    ("GET", "/triggers"), ("PUT", "/triggers/{trigger}"), ("POST", "/triggers/{trigger}"),
}  # fmt: skip


def test_every_route_is_in_the_matrix() -> None:
    matrix = {(method, path.split("?")[0]) for method, path, _ in (*FOREIGN, *CONVERSATIONS, *THREADS, *RESPONSES)}
    assert routes_of(create_app()) == matrix | SHARED


@pytest.mark.proves("F-10")
async def test_foreign_ids_are_404_everywhere(keyed_url: str, pool: Pool) -> None:
    mine, theirs = await key_for(pool, "mine"), await key_for(pool, "theirs")
    async with httpx2.AsyncClient(base_url=keyed_url) as client:
        task_id = await submitted(client, mine, input="secret plan")
        file = await client.post("/files?name=secret.txt", content=b"secret", headers=mine)
        definition = {"name": "private", "description": "secret", "prompt": "secret"}
        assert (await client.put("/agents/private", json=definition, headers=mine)).status_code == 201
        assert (await client.put("/variables", json={"variables": {"private": "secret"}}, headers=mine)).is_success
        subscription = {"name": "secret", "channel": "webhook", "target": "https://hooks.example.org/secret"}
        subscribed = (await client.post("/subscriptions", json=subscription, headers=mine)).json()["id"]
        sent = await client.post(f"/subscriptions/{subscribed}/test", headers=mine)
        connector = {"kind": "webhook", "agent": "private"}
        assert (await client.put("/connectors/secret", json=connector, headers=mine)).status_code == 200
        mission = {"name": "secret-mission", "every": 86_400_000, "total": {"runs": 9}}
        watched = {**mission, "task": {"agent": "private", "input": "secret"}}
        missioned = (await client.post("/missions", json=watched, headers=mine)).json()["id"]
        trigger = {"signature": "github", "task": {"agent": "private", "input": "secret"}}
        assert (await client.put("/triggers/secret", json=trigger, headers=mine)).status_code == 200
        said = await client.post("/channels/secret/room/ann/messages", json={"text": "secret"}, headers=mine)
        assert said.status_code == 202, said.text
        scheduled = await client.post("/schedules", json=DAILY, headers=mine)
        assert scheduled.status_code == 201, scheduled.text
        names = {
            "schedule_id": scheduled.json()["id"],
            "connector": "secret",
            "trigger": "secret",
            "mission_id": missioned,
            "channel_id": "room",
            "user_id": "ann",
            "subscription_id": subscribed,
            "delivery_id": sent.json()["id"],
            "task_id": task_id,
            "thread_id": task_id,
            "request_id": task_id,
            "session_id": task_id,
            "conversation_id": task_id,
            "file_id": file.json()["file_id"],
            "name": "private",
            "response_id": f"resp_{task_id}",
        }
        nothing = {name: "nothing" if name == "name" else new_id() for name in names}
        nothing["response_id"] = f"resp_{nothing['task_id']}"
        before = (await client.get(f"/tasks/{task_id}", headers=mine)).json()
        for type, routes in (
            ("not-found", FOREIGN),
            ("unknown-conversation", CONVERSATIONS),
            ("unknown-thread", THREADS),
        ):
            for method, path, options in routes:
                foreign = await _send(client, method, path.format(**names), theirs, options)
                unknown = await _send(client, method, path.format(**nothing), theirs, options)
                body, other = problem(foreign, 404, type), problem(unknown, 404, type)
                assert {**body, "instance": ""} == {**other, "instance": ""}
        for method, path, options in RESPONSES:
            foreign = await _send(client, method, path.format(**names), theirs, options)
            unknown = await _send(client, method, path.format(**nothing), theirs, options)
            assert foreign.status_code == unknown.status_code == 404 and foreign.json() == unknown.json(), path
        for field, prefix in (("previous_response_id", "resp"), ("conversation", "conv")):
            task = {"model": "assistant", "input": "mine now", "background": True}
            foreign, unknown = [
                await client.post("/v1/responses", json={**task, field: f"{prefix}_{one}"}, headers=theirs)
                for one in (task_id, nothing["task_id"])
            ]
            assert foreign.status_code in (400, 404) and foreign.json() == unknown.json(), field
        for reference in ({"conversation_id": task_id}, {"fork_from": task_id}):
            answer = await client.post("/conversations/run", json={"input": "mine", **reference}, headers=theirs)
            problem(answer, 404, "unknown-session" if "fork_from" in reference else "unknown-conversation")
        assert (await client.get("/conversations", headers=theirs)).json()["items"] == []
        assert (await client.get(f"/tasks/{task_id}", headers=mine)).json() == before


async def _send(
    client: httpx2.AsyncClient, method: str, path: str, key: dict[str, str], options: dict[str, Any]
) -> httpx2.Response:
    return await client.request(method, path, **{**options, "headers": {**options.get("headers", {}), **key}})


@pytest.mark.proves("F-10")
async def test_lists_references_and_keys_show_one_tenant_only(keyed_url: str, pool: Pool) -> None:
    mine, theirs = await key_for(pool, "left"), await key_for(pool, "right")
    async with httpx2.AsyncClient(base_url=keyed_url) as client:
        key = {"Idempotency-Key": "the same"}
        spec = {"agent": "assistant", "input": "hi"}
        one = (await client.post("/tasks", json=spec, headers={**mine, **key})).json()["task_id"]
        two = (await client.post("/tasks", json=spec, headers={**theirs, **key})).json()["task_id"]
        assert one != two
        listed = (await client.get("/tasks", headers=mine)).json()["items"]
        assert [item["task_id"] for item in listed] == [one]
        await client.post("/tasks", json=spec, headers=mine)
        page = (await client.get("/tasks?limit=1", headers=mine)).json()
        moved = await client.get("/tasks", params={"limit": 1, "cursor": page["next_cursor"]}, headers=theirs)
        assert all(item["task_id"] == two for item in moved.json()["items"])

        file = (await client.post("/files?name=a", content=b"a", headers=mine)).json()["file_id"]
        await end(pool, one, tenant="left")
        for context in ({"files": [file]}, {"history_session": one}):
            answer = await client.post("/tasks", json={**spec, "context": context}, headers=theirs)
            assert problem(answer, 422, "validation")["errors"][0]["code"] == "not_found"

        definition = {"name": "assistant", "description": "ours", "prompt": "ours"}
        await client.put("/agents/assistant", json=definition, headers=mine)
        assert (await client.get("/agents/assistant", headers=theirs)).json()["description"] != "ours"
        answer = await client.post("/tasks", json={**spec, "tenant": "left"}, headers=theirs)
        problem(answer, 422, "validation")

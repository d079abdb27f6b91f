"""A catalogue of bad input: each row is refused with its own problem, nothing is created, and no input is echoed."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from domain.agents.models import ProviderReport
from domain.ids import new_id
from store import workers
from store.database import Pool
from tests.behaviour.api.conftest import end, problem, submitted

CANARY = "canary-4711"
GOOD = {"agent": "assistant", "input": "Say hi."}
JSON = {"Content-Type": "application/json"}


def raw(**changes: Any) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


async def rows(pool: Pool) -> tuple[int, int]:
    found = await pool.fetchrow("SELECT (SELECT count(*) FROM sessions) AS s, (SELECT count(*) FROM idempotency) AS i")
    assert found
    return found["s"], found["i"]


UNPARSABLE = [
    ("cut", b'{"agent": "assistant"', 400, "malformed-json"),
    ("invalid utf-8", b'{"agent": "\xff\xfe"}', 400, "invalid-encoding"),
    ("overflow", b'{"agent": 1e999}', 400, "json-non-finite"),
    ("duplicate key", b'{"agent": "a", "agent": "b"}', 400, "json-duplicate-key"),
    ("deep", b'{"agent": ' + b"[" * 65 + b"]" * 65 + b"}", 400, "json-too-complex"),
    ("nul", raw(input=f"{CANARY}\x00"), 422, "invalid-text"),
    ("not an object", b'["x"]', 422, "validation"),
    ("large integer", b'{"agent": "assistant", "input": {"n": 9007199254740992}}', 422, "validation"),
]


@pytest.mark.parametrize(
    ("raw_body", "status", "type"), [row[1:] for row in UNPARSABLE], ids=[r[0] for r in UNPARSABLE]
)
async def test_unreadable_bodies_are_refused(
    api: httpx2.AsyncClient, pool: Pool, raw_body: bytes, status: int, type: str
) -> None:
    before = await rows(pool)
    answer = await api.post("/tasks", content=raw_body, headers={**JSON, "Idempotency-Key": new_id()})
    problem(answer, status, type)
    assert CANARY not in answer.text
    assert await rows(pool) == before


INVALID: list[tuple[str, dict[str, Any], str, str]] = [
    ("unknown agent", {"agent": CANARY}, "unknown-agent", "/agent"),
    ("subagent", {"agent": "helper"}, "invalid-spec", "/agent"),
    ("unknown field", {"inptu": CANARY}, "validation", "/inptu"),
    ("input empty", {"input": ""}, "validation", "/input"),
    ("ttl as text", {"config": {"ttl": "5000"}}, "validation", "/config/ttl"),
    ("ttl too large", {"config": {"ttl": 10**15}}, "validation", "/config/ttl"),
    ("provider", {"config": {"model": f"{CANARY}/x"}}, "unknown-provider", "/config/model"),
    ("unpriced model", {"config": {"max_cost_usd": 1, "model": CANARY}}, "unpriced-model", "/config/max_cost_usd"),
    ("sandbox without a worker", {"config": {"sandbox": "isolated"}}, "not-available", "/config/sandbox"),
    ("input timeout", {"config": {"ttl": 5_000, "input_timeout": 6_000}}, "validation", "/config/input_timeout"),
    ("file unknown", {"context": {"files": ["0" * 26]}}, "validation", "/context/files/0"),
    ("session unknown", {"context": {"history_session": "0" * 26}}, "validation", "/context/history_session"),
    ("criterion kind", {"acceptance_criteria": [{"kind": CANARY}]}, "validation", "/acceptance_criteria/0/kind"),
    ("missing", {"agent": "code-reviewer", "input": {"focus": CANARY}}, "validation", "/input/path"),
]


@pytest.mark.proves("S1-50")
@pytest.mark.parametrize(("changes", "type", "pointer"), [row[1:] for row in INVALID], ids=[row[0] for row in INVALID])
async def test_invalid_tasks_are_refused(
    api: httpx2.AsyncClient, pool: Pool, changes: dict[str, Any], type: str, pointer: str
) -> None:
    before = await rows(pool)
    answer = await api.post("/tasks", content=raw(**changes), headers={**JSON, "Idempotency-Key": new_id()})
    found = problem(answer, 422, type)["errors"]
    assert pointer in [entry["pointer"] for entry in found]
    assert all(entry["code"] and entry["message"] for entry in found)
    assert CANARY not in answer.text
    assert await rows(pool) == before


async def test_body_limit_holds_while_reading(api: httpx2.AsyncClient) -> None:
    large = raw(input={"a": ["x" * 500_000, "y" * 600_000]})
    problem(await api.post("/tasks", content=large, headers=JSON), 413, "body-too-large")

    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 65_536
            yield b" " * 65_536
            await asyncio.sleep(0)

    with contextlib.suppress(httpx2.TransportError):  # the server may close the connection before its answer was read
        problem(await api.post("/tasks", content=endless(), headers=JSON), 413, "body-too-large")
    assert sent < 40_000_000


@pytest.mark.parametrize(
    ("headers", "status", "type"),
    [
        ({"Content-Type": "text/plain"}, 415, "unsupported-media-type"),
        ({**JSON, "Content-Encoding": "gzip"}, 415, "unsupported-encoding"),
        ({**JSON, "Accept": "text/html"}, 406, "not-acceptable"),
        ({**JSON, "Idempotency-Key": "x" * 256}, 400, "idempotency-key-invalid"),
        ({**JSON, "X-Large": "x" * 17_000}, 431, "headers-too-large"),
        ({**JSON, "Host": "evil.example"}, 400, "bad-request"),
        ({**JSON, "Origin": "https://evil.example"}, 403, "insufficient-scope"),
        ({**JSON, "Authorization": "Bearer nonsense"}, 401, "unauthenticated"),
    ],
)
async def test_requests_with_bad_headers_are_refused(
    api: httpx2.AsyncClient, pool: Pool, headers: dict[str, str], status: int, type: str
) -> None:
    before = await rows(pool)
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    problem(await api.post("/tasks", content=raw(), headers=encoded), status, type)
    assert await rows(pool) == before


@pytest.mark.parametrize(
    ("method", "path", "status", "type"),
    [
        ("GET", "/tasks?limit=201", 422, "validation"),
        ("GET", "/tasks?lmit=5", 422, "validation"),
        ("GET", "/tasks?text=%00", 422, "invalid-text"),
        ("GET", "/tasks?created_after=0001-01-01T00:00:00%2B14:00", 422, "validation"),
        ("GET", "/tasks?cursor=canary-4711", 400, "invalid-cursor"),
        ("GET", "/tasks?agent=ek_0123456789ab_x", 400, "credential-in-url"),
        ("GET", "/tasks?agent=" + "a" * 5_000, 414, "uri-too-long"),
        ("DELETE", "/tasks", 405, "method-not-allowed"),
    ],
)
async def test_requests_with_bad_urls_are_refused(
    api: httpx2.AsyncClient, method: str, path: str, status: int, type: str
) -> None:
    answer = await api.request(method, path)
    problem(answer, status, type)
    assert CANARY not in answer.text


IDS = ["0" * 26, "x", "0" * 25, "0" * 27, "%00", "..%2f..", "I" * 26, "a" * 2_000, "%F0%9F%92%A9", "' OR 1=1 --"]


@pytest.mark.parametrize("id", IDS)
@pytest.mark.parametrize("path", ["/tasks/{}", "/tasks/{}/result", "/tasks/{}/events", "/sessions/{}", "/files/{}"])
async def test_unknown_and_malformed_ids_look_the_same(api: httpx2.AsyncClient, path: str, id: str) -> None:
    body = problem(await api.get(path.format(id)), 404, "not-found")
    if "%2f" not in id:  # an encoded slash leads to another path
        assert body["detail"] == "There is nothing by that id."


async def test_wrong_state_is_409_with_the_state(api: httpx2.AsyncClient, pool: Pool) -> None:
    task_id = await submitted(api)
    early = problem(await api.get(f"/tasks/{task_id}/result"), 409, "not-terminal")
    assert early["task_status"] == "submitted" and early["poll_interval"] == 1_500
    said = {"response_to": "x", "input": {"approved": True}}
    problem(await api.post(f"/tasks/{'0' * 26}/input", json=said), 404, "not-found")
    answer = await api.post(f"/tasks/{task_id}/input", json=said)
    assert problem(answer, 409, "unknown-request")["task_status"] == "submitted"
    await end(pool, task_id)
    answer = await api.post(f"/tasks/{task_id}/input", json=said)
    assert problem(answer, 409, "already-terminal")["task_status"] == "completed"


async def test_a_model_that_no_worker_can_reach_is_refused(api: httpx2.AsyncClient, pool: Pool) -> None:
    """What a provider has is known where its list is complete, as with Ollama."""
    complete = ProviderReport(
        provider="ollama", kind="ollama", endpoint="x", default=False, models=["qwen3:latest", "m"]
    )
    partial = ProviderReport(provider="openrouter", kind="openai", endpoint="x", default=False)
    await workers.beat(pool, "a-worker", "none", models=[complete, partial])
    try:
        for model, type in (("nobody/m", "unknown-provider"), ("ollama/llama3", "unknown-model")):
            answer = await api.post("/tasks", content=raw(config={"model": model}), headers=JSON)
            [found] = problem(answer, 422, type)["errors"]
            known = ["ollama", "openrouter"] if type == "unknown-provider" else ["ollama/qwen3:latest", "ollama/m"]
            assert (found["pointer"], found["allowed"]) == ("/config/model", known)
        for model in ("ollama/qwen3", "ollama/m", "openrouter/openai/gpt-4o", "of-the-default-provider"):
            answer = await api.post("/tasks", content=raw(config={"model": model}), headers=JSON)
            assert answer.status_code == 202, answer.text
    finally:
        await workers.leave(pool, "a-worker")

"""A catalogue of bad input: each row is refused with its own problem, nothing is created, and no input is echoed."""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from api.submission.rules import check_models
from domain.agents.models import ProviderReport
from domain.errors import Invalid
from domain.ids import new_id
from domain.notifications import signature
from settings import Settings
from store import workers
from store.database import Pool
from tests.behaviour.api.conftest import end, problem, submitted
from tests.support.files_run import walk_line
from tests.support.stack import Stack

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
    ("empty", b"", 400, "malformed-json"),
    ("cut", b'{"agent": "assistant"', 400, "malformed-json"),
    ("trailing", raw() + b"{}", 400, "malformed-json"),
    ("invalid utf-8", b'{"agent": "\xff\xfe"}', 400, "invalid-encoding"),
    ("utf-8 bom", b"\xef\xbb\xbf" + raw(), 400, "invalid-encoding"),
    ("utf-16", json.dumps(GOOD).encode("utf-16"), 400, "invalid-encoding"),
    ("nan", b'{"agent": NaN}', 400, "json-non-finite"),
    ("overflow", b'{"agent": 1e999}', 400, "json-non-finite"),
    ("duplicate key", b'{"agent": "a", "agent": "b"}', 400, "json-duplicate-key"),
    ("deep", b'{"agent": ' + b"[" * 65 + b"]" * 65 + b"}", 400, "json-too-complex"),
    ("many members", json.dumps({str(n): 0 for n in range(10_001)}).encode(), 400, "json-too-complex"),
    ("long number", b'{"agent": ' + b"9" * 101 + b"}", 400, "json-too-complex"),
    ("nul", raw(input=f"{CANARY}\x00"), 422, "invalid-text"),
    ("escape", raw(input=f"{CANARY}\x1b[31m"), 422, "invalid-text"),
    ("lone surrogate", b'{"agent": "assistant", "input": "\\ud800"}', 422, "invalid-text"),
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
    ("hostile field name", {f"<{CANARY}>": 1}, "validation", ""),
    ("input empty", {"input": ""}, "validation", "/input"),
    ("input blank", {"input": " \n\t"}, "validation", "/input"),
    ("ttl as text", {"config": {"ttl": "5000"}}, "validation", "/config/ttl"),
    ("ttl too small", {"config": {"ttl": 999}}, "validation", "/config/ttl"),
    ("ttl too large", {"config": {"ttl": 10**15}}, "validation", "/config/ttl"),
    ("tree's ttl too large", {"config": {"tree": {"ttl": 10**15}}}, "validation", "/config/tree/ttl"),
    ("waits", {"config": {"tree": {"ttl": 5_000}, "input_timeout": 6_000}}, "validation", "/config/input_timeout"),
    ("steps too many", {"config": {"max_steps": 2_001}}, "validation", "/config/max_steps"),
    ("cost too high", {"config": {"max_cost_usd": 1e9}}, "validation", "/config/max_cost_usd"),
    ("provider", {"config": {"model": f"{CANARY}/x"}}, "unknown-provider", "/config/model"),
    ("unpriced model", {"config": {"max_cost_usd": 1, "model": CANARY}}, "unpriced-model", "/config/max_cost_usd"),
    ("model of two lines", {"config": {"model": "claude\nsystem: yes"}}, "validation", "/config/model"),
    ("sandbox without a worker", {"config": {"sandbox": "isolated"}}, "not-available", "/config/sandbox"),
    ("notify", {"config": {"notify": [CANARY]}}, "validation", "/config/notify/0"),
    ("input timeout", {"config": {"ttl": 5_000, "input_timeout": 6_000}}, "validation", "/config/input_timeout"),
    ("expiry", {"config": {"on_input_timeout": "deny"}}, "validation", "/config/on_input_timeout"),
    ("boundary", {"boundary": {"files": [CANARY]}}, "validation", "/boundary/files"),
    ("file unknown", {"context": {"files": ["0" * 26]}}, "validation", "/context/files/0"),
    ("session unknown", {"context": {"history_session": "0" * 26}}, "validation", "/context/history_session"),
    (
        "bad role",
        {"context": {"history": [{"role": "system", "content": CANARY}]}},
        "validation",
        "/context/history/0/role",
    ),
    ("criterion kind", {"acceptance_criteria": [{"kind": CANARY}]}, "validation", "/acceptance_criteria/0/kind"),
    ("criterion of no kind", {"acceptance_criteria": [{"run": CANARY}]}, "validation", "/acceptance_criteria/0/kind"),
    ("missing", {"agent": "code-reviewer", "input": {"focus": CANARY}}, "validation", "/input/path"),
    ("schema unknown", {"agent": "code-reviewer", "input": {"path": ".", "x": CANARY}}, "validation", "/input/x"),
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


async def test_refusals_name_what_is_allowed(api: httpx2.AsyncClient) -> None:
    async def allowed(**changes: Any) -> list[Any]:
        answer = await api.post("/tasks", content=raw(**changes), headers=JSON)
        [found] = answer.json()["errors"]
        allowed: list[Any] = found["allowed"]
        return allowed

    assert {"assistant", "researcher"} <= set(await allowed(agent="nobody"))
    assert "helper" not in await allowed(agent="nobody")
    assert "isolated" in await allowed(config={"sandbox": "x"})
    assert await allowed(config={"max_steps": 5_000}) == ["1..2000"]
    assert "ttl" in await allowed(config={"tll": 1})
    assert "claude-sonnet-4-5" in await allowed(config={"model": "x", "max_cost_usd": 1})


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
        ({"Content-Type": "application/json; charset=latin-1"}, 415, "unsupported-media-type"),
        ({}, 415, "unsupported-media-type"),
        ({**JSON, "Content-Encoding": "gzip"}, 415, "unsupported-encoding"),
        ({**JSON, "Accept": "text/html"}, 406, "not-acceptable"),
        ({**JSON, "Idempotency-Key": "x" * 256}, 400, "idempotency-key-invalid"),
        ({**JSON, "Idempotency-Key": ""}, 400, "idempotency-key-invalid"),
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
        ("GET", "/tasks?limit=0", 422, "validation"),
        ("GET", "/tasks?limit=201", 422, "validation"),
        ("GET", "/tasks?lmit=5", 422, "validation"),
        ("GET", "/tasks?status=canary-4711", 422, "validation"),
        ("GET", "/tasks?text=%00", 422, "invalid-text"),
        ("GET", "/tasks?conversation_id=canary-4711", 422, "validation"),
        ("GET", "/tasks?created_after=0001-01-01T00:00:00%2B14:00", 422, "invalid-time"),
        ("GET", "/tasks?created_after=yesterday", 422, "validation"),
        ("GET", "/tasks?cursor=canary-4711", 400, "invalid-cursor"),
        ("GET", "/tasks?api_key=x", 400, "credential-in-url"),
        ("GET", "/tasks?agent=ek_0123456789ab_x", 400, "credential-in-url"),
        ("GET", "/tasks?agent=" + "a" * 5_000, 414, "uri-too-long"),
        ("DELETE", "/tasks", 405, "method-not-allowed"),
        ("GET", "/tasks/", 404, "not-found"),
    ],
)
async def test_requests_with_bad_urls_are_refused(
    api: httpx2.AsyncClient, method: str, path: str, status: int, type: str
) -> None:
    answer = await api.request(method, path)
    problem(answer, status, type)
    assert CANARY not in answer.text


@pytest.mark.parametrize(
    ("changed", "type"),
    [
        ({"text": f"{CANARY}\x00"}, "invalid-text"),
        ({"text": "x", "channel_id": f"{CANARY}\x00"}, "validation"),
    ],
)
async def test_signed_messages_are_read_as_strictly_as_others(
    api: httpx2.AsyncClient, changed: dict[str, str], type: str
) -> None:
    made = (await api.put(f"/connectors/c-{new_id()}", json={"kind": "webhook", "agent": "assistant"})).json()
    body = json.dumps({"channel_id": "room", "user_id": "ann", **changed}).encode()
    now, message = int(time.time()), new_id()
    signed = {"webhook-id": message, "webhook-timestamp": str(now)}
    signed["webhook-signature"] = signature([made["secret"]], message, now, body)
    answer = await api.post(made["hook"], content=body, headers={**JSON, **signed})
    problem(answer, 422, type)
    assert CANARY not in answer.text


async def test_405_names_every_method(api: httpx2.AsyncClient) -> None:
    assert (await api.delete("/tasks")).headers["allow"] == "GET, POST"


IDS = ["0" * 26, "x", "0" * 25, "0" * 27, "%00", "..%2f..", "I" * 26, "a" * 2_000, "%F0%9F%92%A9", "' OR 1=1 --"]


@pytest.mark.parametrize("id", IDS)
@pytest.mark.parametrize("path", ["/tasks/{}", "/tasks/{}/result", "/tasks/{}/events", "/sessions/{}", "/files/{}"])
async def test_unknown_and_malformed_ids_look_the_same(api: httpx2.AsyncClient, path: str, id: str) -> None:
    body = problem(await api.get(path.format(id)), 404, "not-found")
    if "%2f" not in id:  # an encoded slash leads to another path
        assert body["detail"] == "There is nothing by that id."


@pytest.mark.parametrize(
    ("cursor", "status", "type"),
    [("x", 400, "cursor-invalid"), ("-1", 400, "cursor-invalid"), ("1.5", 400, "cursor-invalid"),
     ("9" * 30, 400, "cursor-invalid"), ("\u0663", 400, "cursor-invalid"), ("99", 409, "cursor-ahead")],
)  # fmt: skip
async def test_bad_event_cursors_are_refused(api: httpx2.AsyncClient, cursor: str, status: int, type: str) -> None:
    task_id = await submitted(api)
    problem(await api.get(f"/tasks/{task_id}/events", params={"after": cursor}), status, type)
    if cursor.isascii():
        problem(await api.get(f"/tasks/{task_id}/events", headers={"Last-Event-ID": cursor}), status, type)


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


# The numbers of the day: lower them when a count falls. The aim is in tests/support/files_run.py.
BEFORE_TEMPORAL = 16
IN_ALL = 59
# Features that a plain agent's task does not use: none of their code is entered, they are looked at only where a
# definition or a task names them.
FEATURES = (
    *("activities/hooks/", "activities/handlers/", "activities/mcp/", "activities/notifications/"),
    *("activities/schedules/", "activities/delegation/", "activities/requests/", "activities/sandbox/"),
    *("activities/model/recorded.py", "activities/tools/declared_tools.py", "activities/tools/risks.py"),
    *("activities/skills.py", "activities/trees.py", "domain/skills.py", "domain/ignored.py", "domain/pictures.py"),
    *("domain/missions.py", "domain/agents/handler.py", "domain/agents/hook.py", "domain/agents/variables.py"),
)
# The API's listener receives the first event and the response is counted while Temporal is being called, so these may
# run before or after that.
BESIDE = {"api/streams/feeds.py", "store/events.py"}


async def test_a_task_runs_through_few_files(stack: Stack) -> None:
    # delete shared variables, which few tenants have: they would be looked up for every agent that this one refers to
    await stack.pool.execute("DELETE FROM tenant_variables WHERE tenant = 'default'")
    env = {name: value for name, value in stack.env.items() if name != "ERRAND_VARIABLES"}
    env |= {"TEMPORAL_ADDRESS": stack.temporal_address, "ERRAND_DATABASE_URL": stack.database_url}
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.files_run"), env=env, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await program.communicate()
    files = json.loads(output)
    before, after = files["before_temporal"], files["after"]
    listing = "\n".join([walk_line(before, after), *before, "-- Temporal --", *after])
    assert [name for name in (*before, *after) if name.startswith(FEATURES)] == [], listing
    assert len(set(before) - BESIDE) <= BEFORE_TEMPORAL, listing
    assert len(before) + len(after) <= IN_ALL, listing


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
        settings = Settings(openai_api_key="k", default_model="openai/gpt-5.4")
        vendor = ProviderReport(provider="openai", kind="openai", endpoint="x", default=True, models=["gpt-5.4"])
        await workers.beat(pool, "a-worker", "none", models=[vendor])
        await check_models(pool, ["gpt-5.4", "claude-haiku-4-5"], settings)
        with pytest.raises(Invalid):  # a bare name is of the default provider, whose list is complete too
            await check_models(pool, ["gpt-54"], settings)
    finally:
        await workers.leave(pool, "a-worker")

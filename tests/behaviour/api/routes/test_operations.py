import asyncio
import contextlib
import os
import signal
import sys
from dataclasses import replace

import httpx2
import pytest

from domain.ids import new_id
from settings import ROOT, Settings
from store import workers
from store.database import Pool
from tests.behaviour.api.conftest import NO_TEMPORAL, free_port, problem, serving, submitted


async def test_health_and_readiness_are_reported(api: httpx2.AsyncClient, pool: Pool) -> None:
    assert (await api.get("/healthz")).json() == {"status": "ok"}
    await workers.beat(pool, "seen", "bwrap")
    answer = await api.get("/readyz")
    assert answer.status_code == 503  # Temporal does not run in these tests
    assert answer.json() == {
        "ready": False,
        "postgres": True,
        "temporal": False,
        "worker": True,
        "workers": {"seen": "bwrap"},
        "missing": [],
    }
    await workers.leave(pool, "seen")


async def test_metrics_count_requests_and_sessions(api: httpx2.AsyncClient) -> None:
    await submitted(api)
    text = (await api.get("/metrics")).text
    assert 'errand_api_requests_total{method="POST",route="/tasks",status="202"}' in text
    assert 'errand_sessions{status="submitted"}' in text
    assert "errand_api_open_streams 0.0" in text


async def test_api_starts_and_answers_503_while_the_database_is_unreachable(settings: Settings) -> None:
    away = replace(settings, database_url=f"postgresql://app@127.0.0.1:{free_port()}/postgres")
    async with serving(away) as url, httpx2.AsyncClient(base_url=url) as client:
        assert (await client.get("/healthz")).status_code == 200
        spec = {"agent": "assistant", "input": "x"}
        for answer in (await client.post("/tasks", json=spec), await client.get(f"/tasks/{new_id()}")):
            problem(answer, 503, "dependency-unavailable")
            assert int(answer.headers["retry-after"]) > 0
        ready = await client.get("/readyz")
        assert ready.status_code == 503 and ready.json()["postgres"] is False


@pytest.mark.proves("S1-20")
async def test_sigterm_ends_streams_and_readers_resume_elsewhere(settings: Settings, pool: Pool, open_url: str) -> None:
    port = free_port()
    env = {
        **os.environ,
        "ERRAND_DATABASE_URL": settings.database_url or "",
        "TEMPORAL_ADDRESS": NO_TEMPORAL,
        "ERRAND_WAITING_TASKS": "0",  # without Temporal all tasks of all these tests wait
        "PYTHONPATH": str(ROOT),
    }
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "uvicorn", "api.app:app", "--port", str(port), env=env, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(60), httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            await _up(client)
            task_id = await submitted(client)
            async with client.stream("GET", f"/tasks/{task_id}/events") as answer:
                lines = answer.aiter_lines()
                while "id: 1" not in await anext(lines):
                    pass
                server.send_signal(signal.SIGTERM)
                assert [line async for line in lines if line.startswith("data")] == []
            _, log = await server.communicate()
            assert server.returncode in (0, -signal.SIGTERM)
        assert b"Traceback" not in log
    finally:
        if server.returncode is None:
            server.kill()
    async with httpx2.AsyncClient(base_url=open_url) as client:
        answer = await client.get(f"/tasks/{task_id}/events?after=1", headers={"Accept": "application/json"})
        assert answer.json()["items"] == [] and answer.json()["next_after"] == 1


async def _up(client: httpx2.AsyncClient) -> None:
    while True:
        with contextlib.suppress(httpx2.TransportError):
            await client.get("/healthz")
            return
        await asyncio.sleep(0.1)

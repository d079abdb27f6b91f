"""Temporal in the embedded stack: protected against web pages, and prepared again when its database was deleted."""

import asyncio
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from temporalio.client import Client

from deploy.state import StackInfo
from tests.behaviour.deploy.processes import listening
from tests.support.launch import connected, home, offline_model, settings_in, started
from tests.support.stack import Stack
from workflows.client import WorkflowClient
from workflows.schedules import SWEEPER, ensure_swept

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux about its processes")

NAMESPACE = "/api/v1/namespaces/default"


async def answer(address: str, path: str, **headers: str) -> int:
    """Return the status of a request, or 0 if the server does not speak HTTP."""
    async with httpx2.AsyncClient(timeout=3) as http:
        try:
            return (await http.get(f"http://{address}{path}", headers=headers)).status_code
        except httpx2.TransportError:
            return 0


async def test_web_pages_reach_neither_the_web_ui_nor_the_http_api(stack: Stack) -> None:
    ui = urlsplit(stack.part("temporal-ui").address).netloc
    assert await answer(ui, NAMESPACE) == 200
    assert await answer(ui, NAMESPACE, Host="rebound.example") == 403
    assert await answer(ui, NAMESPACE, Origin="https://evil.example") == 403
    async with httpx2.AsyncClient(base_url=f"http://{ui}") as http:
        path = "/api/v1/namespaces/default/batch-operations/x"
        cross_site = {"Content-Type": "text/plain", "Origin": "https://evil.example"}
        assert (await http.post(path, content="{}", headers=cross_site)).status_code == 403
    # a web page can try every port of 127.0.0.1
    for _, port in listening(stack.pid("temporal")):
        assert await answer(f"127.0.0.1:{port}", NAMESPACE) in (0, 403, 404)


async def test_guard_leaves_the_pages_of_the_web_ui_as_they_are(stack: Stack) -> None:
    """The details of a workflow are Markdown in a frame, which has its own content policy."""
    async with httpx2.AsyncClient(base_url=stack.part("temporal-ui").address) as http:
        rendered = await http.get("/render", params={"content": "hello", "theme": "light"})
        policy = rendered.headers["content-security-policy"]
        assert rendered.status_code == 200 and "default-src 'none'" in policy and "frame-ancestors 'self'" in policy
        page = await http.get("/", headers={"Accept-Encoding": "identity"})
        assert page.headers["x-frame-options"] == "SAMEORIGIN" and "content-encoding" not in page.headers
        assert "frame-ancestors 'self'" in page.headers["content-security-policy"]


async def test_readiness_lists_what_temporal_lacks(stack: Stack) -> None:
    await stack.client.get_schedule_handle(SWEEPER).delete()
    try:
        answer = await stack.http.get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["missing"] == [f"schedule {SWEEPER}"] and answer.json()["temporal"]
    finally:
        await ensure_swept(stack.client, stack.settings.task_queue)
    assert (await stack.http.get("/readyz")).status_code == 200
    elsewhere = await Client.connect(stack.temporal_address, namespace="gone")
    assert await WorkflowClient(elsewhere, stack.settings.task_queue).missing() == ["namespace gone"]


@pytest.mark.exactly_once
async def test_tasks_start_again_after_temporals_database_was_deleted() -> None:
    with home() as folder, offline_model(folder) as model_port:
        settings = settings_in(folder, model_port)

        async def run_one(info: StackInfo) -> dict[str, Any]:
            async with connected(settings, info) as stack:
                return await stack.run("[[script:say text=done]] hello")

        async with started(settings, folder / "stack.log") as info:
            assert (await run_one(info))["status"] == "completed"
        for path in await asyncio.to_thread(lambda: list(Path(settings.data_dir or "").glob("temporal/temporal.db*"))):
            path.unlink()
        async with started(settings, folder / "stack.log") as info:
            assert (await run_one(info))["status"] == "completed"

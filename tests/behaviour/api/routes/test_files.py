import asyncio
import hashlib
import os
import socket
import time
import tracemalloc
from dataclasses import replace
from urllib.parse import urlsplit

import httpx2
import pytest

from api.http import transfers
from api.http.auth import account_caller
from domain.ids import new_id
from settings import Settings
from store import files
from store.database import Pool
from store.keys import Right
from tests.behaviour.api.conftest import end, key_for, problem, serving, submitted

DIGEST = hashlib.sha256(b"hello").hexdigest()


async def test_uploaded_file_can_be_downloaded(api: httpx2.AsyncClient) -> None:
    params = {"name": "Bericht ä.html"}
    answer = await api.post("/files", params=params, content=b"hello", headers={"Content-Type": "text/html"})
    assert answer.status_code == 201
    file = answer.json()
    assert file["sha256"] == DIGEST and file["size"] == 5 and file["media_type"] == "text/html"
    download = await api.get(file["url"])
    assert download.content == b"hello" and download.headers["content-type"] == "text/html"
    assert download.headers["content-disposition"] == "attachment; filename*=UTF-8''Bericht%20%C3%A4.html"
    assert download.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in download.headers["content-security-policy"]


@pytest.mark.parametrize(
    "name",
    ["", "..", "/a", "a/../b", "a\\b", "a\x00b", "-rf", "x" * 256, "a\u202egpj.exe"],
)
async def test_unsafe_file_names_are_refused(api: httpx2.AsyncClient, name: str) -> None:
    problem(await api.post("/files", params={"name": name}, content=b"x"), 422, "invalid-filename")


async def test_uploads_beyond_the_limit_are_refused(settings: Settings, pool: Pool) -> None:
    async with serving(replace(settings, max_file_bytes=1_000)) as url, httpx2.AsyncClient(base_url=url) as client:
        assert (await client.post("/files?name=a", content=b"x" * 1_000)).status_code == 201
        problem(await client.post("/files?name=a", content=b"x" * 1_001), 413, "body-too-large")


async def test_a_deleted_file_is_gone_and_its_bytes_follow_when_nobody_else_has_them(
    api: httpx2.AsyncClient, pool: Pool
) -> None:
    one, two = [(await api.post("/files?name=same", content=b"deleted bytes")).json() for _ in range(2)]
    assert (await api.delete(one["url"])).status_code == 204
    problem(await api.delete(one["url"]), 404, "not-found")
    problem(await api.get(one["url"]), 404, "not-found")
    await _sweep(pool, one["sha256"])
    assert (await api.get(two["url"])).content == b"deleted bytes"  # the other file has the same content
    assert (await api.delete(two["url"])).status_code == 204
    await _sweep(pool, one["sha256"])
    assert await pool.fetchval("SELECT count(*) FROM blobs WHERE sha256 = $1", one["sha256"]) == 0
    audited = "SELECT actor, digest FROM audit WHERE action = 'delete_file' AND subject = $1"
    entries = await pool.fetch(audited, two["file_id"])
    assert [entry["actor"] for entry in entries] == [account_caller(os.geteuid()).created_by] and entries[0]["digest"]
    assert (await api.get("/audit/verify")).json()["intact"]


async def _sweep(pool: Pool, digest: str) -> None:
    await pool.execute("UPDATE blobs SET put_at = now() - interval '2 days' WHERE sha256 = $1", digest)
    await files.drop_loose_bytes(pool)


async def test_a_file_of_an_unfinished_task_is_in_use(api: httpx2.AsyncClient, pool: Pool) -> None:
    file = (await api.post("/files?name=used", content=b"in use")).json()
    task_id = await submitted(api, {}, context={"files": [file["file_id"]]})
    body = problem(await api.delete(file["url"]), 409, "file-in-use")
    assert body["task_id"] == task_id
    await end(pool, task_id)
    assert (await api.delete(file["url"])).status_code == 204
    await _sweep(pool, file["sha256"])
    # the workspace of the task still uses the bytes
    assert await pool.fetchval("SELECT count(*) FROM blobs WHERE sha256 = $1", file["sha256"]) == 1


async def test_an_artifact_is_deleted_with_its_task_only(api: httpx2.AsyncClient, pool: Pool) -> None:
    file = (await api.post("/files?name=report", content=b"an artifact")).json()
    await pool.execute("UPDATE files SET session_id = 'some-task' WHERE id = $1", file["file_id"])
    problem(await api.delete(file["url"]), 409, "file-in-use")
    assert (await api.get(file["url"])).status_code == 200


async def test_a_tenant_has_a_quota_of_uploads(settings: Settings, pool: Pool) -> None:
    limited = replace(settings, host="0.0.0.0", tenant_upload_bytes=1_000)
    mine, other = [await key_for(pool, new_id(), Right.SUBMIT) for _ in range(2)]
    async with serving(limited) as url, httpx2.AsyncClient(base_url=url) as client:
        first = (await client.post("/files?name=a", content=b"a" * 600, headers=mine)).json()
        body = problem(await client.post("/files?name=b", content=b"b" * 401, headers=mine), 409, "quota-exceeded")
        assert body["limit"] == "ERRAND_TENANT_UPLOAD_BYTES" and "600" in body["detail"]
        assert (body["limit_bytes"], body["used_bytes"], body["added_bytes"]) == (1_000, 600, 401)
        assert await pool.fetchval("SELECT count(*) FROM blobs WHERE content = $1", b"b" * 401) == 0
        both = [client.post("/files?name=c", content=bytes([65 + n]) * 300, headers=mine) for n in range(2)]
        assert sorted(answer.status_code for answer in await asyncio.gather(*both)) == [201, 409]
        assert (await client.post("/files?name=a", content=b"a" * 1_000, headers=other)).status_code == 201
        assert (await client.delete(first["url"], headers=mine)).status_code == 204
        assert (await client.post("/files?name=b", content=b"b" * 401, headers=mine)).status_code == 201


async def test_a_task_whose_files_no_longer_fit_into_the_workspaces_is_refused(settings: Settings, pool: Pool) -> None:
    limited = replace(settings, host="0.0.0.0", tenant_workspace_bytes=1_000)
    mine = await key_for(pool, new_id(), Right.SUBMIT)
    async with serving(limited) as url, httpx2.AsyncClient(base_url=url) as client:
        file = (await client.post("/files?name=a", content=b"a" * 600, headers=mine)).json()
        task = {"agent": "assistant", "input": "Hello.", "context": {"files": [file["file_id"]]}}
        assert (await client.post("/tasks", json=task, headers=mine)).status_code == 202
        body = problem(await client.post("/tasks", json=task, headers=mine), 409, "quota-exceeded")
        assert (body["limit"], body["used_bytes"]) == ("ERRAND_TENANT_WORKSPACE_BYTES", 600)
        task["context"] = {}
        assert (await client.post("/tasks", json=task, headers=mine)).status_code == 202


@pytest.mark.parametrize("way", ["upload", "download"])
async def test_clients_that_stall_hold_few_files_in_memory(
    settings: Settings, pool: Pool, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait for their turn, other tenants do not, and a transfer ends although nobody reads it."""
    monkeypatch.setattr(transfers, "AT_ONCE", 3)
    monkeypatch.setattr(transfers, "SECONDS", 4.0)
    monkeypatch.setattr("api.routes.files.SECONDS", 4.0)
    size = 8_000_000
    stalling, other = [await key_for(pool, new_id(), Right.SUBMIT, Right.READ) for _ in range(2)]
    keyed = replace(settings, host="0.0.0.0", requests_per_minute=100_000)
    async with serving(keyed) as url, httpx2.AsyncClient(base_url=url, timeout=30) as client:
        made = (await client.post("/files?name=f", content=b"x" * size, headers=stalling)).json()
        target = "POST /files?name=g" if way == "upload" else f"GET {made['url']}"
        head = f"{target} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nAuthorization: {stalling['Authorization']}\r\n"
        head += f"Content-Type: text/plain\r\nContent-Length: {size}\r\n\r\n" if way == "upload" else "\r\n"
        sent = head.encode() + (b"x" * (size - 1) if way == "upload" else b"")
        stalled = [socket.create_connection((urlsplit(url).hostname, urlsplit(url).port)) for _ in range(6)]
        tracemalloc.start()
        try:
            sending = []
            for one in stalled:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                one.setblocking(False)
                sending.append(asyncio.create_task(asyncio.get_running_loop().sock_sendall(one, sent)))
            for _ in range(10):
                await asyncio.sleep(0.3)
                assert tracemalloc.get_traced_memory()[1] < 4.5 * size
            began = time.monotonic()
            assert (await client.post("/files?name=h", content=b"x" * size, headers=other)).status_code == 201
            assert time.monotonic() - began < 3
            whole = await client.get(made["url"], headers=stalling)  # its turn comes when the others' time is over
            assert len(whole.content) == size
        finally:
            tracemalloc.stop()
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)
            for one in stalled:
                one.close()

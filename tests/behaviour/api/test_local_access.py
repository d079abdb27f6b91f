"""Access without a key: only for the account that runs the server, on its machine; not for proxies or web pages."""

import asyncio
import os
import shutil
import subprocess
import time
from dataclasses import replace
from urllib.parse import urlsplit

import httpx2
import pytest

from api import __main__
from api.http import auth
from settings import Settings
from store.database import Pool
from store.keys import Right
from tests.behaviour.api.conftest import key_for, problem, serving, submitted

NOBODY = 65534
PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin") or ""  # an interpreter that every account can run
as_another_account = pytest.mark.skipif(
    os.geteuid() != 0 or not PYTHON, reason="only root can act as another account, which needs a Python"
)
ASK = """
import sys, urllib.request, urllib.error
request = urllib.request.Request(sys.argv[1], headers=dict(zip(sys.argv[2::2], sys.argv[3::2])))
try:
    print(urllib.request.urlopen(request, timeout=10).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


@as_another_account
async def test_other_account_needs_the_token(settings: Settings, pool: Pool) -> None:
    async with serving(replace(settings, local_token="the-token")) as url:

        async def status(user: int | None, *headers: str) -> str:
            argv = [PYTHON, "-I", "-c", ASK, f"{url}/tasks", *headers]
            who = user or os.geteuid()
            process = await asyncio.create_subprocess_exec(
                *argv, stdout=subprocess.PIPE, cwd="/", user=who, group=who, extra_groups=[]
            )
            return (await process.communicate())[0].decode().strip()

        assert await status(None) == "200"
        assert await status(NOBODY) == "401"
        assert await status(NOBODY, "Authorization", "Bearer the-token") == "200"
        assert await status(NOBODY, "Authorization", "Bearer another") == "401"
        assert await status(NOBODY, "Authorization", "Bearer the-token", "X-Forwarded-For", "10.0.0.1") == "401"


@as_another_account
async def test_other_account_that_disconnects_immediately_is_not_taken_for_root(settings: Settings, pool: Pool) -> None:
    """For a socket without an owner, the kernel reports account 0."""
    body = '{"agent": "assistant", "input": "hang-up"}'
    send = (
        "import socket, sys; s = socket.socket(); s.connect(('127.0.0.1', int(sys.argv[1])));"
        "s.sendall(sys.argv[2].encode()); s.close()"
    )
    async with serving(settings) as url:
        head = "POST /tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json"
        argv = [
            PYTHON,
            "-I",
            "-c",
            send,
            str(urlsplit(url).port),
            f"{head}\r\nContent-Length: {len(body)}\r\n\r\n{body}",
        ]
        # the client runs in the server's thread, so that it has disconnected when the server reads the request
        for _ in range(3):
            subprocess.run(argv, cwd="/", user=NOBODY, group=NOBODY, extra_groups=[], check=True)  # noqa: ASYNC221
        await asyncio.sleep(1)
    assert await pool.fetchval("SELECT count(*) FROM sessions WHERE title LIKE '%hang-up%'") == 0


async def test_failed_keys_are_limited(settings: Settings, pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "MOST_FAILURES", 5)
    good = await key_for(pool, "guessed", Right.READ)
    async with serving(settings) as url, httpx2.AsyncClient(base_url=url) as client:
        for _ in range(5):
            problem(await client.get("/tasks", headers={"Authorization": "Bearer x"}), 401, "unauthenticated")
        refused = await client.get("/tasks", headers={"Authorization": "Bearer x"})
        problem(refused, 429, "rate-limited")
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        problem(await client.get("/tasks", headers=good), 429, "rate-limited")  # the limit is of the address


@pytest.mark.parametrize("sent", [b"", b"GET /tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "])
async def test_head_that_does_not_arrive_is_cut_off(
    open_url: str, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(__main__, "HEAD_SECONDS", 0.3)
    reader, writer = await asyncio.open_connection(urlsplit(open_url).hostname, urlsplit(open_url).port)
    writer.write(sent)
    begun = time.monotonic()
    assert (await asyncio.wait_for(reader.read(), 5)).startswith(b"HTTP/1.1 408")
    assert time.monotonic() - begun < 4
    writer.close()


async def test_streams_per_key_are_limited(settings: Settings, pool: Pool) -> None:
    one, other = await key_for(pool, "streams"), await key_for(pool, "streams")
    limited = replace(settings, streams_per_key=2)
    async with serving(limited) as url, httpx2.AsyncClient(base_url=url, timeout=20) as client:
        path = f"/tasks/{await submitted(client, one)}/events"
        async with client.stream("GET", path, headers=one) as first, client.stream("GET", path, headers=one):
            assert first.status_code == 200
            await asyncio.sleep(0.3)
            async with client.stream("GET", path, headers=one) as refused:
                assert refused.status_code == 429
                await refused.aread()
            problem(refused, 429, "too-many-streams")
            assert int(refused.headers["retry-after"]) > 0
            async with client.stream("GET", path, headers=other) as third:
                assert third.status_code == 200
        await asyncio.sleep(0.5)
        async with client.stream("GET", path, headers=one) as again:
            assert again.status_code == 200

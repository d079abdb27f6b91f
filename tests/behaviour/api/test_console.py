"""The console's files and its sign-in: a cookie with the rights of a key, which only pages of this address can use."""

import asyncio
import base64
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx2
import pytest

from api.http import auth
from api.http.auth import ConsoleCookie
from domain.sealing import KeyRing
from settings import Settings
from store import keys
from store.database import Pool
from store.keys import Right
from tests.behaviour.api.conftest import key_for, problem, serving
from tests.support.launch import SECRET_KEYS


@contextlib.asynccontextmanager
async def signed_in(url: str, pool: Pool, *rights: Right) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=url, timeout=20) as client:
        answer = await client.post("/console/session", headers=await key_for(pool, "console", *rights))
        assert answer.status_code == 200, answer.text
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie and "samesite=strict" in cookie
        yield client


async def test_page_and_modules_need_no_key_and_may_run_only_themselves(keyed_url: str) -> None:
    async with httpx2.AsyncClient(base_url=keyed_url) as client:
        page = await client.get("/")
        assert page.status_code == 200 and "console/app.js" in page.text
        assert "default-src 'self'" in page.headers["content-security-policy"]
        assert "unsafe-inline" not in page.headers["content-security-policy"]
        module = await client.get("/console/app.js")
        assert module.headers["content-type"].startswith("text/javascript")
        again = await client.get("/console/app.js", headers={"If-None-Match": module.headers["etag"]})
        assert again.status_code == 304
        problem(await client.get("/console/..%2Fapp.py"), 404, "not-found")
        problem(await client.get("/console/nothing.js"), 404, "not-found")
        problem(await client.get("/console/session"), 401, "unauthenticated")


async def test_changes_by_cookie_must_come_from_this_address(keyed_url: str, pool: Pool) -> None:
    """A browser says where a request comes from. Another port of this host is the same site, but not this address."""
    body = {"agent": "assistant", "input": "hi"}
    neighbour, elsewhere = "http://127.0.0.1:3000", "https://elsewhere.example"
    async with signed_in(keyed_url, pool, Right.SUBMIT) as client:
        for site in (None, "same-origin", "same-site", "cross-site", "none"):
            for origin in (None, keyed_url, neighbour, elsewhere, "null"):
                sent = {"Sec-Fetch-Site": site, "Origin": origin}
                headers = {name: value for name, value in sent.items() if value is not None}
                answer = await client.post("/tasks", json=body, headers=headers)
                if site == "same-origin" or origin == keyed_url:
                    assert answer.status_code == 202, (site, origin)
                else:
                    problem(answer, 403, "insufficient-scope")
        foreign = {"Sec-Fetch-Site": "same-site", "Origin": neighbour}
        assert (await client.get("/console/session", headers=foreign)).status_code == 200


async def test_socket_by_cookie_must_come_from_this_address(keyed_url: str, pool: Pool) -> None:
    """A server on another port of the same host belongs to the same site, so its pages send the cookie too."""
    url = f"{keyed_url.replace('http', 'ws')}/notifications"
    async with signed_in(keyed_url, pool, Right.READ) as client:
        for origin in ({}, {"Origin": "http://127.0.0.1:3000"}):
            with pytest.raises(Exception, match="403"):
                async with client.websocket(url, headers=origin):
                    pass
        async with client.websocket(url, headers={"Origin": keyed_url}):
            pass


async def test_forged_expired_and_foreign_cookies_open_nothing(
    keyed_url: str, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, secret = await keys.create(pool, "forged", "person", [Right.READ])
    ring = KeyRing.parse(SECRET_KEYS)
    good = auth.issue_cookie(ring, key.id, keys.digest_of(secret))
    other = KeyRing({"k1": b"x" * 32})
    plain = base64.urlsafe_b64encode(
        ConsoleCookie(id="x", key_id=key.id, digest="0", expires=2**40).model_dump_json().encode()
    )
    bad = [
        auth.issue_cookie(other, key.id, keys.digest_of(secret)),
        auth.issue_cookie(ring, key.id, keys.digest_of("a guess")),
        plain.decode(),
        good[:-8] + "AAAAAAA=",
        "",
        "…",
        "x" * 4_000,
    ]
    monkeypatch.setattr(auth, "COOKIE_SECONDS", -1)
    bad.append(auth.issue_cookie(ring, key.id, keys.digest_of(secret)))
    async with httpx2.AsyncClient(base_url=keyed_url) as client:
        for value in bad:
            cookie = f"{auth.COOKIE_NAME}={value}".encode()
            problem(await client.get("/tasks", headers=[(b"cookie", cookie)]), 401, "unauthenticated")
        found = await client.get("/tasks", headers={"Cookie": f"{auth.COOKIE_NAME}={good}"})
        assert found.status_code == 200


async def test_signing_out_ends_the_cookie_everywhere(keyed_url: str, pool: Pool, settings: Settings) -> None:
    """A copy of it does not work either, in this process and in another one; other cookies of the key still do."""
    async with (
        signed_in(keyed_url, pool, Right.READ) as client,
        serving(replace(settings, host="0.0.0.0")) as second_url,
        httpx2.AsyncClient(base_url=second_url) as second,
    ):
        copy = {"Cookie": f"{auth.COOKIE_NAME}={client.cookies[auth.COOKIE_NAME]}"}
        assert (await second.get("/tasks", headers=copy)).status_code == 200
        assert (await client.delete("/console/session", headers={"Origin": keyed_url})).status_code == 204
        problem(await client.get("/tasks"), 401, "unauthenticated")
        problem(await client.get("/tasks", headers=copy), 401, "unauthenticated")
        problem(await second.get("/tasks", headers=copy), 401, "unauthenticated")


async def test_cookie_of_the_local_token_is_checked_like_the_token(settings: Settings, pool: Pool) -> None:
    async with serving(replace(settings, local_token="the-token")) as url, httpx2.AsyncClient(base_url=url) as client:
        (await client.post("/console/session", headers={"Authorization": "Bearer the-token"})).raise_for_status()
        assert (await client.get("/tasks")).status_code == 200
        problem(await client.get("/tasks", headers={"Host": "rebound.example"}), 400, "bad-request")
        problem(await client.get("/tasks", headers={"X-Forwarded-For": "10.0.0.1"}), 401, "unauthenticated")
        problem(await client.get("/tasks", headers={"Origin": "http://127.0.0.1:3000"}), 403, "insufficient-scope")
        copy = {"Cookie": f"{auth.COOKIE_NAME}={client.cookies[auth.COOKIE_NAME]}", "Host": "rebound.example"}
        await client.delete("/console/session", headers={"Origin": url})
        problem(await client.get("/console/session", headers=copy), 400, "bad-request")


async def test_search_for_a_text_is_refused_after_a_time_limit(keyed_url: str, pool: Pool) -> None:
    """Simulate a tenant with millions of tasks: another connection holds the table."""
    headers = await key_for(pool, "searching", Right.READ)
    async with httpx2.AsyncClient(base_url=keyed_url, headers=headers, timeout=20) as client:
        async with pool.acquire() as connection, connection.transaction():
            await connection.execute("LOCK TABLE sessions IN ACCESS EXCLUSIVE MODE")
            refused = problem(await client.get("/tasks", params={"text": "x"}), 422, "validation")
        assert refused["errors"][0]["code"] == "too_slow"
        assert (await client.get("/tasks", params={"text": "x"})).json()["items"] == []


async def test_markdown_becomes_html_that_can_only_be_read(api: httpx2.AsyncClient) -> None:
    hostile = "<script>x</script> ![a](http://e.example/x.png) [b](javascript:x) [c](https://e.example/ 'd')"
    slow = ["[" * 100_000, "![[" * 33_000, "> " * 50_000]  # written to be slow
    texts = ["# A\n\n- **b**\n\n|a|b|\n|-|-|\n|1|2|", hostile, *slow]
    began = time.monotonic()
    rendering = asyncio.create_task(api.post("/texts/markdown", json={"texts": texts}))
    waits = []
    while not rendering.done():  # others are answered meanwhile
        at = time.monotonic()
        assert (await api.get("/healthz")).status_code == 200
        waits.append(time.monotonic() - at)
    found, unsafe, *cut = rendering.result().json()["html"]
    assert all(part in found for part in ("<h1>A</h1>", "<li><strong>b</strong></li>", "<td>2</td>"))
    assert "<script" not in unsafe and "<img" not in unsafe and 'href="javascript' not in unsafe
    assert '<a href="https://e.example/" target="_blank" rel="noopener noreferrer">c</a>' in unsafe
    assert all("more characters" in one for one in cut)
    assert max(waits) < 1 and time.monotonic() - began < 20
    problem(await api.post("/texts/markdown", json={"texts": ["x" * 100_001]}), 422, "validation")

"""Malformed requests, sent as bytes on a real socket."""

import asyncio
import json
import logging
import re
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from api.http import body
from tests.behaviour.api.conftest import problem, submitted

BODY = b'{"agent": "assistant", "input": "Say hi."}'
HEAD = b"POST /tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


async def exchange(url: str, sent: bytes) -> tuple[int, bytes]:
    """Send bytes and read until the server closes the connection or sends nothing more."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        writer.write(sent)
        async with asyncio.timeout(5):
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head.lower())
            content = await (reader.readexactly(int(length[1])) if length else reader.read())
        return int(head.split()[1]), content if b"problem+json" in head else b""
    finally:
        writer.close()


def kind(content: bytes) -> str:
    body: dict[str, Any] = json.loads(content)
    return str(body["type"]).rsplit(":", 1)[-1]


async def test_slow_body_is_408(open_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "BODY_SECONDS", 0.1)
    status, content = await exchange(open_url, HEAD + b"Content-Length: 100\r\n\r\n{")
    assert (status, kind(content)) == (408, "request-timeout")


async def test_declared_length_is_refused_before_reading(open_url: str) -> None:
    status, content = await exchange(open_url, HEAD + b"Content-Length: 99999999\r\n\r\n")
    assert (status, kind(content)) == (413, "body-too-large")


async def test_content_length_with_transfer_encoding_is_refused(open_url: str) -> None:
    sent = HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n2a\r\n" + BODY + b"\r\n0\r\n\r\n"
    status, content = await exchange(open_url, sent)
    assert (status, kind(content)) == (400, "bad-request")


@pytest.mark.parametrize(
    "head",
    [
        b"GET /tasks HTTP/1.1\r\n\r\n",
        b"GET /tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: localhost\r\n\r\n",
        b"GET /tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: a\x00b\r\n\r\n",
        b"GET /tasks HTTP/9\r\nHost: 127.0.0.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ],
)
async def test_broken_request_heads_are_400(open_url: str, head: bytes) -> None:
    status, _ = await exchange(open_url, head)
    assert status == 400


async def test_request_id_of_the_caller_is_repeated(api: httpx2.AsyncClient) -> None:
    assert (await api.get("/healthz", headers={"X-Request-Id": "my-id.1"})).headers["x-request-id"] == "my-id.1"
    assert (await api.get("/healthz", headers={"X-Request-Id": "a b<>"})).headers["x-request-id"] != "a b<>"
    assert len((await api.get("/healthz")).headers["x-request-id"]) == 26


async def test_log_has_neither_query_nor_secret(api: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("errand").setLevel(logging.DEBUG)
    await submitted(api, input="secret-input")
    problem(await api.get("/tasks?token=secret-token"), 400, "credential-in-url")
    problem(await api.get("/tasks", headers={"Authorization": "Bearer secret-key"}), 401, "unauthenticated")
    text = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith(("errand", "uvicorn")))
    assert "POST /tasks 202" in text
    assert "secret" not in text


async def test_unexpected_errors_show_only_an_id(
    api: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> None:
        raise ValueError("secret" + str(4711))

    monkeypatch.setattr("store.sessions.get", broken)
    answer = await api.get("/tasks/" + "0" * 26)
    body = problem(answer, 500, "internal")
    assert "secret4711" not in answer.text
    assert body["instance"] in caplog.text and "secret4711" not in caplog.text

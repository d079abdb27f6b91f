"""Slow bodies, and what logs and refusals do not show."""

import asyncio
import logging
from urllib.parse import urlsplit

import httpx2
import pytest

from api.http import body
from tests.behaviour.api.conftest import problem, submitted

HEAD = b"POST /tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


async def test_slow_body_is_408(open_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "BODY_SECONDS", 0.1)
    reader, writer = await asyncio.open_connection(urlsplit(open_url).hostname, urlsplit(open_url).port)
    writer.write(HEAD + b"Content-Length: 100\r\n\r\n{")
    answer = await asyncio.wait_for(reader.readuntil(b"}"), 5)
    assert answer.startswith(b"HTTP/1.1 408") and b"urn:errand:problem:request-timeout" in answer
    writer.close()


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

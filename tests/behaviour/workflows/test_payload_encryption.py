"""With payload encryption, Temporal's history contains no content; replay, codec endpoint and rotation can read it."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
import pytest_asyncio
from temporalio.client import WorkflowHistory

from domain.sealing import KeyRing
from store import keys
from store.keys import Right
from tests.support.own_worker import platform
from tests.support.stack import Stack, calls
from workflows.codec import data_converter
from workflows.replay import histories, replay, to_document

CANARY = "swordfish-4711"
UI = "https://temporal.example.org"


@pytest_asyncio.fixture(scope="module")
async def encrypted(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    folder: Path = tmp_path_factory.mktemp("encrypted")
    async with platform(stack, folder, {}, payload_encryption="on", temporal_ui_origins=(UI,)) as own:
        yield own


async def _history(stack: Stack, prompt: str) -> list[WorkflowHistory]:
    record = await stack.run(prompt)
    return await histories(stack.client, record["task_id"])  # this client has no keys


def _plain(value: object, path: str = "") -> set[str]:
    """A stack without payload encryption."""
    if isinstance(value, list):
        return {one for child in value for one in _plain(child, path)}
    if not isinstance(value, dict):
        return set()
    if isinstance(value.get("encoding"), str):
        return set() if value["encoding"] == "YmluYXJ5L2VuY3J5cHRlZA==" else {path}  # binary/encrypted in base64
    return {one for key, child in value.items() for one in _plain(child, f"{path}/{key}")}


def _messages(value: object) -> set[str]:
    """Return the messages of failures."""
    if isinstance(value, list):
        return {one for child in value for one in _messages(child)}
    if not isinstance(value, dict):
        return set()
    own = {value["message"]} if isinstance(value.get("message"), str) else set()
    return own | {one for child in value.values() for one in _messages(child)}


async def test_history_holds_no_content_and_replays(encrypted: Stack) -> None:
    prompt = calls(("bash", {"command": f"echo {CANARY}"}), ("report_progress", {"message": CANARY}), ("explode", {}))
    failing = "[[fault:auth]]"
    found = [*await _history(encrypted, prompt), *await _history(encrypted, failing)]
    assert len(found) >= 2
    for history in found:
        text = json.dumps(to_document(history))
        assert CANARY not in text
        # only search attributes, and the names and times that the SDK records for local activities
        for path in _plain(json.loads(history.to_json())):
            assert "/searchAttributes/" in path or path.endswith("/details/data/payloads/metadata"), path
        assert _messages(json.loads(history.to_json())) <= {"Encoded failure"}
        converter = data_converter(KeyRing.parse(encrypted.settings.secret_keys))
        assert (await replay(history, converter)).same
    assert any("Encoded failure" in history.to_json() for history in found)


async def test_codec_endpoint_decrypts_for_administrators_and_the_web_ui_only(encrypted: Stack) -> None:
    [history, *_] = await _history(encrypted, "[[script:say text=hi]]")
    started = json.loads(history.to_json())["events"][0]["workflowExecutionStartedEventAttributes"]
    body = {"payloads": started["input"]["payloads"]}
    rights = {right: (await keys.create(encrypted.pool, "default", "codec", [right]))[1] for right in Right}
    async with httpx2.AsyncClient(base_url=encrypted.http.base_url) as client:
        for right, secret in rights.items():
            headers = {"Authorization": f"Bearer {secret}", "Origin": UI}
            answer = await client.post("/codec/decode", json=body, headers=headers)
            assert answer.status_code == (200 if right is Right.ADMIN else 403), right
            if right is not Right.ADMIN:
                continue
            [payload] = answer.json()["payloads"]
            assert payload["metadata"]["encoding"] != body["payloads"][0]["metadata"]["encoding"]
            assert answer.headers["access-control-allow-origin"] == UI
            elsewhere = await client.post(
                "/codec/decode", json=body, headers={**headers, "Origin": "https://evil.test"}
            )
            assert "access-control-allow-origin" not in elsewhere.headers
            wrong = await client.post("/codec/decode", json={"payloads": "x"}, headers=headers)
            assert wrong.status_code == 422
        asked = await client.options("/codec/decode", headers={"Origin": UI, "Access-Control-Request-Method": "POST"})
        assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (204, UI)
        assert "authorization" in asked.headers["access-control-allow-headers"]
        foreign = await client.options("/codec/decode", headers={"Origin": "https://evil.test"})
        assert "access-control-allow-origin" not in foreign.headers

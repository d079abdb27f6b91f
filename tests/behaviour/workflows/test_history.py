"""Temporal's history contains references and previews, the same few bytes per step, and never the content."""

import asyncio

import pytest

from store import keys
from store.keys import Right
from tests.support.launch import MODEL_KEY
from tests.support.secrets import secrets_found
from tests.support.stack import Stack, calls


async def size(stack: Stack, task_id: str) -> int:
    """Return the size of the history as the server counts it for its limits."""
    described = await stack.session(task_id).describe()
    return described.raw_description.workflow_execution_info.history_size_bytes


@pytest.mark.proves("S1-B02")
async def test_history_per_step_is_flat_and_small(stack: Stack) -> None:
    lengths = (5, 20, 35)  # a longer session continues as new
    growing = [f"[[script:count n={n} grow=4000]]" for n in lengths]
    records = await asyncio.gather(*(stack.run(text, config={"max_steps": 100}) for text in growing))
    assert {record["status"] for record in records} == {"completed"}
    short, middle, long = [await size(stack, record["task_id"]) for record in records]
    first, second = (middle - short) / 15, (long - middle) / 15
    assert first < 3_000 and second < 3_000
    assert second == pytest.approx(first, rel=0.05)


async def test_history_holds_no_content_beyond_its_previews(stack: Stack) -> None:
    text = "x " * 400 + "canary-in-the-prompt"
    content = "y " * 400 + "canary-in-the-arguments"
    record = await stack.run(
        f"{calls(('write_file', {'path': 'a', 'content': content}), ('read_file', {'path': 'a'}))} {text}"
    )
    assert record["status"] == "completed"
    answer = await stack.http.post(
        f"/conversations/{record['task_id']}/messages", json={"input": text, "if_busy": "reject"}
    )
    assert answer.status_code == 202
    later = (await stack.wait(answer.json()["session_id"]))["task_id"]
    for workflow in (f"session/{record['task_id']}", f"session/{later}", f"conversation/{record['task_id']}"):
        history = await stack.client.get_workflow_handle(workflow).fetch_history()
        raw = b"".join(event.SerializeToString() for event in history.events)
        assert record["task_id"].encode() in raw  # the search covers raw payloads
        assert b"canary-in-the" not in raw


async def test_no_secret_leaves_its_place(stack: Stack) -> None:
    _, key = await keys.create(stack.pool, "default", "canary", list(Right))
    password = stack.database_url.partition("://")[2].partition("@")[0].partition(":")[2]
    secrets = [MODEL_KEY.encode(), key.encode(), password.encode()]

    headers = {"Authorization": f"Bearer {key}"}
    task = {"agent": "tester", "input": "[[fault:auth]]"}
    assert (await stack.http.post("/tasks", json=task, headers=headers)).status_code == 202
    assert (await stack.http.get("/tasks", headers={"Authorization": f"Bearer {key[:-1]}x"})).status_code == 401
    record = await stack.run(calls(("bash", {"command": "env; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'"})))
    assert record["status"] == "completed"

    assert await secrets_found(stack, secrets) == []

"""Methods of /mcp with keys that have one right each: they need the same right as the same request of /tasks."""

import json
from typing import Any

from store import keys
from store.keys import Right
from tests.support.stack import Stack, calls

NEEDED: dict[str, set[Right]] = {
    "tester": {Right.SUBMIT},
    "task_status": {Right.READ},
    "task_wait": {Right.READ},
    "task_list": {Right.READ},
    "task_answer": {Right.ANSWER, Right.APPROVE, Right.SUPERVISE},
    "task_message": {Right.SUBMIT, Right.SUPERVISE},
    "task_cancel": {Right.SUBMIT, Right.SUPERVISE},
    "resources/read": {Right.READ},
}


QUESTION = "canary-question"


async def test_key_without_read_sees_no_question_of_a_task(stack: Stack) -> None:
    """Whatever it may do with the task: each method that it may call answers without the question."""
    asker = {"name": "mcp-asker", "description": "Asks.", "prompt": "Ask.", "tools": ["ask_user"], "may_ask": True}
    assert (await stack.http.put("/agents/mcp-asker", json=asker)).is_success
    key, secret = await keys.create(stack.pool, "default", "mcp-asker", list(Right))
    headers = {"Authorization": f"Bearer {secret}", "Accept": "application/json, text/event-stream"}

    async def ask(name: str, **arguments: Any) -> str:
        params = {"name": name, "arguments": arguments}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        return (await stack.http.post("/mcp", json=message, headers=headers)).text

    for right in Right:
        await stack.pool.execute("UPDATE api_keys SET rights = $2 WHERE id = $1", key.id, list(Right))
        asking = calls(("ask_user", {"question": QUESTION}))
        found = await ask("mcp-asker", input=asking)
        [data] = [line.removeprefix("data:") for line in found.splitlines() if line.startswith("data:")]
        task_id = json.loads(data)["result"]["structuredContent"]["task_id"]
        await stack.seen(task_id, "input_required")
        assert QUESTION in await ask("task_status", task_id=task_id)
        await stack.pool.execute("UPDATE api_keys SET rights = $2 WHERE id = $1", key.id, [right])
        sees = right in (Right.READ, Right.ADMIN)
        for name, more in (
            ("task_status", {}),
            ("task_wait", {"seconds": 1}),
            ("task_list", {}),
            ("task_message", {"message": "hello", "mode": "steer"}),
            ("task_answer", {"answer": {"not": "an answer"}, "request_id": task_id}),
            ("task_cancel", {}),
        ):
            about = {} if name == "task_list" else {"task_id": task_id}
            text = await ask(name, **about, **more)
            allowed = right in NEEDED[name] or right is Right.ADMIN
            assert sees or QUESTION not in text, (right, name, text)
            assert not sees or not allowed or name not in ("task_status", "task_wait", "task_list") or QUESTION in text


async def test_each_method_needs_the_right_of_the_same_request(stack: Stack) -> None:
    key, secret = await keys.create(stack.pool, "default", "mcp-rights", list(Right))
    headers = {"Authorization": f"Bearer {secret}", "Accept": "application/json, text/event-stream"}

    async def ask(method: str, **params: Any) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = await stack.http.post("/mcp", json=message, headers=headers)
        lines = [line.removeprefix("data:") for line in answer.text.splitlines() if line.startswith("data:")]
        found: dict[str, Any] = json.loads(lines[-1] if lines else answer.text)  # task_wait answers with a stream
        return found

    started = await ask("tools/call", name="tester", arguments={"input": "[[script:say text=fine]]"})
    task_id = started["result"]["structuredContent"]["task_id"]
    await stack.wait(task_id)
    about = {"task_id": task_id}
    arguments: dict[str, dict[str, Any]] = {
        "tester": {"input": "[[script:say text=fine]]"},
        "task_list": {},
        "task_answer": {**about, "answer": "x"},
        "task_message": {**about, "message": "x", "mode": "steer"},
    }
    for right in Right:
        await stack.pool.execute("UPDATE api_keys SET rights = $2 WHERE id = $1", key.id, [right])
        listed = {tool["name"] for tool in (await ask("tools/list"))["result"]["tools"]}
        for name, needed in NEEDED.items():
            if name == "resources/read":
                answer = await ask(name, uri=f"errand://tasks/{task_id}/result")
            else:
                answer = await ask("tools/call", name=name, arguments=arguments.get(name, about))
            allowed = right in needed or right is Right.ADMIN
            assert ("the right" not in str(answer)) == allowed, (right, name, answer)
            if name.startswith("task_"):
                assert (name in listed) == allowed, (right, name)

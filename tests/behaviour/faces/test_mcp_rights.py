"""Methods of /mcp with keys that have one right each: they need the same right as the same request of /tasks."""

import json
from typing import Any

from store import keys
from store.keys import Right
from tests.support.stack import Stack

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

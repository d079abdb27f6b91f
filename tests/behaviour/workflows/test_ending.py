"""A session ends once, whatever arrives while its ending is written."""

import pytest

from domain.ids import new_id
from store import sessions
from tests.support.locks import ending
from tests.support.stack import Stack, eventually, of_type

pytestmark = pytest.mark.exactly_once
SAY = "[[script:say text=first]]"


async def test_a_message_that_arrives_while_a_session_ends_gets_one_answer(stack: Stack) -> None:
    marker = new_id()
    async with ending(stack, SAY) as task_id:
        answer = await stack.http.post(
            f"/tasks/{task_id}/steer", json={"message": f"{marker} [[script:say text=second]]"}
        )
        assert answer.status_code == 202, answer.text
    first = await stack.wait(task_id)
    outcome = await stack.session(task_id).result()
    assert (first["status"], first["reason"], outcome["status"]) == ("completed", "goal_reached", "completed")
    assert len(of_type(await stack.events(task_id), "task_completed", "task_failed", "task_cancelled")) == 1

    async def answered() -> list[str] | None:
        rows = await sessions.find(stack.pool, "default", conversation_id=task_id)
        return [row.id for row in rows] if len(rows) > 1 and all(row.status.terminal for row in rows) else None

    [second] = set(await eventually(answered, what="another session")) - {task_id}
    assert [(await stack.result(one))["output"] for one in (task_id, second)] == ["first", "second"]
    read = [one for one in (task_id, second) for node in await stack.nodes(one) if marker in str(node["body"])]
    assert read == [second]
    assert len(await stack.asked(task_id)) == 2
    assert len(of_type(await stack.events(second), "step_started")) == 1


async def test_a_stop_that_arrives_while_a_session_ends_changes_nothing(stack: Stack) -> None:
    async with ending(stack, SAY) as task_id:
        await stack.session(task_id).signal("stop", {"reason": "caller_cancel", "by": "somebody"})
    record = await stack.wait(task_id)
    outcome = await stack.session(task_id).result()
    assert (record["status"], outcome["status"]) == ("completed", "completed")
    assert (await stack.result(task_id))["output"] == "first"
    assert len(of_type(await stack.events(task_id), "task_completed", "task_cancelled")) == 1
    assert len(await stack.asked(task_id)) == 1

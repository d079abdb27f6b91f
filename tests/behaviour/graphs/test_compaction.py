"""Checkpoints of sessions with two sides: each side compacts its own view, in a fixed format, and nothing is lost."""

import json
from typing import Any

import pytest

from domain.messages import CHECKPOINT_CHILDREN, CHECKPOINT_HEADINGS
from tests.behaviour.graphs.duet import call, declared_tool, define, prompt
from tests.support.stack import Stack, of_type

APPROVE = declared_tool("approve", "summary")
STOP = {"session_stop": {"name": "approve", "message_property": "summary"}}
OTHER = "claude-opus-5-5"


@pytest.mark.parametrize(
    ("small", "fault", "step"),
    [
        ("small-1", "", 2),  # the window is four fifths full, so that no request is refused
        (OTHER, f"[[fault:413 at=3 model={OTHER}]]", 4),  # a request is refused as too long
    ],
    ids=["a share of the window", "refused"],
)
async def test_side_whose_context_is_full_writes_a_checkpoint_of_its_own_view(
    stack: Stack, small: str, fault: str, step: int
) -> None:
    looks = {"text": "Draft 1.", "calls": [call("bash", command="yes leaf | head -c 15000")] * 2}
    a = prompt("cp-a", looks, "Draft 2.", "Draft 3.", tools=("bash",), model=small)
    b = prompt("cp-b", "Better, please.", {"calls": [call("approve", summary="Good.")]}, tools=(APPROVE,))
    await define(stack, "cp_pair", a, b, side_b=STOP, max_session_turns=10)
    task_id = await stack.submit(f"Write it. {fault}", agent="cp_pair")
    record = await stack.wait(task_id)
    assert (record["status"], record["reason"]) == ("completed", "goal_reached"), record
    compacted = of_type(await stack.events(task_id), "context_compacted")
    assert compacted[0]["step"] == step  # with the small window the script starts again, and fills the window again
    rows = await stack.pool.fetch(
        "SELECT kind, side, body FROM messages WHERE session_id = $1 ORDER BY created_at, id", task_id
    )
    checkpoints = [row for row in rows if row["kind"] == "summary"]
    assert [row["side"] for row in checkpoints] == ["a"] * len(compacted)
    text = json.loads(checkpoints[0]["body"])["text"]
    assert all(f"## {heading}" in text for heading in (*CHECKPOINT_HEADINGS, CHECKPOINT_CHILDREN))
    # everything that the checkpoint replaces is still in the tree, and every call has its result there
    kinds = [row["kind"] for row in rows]
    assert kinds[:3] == ["user", "assistant", "tool_results"]
    requests = [one["body"] for one in await stack.asked(task_id)]
    own = [one for one in requests if one["model"] == small]
    others = [one for one in requests if one["model"] != small]
    after = next(text for one in own if "<checkpoint>" in (text := json.dumps(one["messages"])))
    assert "<checkpoint>" in after and "Draft 1." not in after and "tool_result" not in after
    # the other side's view did not change: it has the whole conversation
    assert "<checkpoint>" not in json.dumps(others)
    assert (
        _texts(others[-1])[-1] != [] and "Draft 1." in json.dumps(others[-1]) and "Draft 2." in json.dumps(others[-1])
    )


def _texts(request: dict[str, Any]) -> list[list[str]]:
    return [[block["text"] for block in one["content"] if block["type"] == "text"] for one in request["messages"]]

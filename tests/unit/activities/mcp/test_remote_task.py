"""Questions of a server to people: forms that can be shown are accepted, everything else is refused."""

from typing import Any

import pytest
from pydantic import ValidationError

from activities.mcp.connection import McpFailure
from activities.mcp.remote_task import CreatedTask, asking, poll_ms
from domain.sessions.session import LONGEST_POLL_MS, MOST_ROUNDS, SHORTEST_POLL_MS, RemoteCall
from tests.support.mcp_server import FORM


def asks(**params: Any) -> dict[str, Any]:
    return {"method": "elicitation/create", "params": {"message": "m", **params}}


def test_hidden_characters_are_removed_from_forms_and_refused_in_keys_and_states() -> None:
    hidden = "\x00\u202e\U000e0041"
    schema = {"type": "object", "properties": {f"x{hidden}": {"enum": [f"a{hidden}"], "title": f"t{hidden}"}}}
    [form] = asking(RemoteCall(), {"k": asks(message=f"m{hidden}", requestedSchema=schema)}).forms
    assert form.answer_schema == {"type": "object", "properties": {"x": {"enum": ["a"], "title": "t"}}}
    assert form.message == "m"
    for wrong in (RemoteCall(state="s\x00"), RemoteCall(state="s" * 70_000)):
        with pytest.raises(McpFailure, match="cannot be kept"):
            asking(wrong, {"k": FORM})
    with pytest.raises(ValidationError, match="control characters"):
        CreatedTask(result_type="task", task_id="t\x00")


@pytest.mark.parametrize(
    "requested",
    [
        {"k": {"method": "sampling/createMessage", "params": {"messages": []}}},
        {"k": {"method": "roots/list"}},
        {"k": asks(requestedSchema={"type": "string"})},
        {"k": asks(requestedSchema={"type": "object", "properties": {"x": {"pattern": "(?=a)"}}})},
        {"k": asks(requestedSchema={"type": "object", "description": "x" * 20_000})},
        {"k" * 1_000: FORM},
        {"k\x00": FORM},
        {str(number): FORM for number in range(11)},
    ],
    ids=["model", "disk", "no object", "pattern", "long", "key", "hidden", "many"],
)
def test_question_that_people_are_not_asked_is_refused(requested: dict[str, Any]) -> None:
    with pytest.raises(McpFailure):
        asking(RemoteCall(task_id="t"), requested)


def test_server_cannot_ask_or_be_asked_without_end() -> None:
    with pytest.raises(McpFailure, match="more questions"):
        asking(RemoteCall(task_id="t", round=MOST_ROUNDS), {"k": FORM})
    assert [poll_ms(one) for one in (None, -5, 0, 10**12)] == [*[SHORTEST_POLL_MS] * 3, LONGEST_POLL_MS]
    created = CreatedTask.model_validate({"resultType": "task", "taskId": "t", "pollIntervalMs": "soon"})
    assert created.task_id == "t"  # the id is kept although the rest is invalid
    strange: tuple[Any, ...] = (created.poll_interval_ms, [], float("nan"), float("inf"), 1500.5)
    assert [poll_ms(one) for one in strange] == [*[SHORTEST_POLL_MS] * 3, LONGEST_POLL_MS, 1500]

"""A session as the tasks extension and the tools show it, and an agent as a tool."""

from datetime import timedelta
from typing import Any

import pytest
from mcp_types import CallToolResult

from api.faces.mcp.tools import agent_tool, is_startable, task_of, task_tools
from api.faces.mcp.view import final_result, line_of, show_task, task_object, view_task
from domain.agents.definition import AgentDefinition, Mode
from domain.errors import Invalid
from domain.events import Recorded
from domain.sessions.session import Reason, Status
from store.files import File
from store.keys import Right
from tests.unit.api.faces.mcp.test_forms import APPROVAL, NOW
from tests.unit.api.faces.responses.test_project import ROW

FILE = File(
    id="f1",
    sha256="0" * 64,
    size=4,
    name="a.txt",
    media_type="text/plain",
    type="file",
    session_id="s",
    created_by="",
    created_at=NOW,
)


def seen(status: Status, requests: Any = (), asked: Any = (), **more: Any) -> dict[str, Any]:
    row = ROW.model_copy(update={"status": status, **more})
    return task_object(view_task(row, requests, [FILE], 2_000), asked).dump()


def test_status_of_a_task_that_has_not_ended() -> None:
    working = seen(Status.WORKING, progress="Reading.")
    assert (working["status"], working["statusMessage"], working["ttlMs"]) == ("working", "Reading.", None)
    assert working["pollIntervalMs"] == 2_000 and "result" not in working and "inputRequests" not in working
    assert seen(Status.SUBMITTED)["status"] == "working"
    asking = seen(Status.INPUT_REQUIRED, [APPROVAL], [APPROVAL])
    assert asking["status"] == "input_required" and asking["inputRequests"].keys() == {APPROVAL.id}
    # the client may not answer, or shows no forms: the request is in the inbox
    assert seen(Status.INPUT_REQUIRED, [APPROVAL])["status"] == "working"
    assert "waits for people: Which?" in seen(Status.INPUT_REQUIRED, [APPROVAL])["statusMessage"]


def test_status_of_a_task_that_has_ended() -> None:
    kept = {"keep_until": NOW + timedelta(seconds=5)}
    done = seen(Status.COMPLETED, output='{"a": 1}', typed=True, reason=Reason.GOAL_REACHED, **kept)
    inner = CallToolResult.model_validate(done["result"])
    assert (done["status"], done["ttlMs"], inner.is_error) == ("completed", 5_000, False)
    assert inner.structured_content["output"] == {"a": 1} and inner.content[1].type == "resource_link"
    failed = seen(Status.FAILED, error_type="model", error="overloaded", reason=Reason.ERROR)
    inner = CallToolResult.model_validate(failed["result"])
    assert (failed["status"], inner.is_error) == ("completed", True) and "model: overloaded" in str(inner.content)
    assert seen(Status.CANCELLED, reason=Reason.CALLER_CANCEL)["status"] == "cancelled"


def test_tools_show_a_failed_task_without_failing() -> None:
    row = ROW.model_copy(update={"status": Status.FAILED, "reason": Reason.TTL})
    task = view_task(row, [], [], 2_000)
    assert not show_task(task).is_error and final_result(task).is_error
    waits = view_task(ROW.model_copy(update={"status": Status.INPUT_REQUIRED}), [APPROVAL], [], 2_000)
    assert "call task_answer" in str(show_task(waits).content)


def agent(**more: Any) -> AgentDefinition:
    return AgentDefinition.model_validate({"name": "helper", "description": "Helps.", "prompt": "x", **more})


OWN = {"type": "object", "properties": {"max_cost_usd": {"type": "string"}, "path": {}}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("definition", "arguments", "body"),
    [
        (agent(), {"input": "x"}, {"input": "x"}),
        (agent(), {"input": "x", "max_cost_usd": 1}, {"input": "x", "config": {"max_cost_usd": 1}}),
        (agent(), {"input": "x", "files": ["f"]}, {"input": "x", "context": {"files": ["f"]}}),
        (agent(input_schema=OWN), {"path": "p", "files": []}, {"input": {"path": "p"}, "context": {"files": []}}),
        (agent(input_schema=OWN), {"max_cost_usd": "mine"}, {"input": {"max_cost_usd": "mine"}}),
    ],
)
def test_arguments_become_the_body_of_a_task(
    definition: AgentDefinition, arguments: dict[str, Any], body: dict[str, Any]
) -> None:
    assert task_of(definition, arguments) == {"agent": "helper", **body}


@pytest.mark.parametrize("name", ["colour", "agent", "config", "permissions"])
def test_fields_of_a_task_are_no_arguments_of_an_agents_tool(name: str) -> None:
    with pytest.raises(Invalid):
        task_of(agent(), {"input": "x", name: "other"})


def test_tools_of_agents_and_of_rights() -> None:
    assert agent_tool(agent(input_schema=OWN)).input_schema["properties"]["max_cost_usd"] == {"type": "string"}
    assert agent_tool(agent()).input_schema["required"] == ["input"]
    assert is_startable(agent()) and not is_startable(agent(mode=Mode.SUBAGENT))
    assert not is_startable(agent(name="task_list"))
    assert {tool.name for tool in task_tools(frozenset({Right.READ}))} == {"task_status", "task_wait", "task_list"}
    assert len(task_tools(frozenset({Right.ADMIN}))) == 6


def test_lines_of_progress() -> None:
    def line(type: str, **data: Any) -> str | None:
        return line_of(Recorded(session_id="s", seq=1, conv_seq=1, type=type, at=NOW, data=data))

    assert line("tool_called", tool="bash", args="ls") == "bash ls"
    assert line("progress", message="Reading.") == "Reading."
    assert line("usage_updated") is None

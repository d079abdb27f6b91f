import httpx2
import pytest

from domain.sessions.session import AgentRef
from store import agents, workers
from store.database import Pool
from tests.behaviour.api.conftest import end, problem, submitted

MARKDOWN = {"Content-Type": "text/markdown"}
GREETER = "---\nname: greeter\ndescription: Greets.\ntools: [write_file]\n---\n\nYou greet.\n"


async def test_put_makes_versions_and_running_tasks_keep_theirs(api: httpx2.AsyncClient) -> None:
    first = await api.put("/agents/greeter", content=GREETER, headers=MARKDOWN)
    assert first.status_code == 201 and first.json()["version"] == 1 and not first.json()["shipped"]
    task_id = await submitted(api, agent="greeter")
    same = await api.put("/agents/greeter", content=GREETER, headers=MARKDOWN)
    assert same.status_code == 200 and same.json()["version"] == 1
    definition = {"name": "greeter", "description": "Greets better.", "prompt": "Greet well.", "mode": "primary"}
    second = await api.put("/agents/greeter", json=definition)
    assert second.status_code == 200 and second.json()["version"] == 2
    assert (await api.get("/agents/greeter")).json()["description"] == "Greets better."
    assert (await api.get(f"/tasks/{task_id}")).json()["agent_version"] == 1


async def test_a_workers_own_tool_can_be_named(api: httpx2.AsyncClient, pool: Pool) -> None:
    definition = {"name": "caller", "description": "x", "prompt": "x", "tools": ["ring_bell"]}
    answer = await api.put("/agents/caller", json=definition)
    assert "read_file" in problem(answer, 422, "invalid-spec")["errors"][0]["allowed"]
    await workers.beat(pool, "own-tools", "none", ["ring_bell"])
    assert (await api.put("/agents/caller", json=definition)).status_code == 201
    await workers.leave(pool, "own-tools")


@pytest.mark.parametrize(
    ("text", "pointer"),
    [
        (GREETER.replace("greeter", "other"), "/name"),
        (GREETER.replace("write_file", "fly"), "/tools"),
        (GREETER.replace("Greets.", "Greets.\nsubagents: [nobody]"), "/subagents"),
        (GREETER.replace("Greets.", 'Greets.\ninput_schema: {"$ref": "https://example.com/x"}'), "/input_schema/$ref"),
        (GREETER.replace("Greets.", 'Greets.\ninput_schema: {"pattern": "(?=a)"}'), "/input_schema/pattern"),
    ],
)
async def test_invalid_definitions_are_refused(api: httpx2.AsyncClient, text: str, pointer: str) -> None:
    answer = await api.put("/agents/greeter-2", content=text.replace("greeter", "greeter-2"), headers=MARKDOWN)
    assert pointer in [entry["pointer"] for entry in problem(answer, 422, "invalid-spec")["errors"]]


async def test_removed_agent_cannot_be_started_and_its_versions_stay(api: httpx2.AsyncClient, pool: Pool) -> None:
    definition = {"name": "passing", "description": "x", "prompt": "x"}
    assert (await api.put("/agents/passing", json=definition)).json()["version"] == 1
    task_id = await submitted(api, {}, agent="passing")
    assert (await api.delete("/agents/passing")).status_code == 204
    problem(await api.delete("/agents/passing"), 404, "not-found")
    problem(await api.get("/agents/passing"), 404, "not-found")
    assert "passing" not in [one["name"] for one in (await api.get("/agents")).json()["items"]]
    problem(await api.post("/tasks", json={"agent": "passing", "input": "x"}), 422, "unknown-agent")
    ref = AgentRef(owner="default", name="passing", version=1)
    assert (await agents.load(pool, ref)).name == "passing"  # the task keeps its version
    assert (await api.get(f"/tasks/{task_id}")).json()["agent"] == "passing"
    assert (await api.get("/agents/passing?version=1")).json()["prompt"] == "x"
    again = await api.put("/agents/passing", json=definition)  # the same definition can be stored and started again
    assert (again.status_code, again.json()["version"]) == (201, 2)
    assert (await api.post("/tasks", json={"agent": "passing", "input": "x"})).status_code == 202


async def test_agent_that_is_shipped_or_needed_is_not_removed(api: httpx2.AsyncClient) -> None:
    shipped = problem(await api.delete("/agents/assistant"), 409, "conflict")
    assert "assistant.md" in shipped["detail"]
    own = {"description": "x", "prompt": "x"}
    await api.put("/agents/needed", json={**own, "name": "needed"})
    await api.put("/agents/needing", json={**own, "name": "needing", "subagents": [{"agent": "needed"}]})
    await api.put("/connectors/desk-of-needed", json={"kind": "webhook", "agent": "needed"})
    detail = problem(await api.delete("/agents/needed"), 409, "conflict")["detail"]
    assert "the agent needing" in detail and "the connector desk-of-needed" in detail
    assert (await api.delete("/agents/needing")).status_code == 204
    assert (await api.delete("/connectors/desk-of-needed")).status_code == 204
    assert (await api.delete("/agents/needed")).status_code == 204
    # the tenant's own agent takes precedence over the shipped one
    await api.put("/agents/code-reviewer", json={**own, "name": "code-reviewer"})
    assert (await api.delete("/agents/code-reviewer")).status_code == 204
    assert (await api.get("/agents/code-reviewer")).json()["shipped"] is True


async def test_definition_of_another_version_breaks_no_other_agent(
    api: httpx2.AsyncClient, pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    user = {"name": "uses-old", "description": "x", "prompt": "x", "subagents": ["old"]}
    old = {"name": "old", "description": "x", "prompt": "x"}
    assert (await api.put("/agents/old", json=old)).is_success
    task_id = await submitted(api, agent="old")
    await end(pool, task_id)
    assert (await api.put("/agents/uses-old", json=user)).is_success
    await pool.execute("UPDATE agent_versions SET definition = '{}' WHERE name = 'old'")
    names = [one["name"] for one in (await api.get("/agents")).json()["items"]]
    assert "uses-old" in names and "old" not in names
    await submitted(api, agent="uses-old")
    refused = problem(await api.post("/tasks", json={"agent": "old", "input": "x"}), 409, "conflict")
    assert "cannot read the definition of the agent old" in refused["detail"]
    variables = f"/threads/{task_id}/variables"
    for path in ("/agents/old", "/agents/old?version=1", f"/tasks/{task_id}/agent", variables):
        problem(await api.get(path), 409, "conflict")
    for path in ("/agents/old/refresh", f"/tasks/{task_id}/rerun"):
        problem(await api.post(path, json={}), 409, "conflict")
    problem(await api.put(variables, json={"variables": {"TOWN": "Rome"}}), 409, "conflict")
    problem(await api.delete("/agents/old"), 409, "conflict")
    assert [one.getMessage() for one in caplog.records if one.exc_info] == []
    assert (await api.put("/agents/old", json=old)).json()["version"] == 2
    await submitted(api, agent="old")

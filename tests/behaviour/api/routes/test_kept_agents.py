"""An API process keeps the agents that it used last; a task still gets the one that is current when it is accepted."""

from typing import Any

import httpx2

from domain.agents.definition import AgentDefinition
from domain.ids import new_id
from store import agents, sessions, tenant_variables
from store.database import Pool
from tests.behaviour.api.conftest import key_for, problem, submitted

INPUT = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}


async def define(pool: Pool, name: str, owner: str = "default", **fields: Any) -> int:
    """Another process defines the agent: this API is not asked."""
    definition = AgentDefinition(name=name, description="Kept.", prompt="Work.", **fields)
    return (await agents.put(pool, owner, definition)).version


async def version_of(pool: Pool, task_id: str, tenant: str = "default") -> tuple[str, int]:
    row = await sessions.get(pool, tenant, task_id)
    assert row is not None
    return row.agent_owner, row.agent_version


async def test_a_definition_that_another_process_changed_is_used_at_once(api: httpx2.AsyncClient, pool: Pool) -> None:
    name = f"kept-{new_id()[-10:]}"  # every tenant may read this in the log of changes, so no whole id
    for prompt in ("Work.", "Work well.", "Work."):
        version = await define(pool, name, max_tokens=1_000 + len(prompt))
        for _ in range(2):  # the second task may use what the first one has read
            assert await version_of(pool, await submitted(api, agent=name)) == ("default", version)
    await define(pool, name, owner="*", max_tokens=9_000)  # a newer shipped one counts too
    assert (await version_of(pool, await submitted(api, agent=name)))[0] == "*"
    await agents.remove(pool, "*", name)  # every tenant of the other tests would see it


async def test_input_is_judged_by_the_present_definition(api: httpx2.AsyncClient, pool: Pool) -> None:
    name = f"kept-{new_id()}"
    await define(pool, name)
    await submitted(api, agent=name, input="Any text.")
    await define(pool, name, input_schema=INPUT)
    task = {"agent": name, "input": "Any text."}
    problem(await api.post("/tasks", json=task), 422, "validation")
    await submitted(api, agent=name, input={"count": 1})
    version = await define(pool, name, max_tokens=2_000)
    assert await version_of(pool, await submitted(api, agent=name, input="Any text.")) == ("default", version)


async def test_an_agent_that_only_agents_start_is_refused_each_time(api: httpx2.AsyncClient, pool: Pool) -> None:
    name = f"kept-{new_id()}"
    await define(pool, name, mode="subagent")
    for _ in range(2):
        problem(await api.post("/tasks", json={"agent": name, "input": "Say hi."}), 422, "invalid-spec")


async def test_a_removed_agent_cannot_be_started(api: httpx2.AsyncClient, pool: Pool) -> None:
    name = f"kept-{new_id()}"
    await define(pool, name)
    headers = {"Idempotency-Key": new_id()}
    task = {"agent": name, "input": "Say hi."}
    first = await api.post("/tasks", json=task, headers=headers)
    assert await agents.remove(pool, "default", name)
    problem(await api.post("/tasks", json=task), 422, "unknown-agent")
    again = await api.post("/tasks", json=task, headers=headers)  # it was answered before
    assert (again.status_code, again.json()) == (202, first.json())
    version = await define(pool, name)
    assert await version_of(pool, await submitted(api, agent=name)) == ("default", version)


async def test_a_definition_of_a_restored_database_is_not_mistaken_for_the_kept_one(
    api: httpx2.AsyncClient, pool: Pool
) -> None:
    """A restored database may give the number of a version to another definition."""
    name = f"kept-{new_id()}"
    version = await define(pool, name)
    await submitted(api, agent=name, input="Any text.")
    await pool.execute("DELETE FROM agent_versions WHERE owner = 'default' AND name = $1", name)
    assert await define(pool, name, input_schema=INPUT) == version
    problem(await api.post("/tasks", json={"agent": name, "input": "Any text."}), 422, "validation")


async def test_a_repetition_gets_the_first_response(api: httpx2.AsyncClient, pool: Pool) -> None:
    name, headers = f"kept-{new_id()}", {"Idempotency-Key": new_id()}
    await define(pool, name)
    await submitted(api, agent=name)
    first = await api.post("/tasks", json={"agent": name, "input": "Say hi."}, headers=headers)
    again = await api.post("/tasks", json={"agent": name, "input": "Say hi."}, headers=headers)
    assert again.json() == first.json() and again.headers["idempotent-replayed"] == "true"
    other = await api.post("/tasks", json={"agent": name, "input": "Say more."}, headers=headers)
    problem(other, 422, "idempotency-key-reused")


async def test_a_variable_of_the_tenant_reaches_the_next_task(api: httpx2.AsyncClient, pool: Pool) -> None:
    tenant, name = f"t-{new_id()}", f"kept-{new_id()}"
    headers = await key_for(pool, tenant)
    await define(pool, name, tenant, variables={"PLACE": {"description": "Where."}}, may_ask=True)
    first = await sessions.get(pool, tenant, await submitted(api, headers, agent=name))
    await tenant_variables.put(pool, tenant, {"PLACE": "here"}, "test")
    second = await sessions.get(pool, tenant, await submitted(api, headers, agent=name))
    assert first is not None and first.missing == {"PLACE": "Where."}
    assert second is not None and second.missing == {}

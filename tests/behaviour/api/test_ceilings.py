"""The platform's limits for a whole conversation: a larger budget is refused, and a task without one gets them."""

from dataclasses import replace
from typing import Any

import httpx2

from domain.sessions.writes import NewBudget
from settings import Settings
from store.database import Pool
from tests.behaviour.api.conftest import serving, submitted

CEILINGS: dict[str, Any] = {"max_tree_tokens": 1_000_000, "max_tree_cost_usd": 5.0}


async def limits(client: httpx2.AsyncClient, task_id: str) -> dict[str, float] | None:
    tree = (await client.get(f"/tasks/{task_id}/budget")).json()["tree"]
    return {one["budget"]: one["limit"] for one in tree["budgets"]} if tree else None


async def test_a_conversation_never_has_more_than_the_platform_allows(
    settings: Settings, pool: Pool, api: httpx2.AsyncClient
) -> None:
    most = {"tokens": 1_000_000.0, "cost_usd": 5.0}
    async with serving(replace(settings, **CEILINGS)) as url, httpx2.AsyncClient(base_url=url, timeout=20) as bounded:
        assert await limits(bounded, await submitted(bounded)) == most
        less = await submitted(bounded, config={"tree": {"max_tokens": 50_000, "max_steps": 9}})
        assert await limits(bounded, less) == most | {"tokens": 50_000.0, "steps": 9.0}
        over = {"max_tokens": 1_000_001, "max_cost_usd": 6.0, "max_steps": 10**9}
        refused = await bounded.post("/tasks", json={"agent": "assistant", "input": "x", "config": {"tree": over}})
        assert refused.status_code == 422
        pointers = {one["pointer"]: one["allowed"] for one in refused.json()["errors"]}
        assert pointers == {"/config/tree/max_tokens": ["..1000000"], "/config/tree/max_cost_usd": ["..5.0"]}
        dear = {"agent": "assistant", "input": "x", "config": {"model": "nobody-knows-the-price"}}
        refused = await bounded.post("/tasks", json=dear)
        assert refused.json()["type"] == "urn:errand:problem:unpriced-model"
        # a later turn without a budget keeps the existing one
        ceilings = NewBudget(max_tokens=1_000_000, default=True).model_dump_json()
        await pool.fetchval("SELECT enter_budget('default', $1, $2::jsonb)", less, ceilings)
        assert await limits(bounded, less) == most | {"tokens": 50_000.0, "steps": 9.0}
    assert await limits(api, await submitted(api)) is None  # no limit if the operator set none


async def test_a_task_that_costs_money_has_a_cost_limit(settings: Settings, api: httpx2.AsyncClient) -> None:
    """The platform's default applies unless the task has a limit. Models without a price have one of tokens."""

    async def cost(client: httpx2.AsyncClient, **config: Any) -> float | None:
        shown = (await client.get(f"/tasks/{await submitted(client, config=config)}")).json()
        found: float | None = shown["limits"]["cost_usd"]
        return found

    assert await cost(api) == Settings.default_cost_usd == 5.0
    assert await cost(api, max_cost_usd=40) == 40
    dear: dict[str, Any] = {"agent": "assistant", "input": "x", "config": {"model": "nobody-knows-the-price"}}
    accepted = (await api.post("/tasks", json=dear)).json()
    limits = (await api.get(f"/tasks/{accepted['task_id']}")).json()["limits"]
    assert (limits["cost_usd"], limits["tokens"]) == (None, Settings.unpriced_tokens)
    assert accepted["notices"][0].endswith("no limit of dollars holds; the task may use 5,000,000 tokens.")
    dear["config"]["max_tokens"] = 7_000_000
    chosen = (await api.post("/tasks", json=dear)).json()
    assert (await api.get(f"/tasks/{chosen['task_id']}")).json()["limits"]["tokens"] == 7_000_000
    raised = replace(settings, default_cost_usd=30.0, max_cost_usd=20.0)
    async with serving(raised) as url, httpx2.AsyncClient(base_url=url, timeout=20) as other:
        assert await cost(other) == 20
    unlimited = replace(settings, default_cost_usd=0)
    async with serving(unlimited) as url, httpx2.AsyncClient(base_url=url, timeout=20) as other:
        assert await cost(other) is None

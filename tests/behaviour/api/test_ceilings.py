"""The platform's limits for a whole conversation: a larger budget is refused, and a task without one gets them."""

from dataclasses import replace
from typing import Any

import httpx2

from settings import Settings
from tests.behaviour.api.conftest import serving, submitted


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

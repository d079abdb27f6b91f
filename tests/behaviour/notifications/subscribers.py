"""Helpers to subscribe and to read deliveries."""

from datetime import timedelta
from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.testing import TimeSkipper

from domain.ids import new_id
from tests.support.stack import Stack, eventually


class Subscribers:
    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.made: list[str] = []

    async def subscribe(self, target: str, channel: str = "webhook", **more: Any) -> dict[str, Any]:
        body = {"name": f"s-{new_id()}", "channel": channel, "target": target, **more}
        answer = await self.stack.http.post("/subscriptions", json=body)
        assert answer.status_code == 201, answer.text
        made: dict[str, Any] = answer.json()
        self.made.append(made["id"])
        return made

    async def deliveries(self, subscription: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the deliveries, oldest first."""
        params = {"subscription_id": subscription["id"], "limit": "200"}
        answer = await self.stack.http.get("/deliveries", params=params)
        assert answer.status_code == 200, answer.text
        return list(reversed(answer.json()["items"]))

    async def delivery(self, subscription: dict[str, Any], **fields: Any) -> dict[str, Any]:
        """Return the only delivery of a subscription, once it has these fields."""

        async def look() -> dict[str, Any] | None:
            found = await self.deliveries(subscription)
            assert len(found) <= 1, found
            return next((one for one in found if all(one[key] == value for key, value in fields.items())), None)

        return await eventually(look, what=f"a delivery with {fields}")

    async def record(self, subscription: dict[str, Any]) -> dict[str, Any]:
        listed: list[dict[str, Any]] = (await self.stack.http.get("/subscriptions")).json()["items"]
        return next(one for one in listed if one["id"] == subscription["id"])

    def workflow(self, delivery: dict[str, Any]) -> "WorkflowHandle[Any, Any]":
        return self.stack.client.get_workflow_handle(f"delivery/{delivery['id']}")

    async def pass_time(self, handle: "WorkflowHandle[Any, Any]", **time: float) -> None:
        await TimeSkipper(self.stack.client).fast_forward(handle, timedelta(**time))

"""OpenAI's webhooks: the ends of background responses, verified by OpenAI's client."""

from typing import Any

import pytest
from openai import AsyncOpenAI, InvalidWebhookSignatureError

from tests.behaviour.faces.test_responses import LOOK_UP, ended, look_up, outputs
from tests.behaviour.notifications.receivers import http_receiver
from tests.behaviour.notifications.subscribers import Subscribers
from tests.support.stack import Stack, steps


async def test_background_responses_are_notified_once_each_and_verified_by_the_client(
    stack: Stack, client: AsyncOpenAI
) -> None:
    subscribers = Subscribers(stack)
    async with http_receiver() as receiver:
        made = await subscribers.subscribe(f"{receiver.url}/openai", "openai")
        ask: dict[str, Any] = {"model": "tester", "background": True}
        # two that send no webhook: a task of POST /tasks, and a response whose caller waits for it
        await stack.run("[[script:say text=fine]]")
        await client.responses.create(model="tester", input="[[script:say text=fine]]")
        done = await client.responses.create(**ask, input="[[script:say text=fine]]")
        failed = await client.responses.create(**ask, input="[[fault:auth times=always]]")
        limited = await client.responses.create(**ask, input="[[script:forever]]", max_output_tokens=3_000)
        stopped = await client.responses.create(**ask, input="[[script:forever]]")
        await client.responses.cancel(stopped.id)
        # the agent's own tool returns after both calls of the caller's tools; another client answers the last call
        own = ("bash", {"command": "sleep 1"})
        asks = await client.responses.create(
            **ask, tools=[LOOK_UP], input=steps([look_up(1), look_up(2), own], [look_up(3)])
        )
        asks = await ended(client, asks.id)
        second = await client.responses.create(
            **ask, tools=[LOOK_UP], previous_response_id=asks.id, input=outputs(asks)
        )
        [call] = outputs(await ended(client, second.id))
        body = {"response_to": call["call_id"].removeprefix("call_"), "input": {"result": "three"}}
        session_id = asks.id.removeprefix("resp_")
        assert (await stack.http.post(f"/tasks/{session_id}/input", json=body)).status_code == 202

        requests = await receiver.got("/openai", 7)
        events = [client.webhooks.unwrap(one.body, one.headers, secret=made["secret"]) for one in requests]
        assert sorted((event.type, getattr(event.data, "id", None) or "") for event in events) == sorted(
            [
                ("response.completed", done.id),
                ("response.failed", failed.id),
                ("response.incomplete", limited.id),
                ("response.cancelled", stopped.id),
                ("response.completed", asks.id),
                ("response.completed", second.id),
                ("response.completed", f"{asks.id}_3"),
            ]
        )
        for one, event in zip(requests, events, strict=True):
            assert event.id == f"evt_{one.headers['webhook-id']}" and event.object == "event"
            if event.type == "response.completed":
                ended_at = (await client.responses.retrieve(event.data.id)).completed_at
                assert ended_at is not None and event.created_at == int(ended_at)
        with pytest.raises(InvalidWebhookSignatureError):
            client.webhooks.unwrap(requests[0].body + b" ", requests[0].headers, secret=made["secret"])
        found = await subscribers.deliveries(made)
        assert len(found) == 7 and {one["status"] for one in found} == {"delivered"}
        assert (await stack.http.delete(f"/subscriptions/{made['id']}")).status_code == 204

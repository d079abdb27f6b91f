"""OpenAI's client, with strict validation, against the real stack."""

import asyncio
import json
from typing import Any

import httpx2
from openai import AsyncOpenAI, AsyncStream
from openai.types.responses import FunctionToolParam, Response, ResponseStreamEvent
from pydantic import BaseModel

from tests.behaviour.supervision.people import waiting
from tests.support.stack import Stack, calls, eventually, steps

LOOK_UP: FunctionToolParam = {
    "type": "function",
    "name": "look_up",
    "description": "Looks an order up.",
    "parameters": {"type": "object", "properties": {"order": {"type": "integer"}}, "required": ["order"]},
    "strict": False,
}


class Weather(BaseModel):
    city: str
    degrees: int


def look_up(order: int) -> tuple[str, dict[str, Any]]:
    return "look_up", {"order": order}


def session_of(response: Response) -> str:
    return response.id.split("_")[1]


async def ended(client: AsyncOpenAI, response_id: str) -> Response:
    async def look() -> Response | None:
        response = await client.responses.retrieve(response_id)
        return response if response.status not in ("queued", "in_progress") else None

    return await eventually(look, what=f"{response_id} ended")


async def bodies(stack: Stack, text: str) -> list[dict[str, Any]]:
    """Return the requests to the model that contain a text, oldest first."""
    async with httpx2.AsyncClient(base_url=stack.model_url, timeout=20) as http:
        found = (await http.get("/_requests", headers={"x-api-key": "k"}, params={"contains": text})).json()["requests"]
    return [one["body"] for one in found]


def outputs(response: Response) -> list[Any]:
    """Return the results of a response's function calls."""
    return [
        {"type": "function_call_output", "call_id": item.call_id, "output": f"{item.name}: {item.arguments}"}
        for item in response.output
        if item.type == "function_call"
    ]


async def test_waiting_streaming_and_background_show_the_same_response(stack: Stack, client: AsyncOpenAI) -> None:
    assert {"assistant", "thinker"} <= {model.id async for model in client.models.list()}
    assert (await client.models.retrieve("thinker")).owned_by == "default"
    bash = {"name": "bash", "input": {"command": "echo hi"}}
    text = f"[[script:tools json={json.dumps([bash])}]]"
    waited = await client.responses.create(model="thinker", input=text, metadata={"ticket": "7"})
    assert (waited.status, waited.metadata, waited.background) == ("completed", {"ticket": "7"}, False)
    assert [item.type for item in waited.output] == ["reasoning", "mcp_call", "reasoning", "message"]
    assert waited.output_text.startswith("bash returned: hi") and waited.usage and waited.usage.total_tokens > 0
    assert await client.responses.retrieve(waited.id) == waited

    # a further turn is streamed to its end, then read again from the middle and by another protocol
    think = '[[script:say thought="Hm, a sum." text="It is four."]]'
    seen: list[ResponseStreamEvent] = []
    async with client.responses.stream(model="thinker", input=think, previous_response_id=waited.id) as stream:
        async for event in stream:
            seen.append(event)  # the client's accumulated form of the same events
        final = await stream.get_final_response()
    assert final.previous_response_id == waited.id and final.conversation == waited.conversation
    assert [item.type for item in final.output] == ["reasoning", "message"] and final.output_text == "It is four."
    numbers = [event.sequence_number for event in seen]
    assert numbers[0] == 0 and numbers == sorted(set(numbers))
    again = await client.responses.retrieve(final.id, stream=True, starting_after=numbers[4])
    resumed = [event async for event in again]
    assert [event.type for event in resumed] == [event.type for event in seen[5:]]
    assert resumed[-1].type == "response.completed"
    assert resumed[-1].response == await client.responses.retrieve(final.id)
    record = await stack.record(session_of(final))
    assert (record["status"], record["conversation_id"]) == ("completed", session_of(waited))

    # another turn from the first response is a branch: it has nothing of the second response
    branch = await client.responses.create(model="thinker", input="Go on.", previous_response_id=waited.id)
    assert branch.conversation != waited.conversation and branch.status == "completed"
    by_conversation = await client.responses.create(
        model="thinker", input="Go on.", conversation={"id": f"conv_{session_of(waited)}"}, background=True
    )
    assert (await ended(client, by_conversation.id)).conversation == waited.conversation

    listed = [item async for item in client.responses.input_items.list(waited.id)]
    assert [item.content[0].text for item in listed if item.type == "message"] == [text]  # type: ignore[union-attr]
    foreign = await client.responses.retrieve(f"resp_{await stack.submit('[[script:say text=Hello]]')}")
    assert (await ended(client, foreign.id)).output_text == "Hello"  # a task of POST /tasks
    await client.responses.delete(waited.id)
    assert (await stack.record(session_of(waited)))["status"] == "completed"
    gone = await stack.http.get(f"/v1/responses/{waited.id}")
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "not_found")


async def test_a_stream_resumes_inside_a_text_whose_pieces_are_deleted(stack: Stack, client: AsyncOpenAI) -> None:
    seen: list[ResponseStreamEvent] = []
    async with client.responses.stream(model="assistant", input="[[script:say words=60 delay=0.05]]") as stream:
        seen += [event async for event in stream]
    pieces = [event for event in seen if event.type == "response.output_text.delta"]
    assert len(pieces) > 3
    response_id = next(event.response.id for event in seen if event.type == "response.completed")
    await stack.pool.execute(
        "DELETE FROM events WHERE session_id = $1 AND type = 'message_delta'", response_id.removeprefix("resp_")
    )
    again = await client.responses.retrieve(response_id, stream=True, starting_after=pieces[1].sequence_number)
    resumed = [event async for event in again]
    whole = [event.delta for event in resumed if event.type == "response.output_text.delta"]
    assert whole == ["".join(piece.delta for piece in pieces)]
    assert resumed[-1].type == "response.completed"
    assert resumed[-1].sequence_number >= seen[-1].sequence_number


async def test_instructions_structured_output_and_limits(stack: Stack, client: AsyncOpenAI) -> None:
    answer = '```json\n{"city": "Ulm", "degrees": 21}\n```'
    parsed = await client.responses.parse(
        model="tester",
        instructions=f"[[script:say text={json.dumps(answer)}]]",  # the offline model reads scripts in prompts too
        input=[{"role": "user", "content": "How warm is it?"}],
        text_format=Weather,
    )
    assert parsed.output_parsed == Weather(city="Ulm", degrees=21)
    assert parsed.text and parsed.text.format and parsed.text.format.type == "json_schema"
    result = await stack.result(session_of(parsed))
    assert result["output"] == {"city": "Ulm", "degrees": 21} or json.loads(result["output"]) == {
        "city": "Ulm",
        "degrees": 21,
    }
    plain = await client.responses.create(model="tester", input="Go on.", previous_response_id=parsed.id)
    assert plain.instructions is None and plain.text and plain.text.format and plain.text.format.type == "text"
    assert plain.output_text != answer  # neither setting is inherited
    limited = await client.responses.create(model="tester", input="[[script:forever]]", max_output_tokens=3_000)
    assert limited.status == "incomplete" and limited.incomplete_details
    assert limited.incomplete_details.reason == "max_output_tokens"
    running = await client.responses.create(model="tester", input="[[script:forever]]", background=True)
    assert running.status in ("queued", "in_progress")
    assert [(await client.responses.cancel(running.id)).status for _ in range(2)] == ["cancelled", "cancelled"]
    await stack.wait(session_of(running))
    assert (await ended(client, running.id)).status == "cancelled"


async def test_function_tools_are_answered_all_together_and_once(stack: Stack, client: AsyncOpenAI) -> None:
    text = steps([look_up(1), look_up(2), ("bash", {"command": "echo 3"})], [look_up(4)])
    ask: dict[str, Any] = {"model": "tester", "tools": [LOOK_UP], "background": True}
    first = await client.responses.create(**ask, input=text)
    first = await ended(client, first.id)
    assert first.status == "completed"
    assert sorted(item.type for item in first.output) == ["function_call", "function_call", "mcp_call"]
    record = await stack.record(session_of(first))
    assert (record["status"], len(record["deferred_tools"]["calls"])) == ("input_required", 2)

    # half of the results change nothing; all of them together start the next part of the same task
    half = await stack.http.post(
        "/v1/responses",
        json={"model": "tester", "previous_response_id": first.id, "input": outputs(first)[:1]},
    )
    assert (half.status_code, half.json()["error"]["code"]) == (400, "missing_call_output")
    second = await client.responses.create(
        **ask, previous_response_id=first.id, input=outputs(first), extra_headers={"Idempotency-Key": first.id}
    )
    assert (second.id, second.previous_response_id) == (f"{first.id}_2", first.id)
    repeated = await client.responses.create(
        **ask, previous_response_id=first.id, input=outputs(first), extra_headers={"Idempotency-Key": first.id}
    )
    assert repeated.id == second.id
    second = await ended(client, second.id)
    assert [item.type for item in second.output] == ["function_call"]
    late = await stack.http.post(
        "/v1/responses", json={"model": "tester", "previous_response_id": first.id, "input": outputs(first)}
    )
    assert (late.status_code, late.json()["error"]["code"]) == (400, "already_answered")

    # without previous_response_id, as for clients that keep the history themselves; the API dies while one waits
    history: list[Any] = [{"role": "user", "content": text}]
    for response in (first, second):
        history += [item.model_dump(exclude_none=True) for item in response.output] + outputs(response)
    third = await client.responses.create(model="tester", tools=[LOOK_UP], input=history, stream=True)
    assert isinstance(third, AsyncStream)
    types = [event.type async for event in third]
    assert types[:2] == ["response.created", "response.in_progress"] and types[-1] == "response.completed"
    last = await client.responses.retrieve(f"{first.id}_3")
    assert last.status == "completed" and last.output_text.count("look_up returned") == 3
    assert await client.responses.retrieve(first.id) == first  # an ended response never changes
    assert len({item["seq"] for item in await stack.events(session_of(first))}) > 10
    items = [item async for item in client.responses.input_items.list(second.id, order="asc", limit=1)]
    assert [item.type for item in items] == ["function_call_output", "function_call_output"]


async def test_waiting_client_gets_its_response_through_a_restart_and_only_one_task_runs(
    stack: Stack, client: AsyncOpenAI
) -> None:
    text = f"[[script:say words=40 delay=0.1]] {json.dumps('through a restart')}"
    waits = asyncio.create_task(client.responses.create(model="tester", input=text))

    async def running() -> bool:
        page = (await stack.http.get("/tasks", params={"text": "through a restart"})).json()["items"]
        return any(task["status"] == "working" for task in page)

    await eventually(running)
    await stack.kill("api")
    response = await waits
    assert response.status == "completed" and response.output_text.endswith("word40")
    page = (await stack.http.get("/tasks", params={"text": "through a restart"})).json()["items"]
    assert [task["task_id"] for task in page] == [session_of(response)]


async def test_approvals_stay_in_the_inbox_or_go_to_the_caller(stack: Stack, client: AsyncOpenAI) -> None:
    gated = {"name": "asks-first", "description": "x", "prompt": "x", "tools": ["bash"], "may_ask": True}
    rules = [{"permission": "bash", "action": "ask"}]
    assert (await stack.http.put("/agents/asks-first", json={**gated, "permissions": rules})).is_success
    text = calls(("bash", {"command": "echo approved"}))
    ask: dict[str, Any] = {"model": "asks-first", "input": text}
    ours = await client.responses.create(**ask, background=True)
    [request] = await waiting(stack, session_of(ours))
    assert (await client.responses.retrieve(ours.id)).status == "in_progress"
    body = {"response_to": request["id"], "input": {"approved": True}}
    assert (await stack.http.post(f"/tasks/{session_of(ours)}/input", json=body)).status_code == 202
    assert "approved" in (await ended(client, ours.id)).output_text

    # the client waits: between the reply and the request, one page of the log contains nothing to show
    theirs = await client.responses.create(**ask, extra_body={"errand": {"approvals": "caller"}})
    [item] = theirs.output
    assert item.type == "mcp_approval_request" and json.loads(item.arguments) == {"command": "echo approved"}
    denied = await client.responses.create(
        model="asks-first",
        previous_response_id=theirs.id,
        input=[{"type": "mcp_approval_response", "approval_request_id": item.id, "approve": False, "reason": "no"}],
    )
    assert denied.id == f"{theirs.id}_2" and "denied" in denied.output_text


async def test_settings_of_a_request_reach_the_model_and_others_change_nothing(
    stack: Stack, client: AsyncOpenAI
) -> None:
    neutral: dict[str, Any] = {
        "user": "u",
        "safety_identifier": "s",
        "prompt_cache_key": "k",
        "prompt_cache_retention": "24h",
        "include": ["reasoning.encrypted_content", "file_search_call.results"],
        "truncation": "auto",
    }
    text = "with settings " + calls(("bash", {"command": "echo 1"}))
    cool = await client.responses.create(
        model="thinker", input=text, temperature=0.2, parallel_tool_calls=False, tool_choice="required", **neutral
    )
    assert (cool.status, cool.temperature, cool.parallel_tool_calls, cool.tool_choice) == (
        "completed",
        0.2,
        False,
        "required",
    )
    assert await client.responses.retrieve(cool.id, include=["reasoning.encrypted_content"]) == cool
    first, second = await bodies(stack, "with settings")
    assert first["tool_choice"] == {"type": "any", "disable_parallel_tool_use": True}
    assert second["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}  # or it would never end
    assert [one["temperature"] for one in (first, second)] == [0.2, 0.2]
    assert not {"thinking", "top_p"} & first.keys()  # models refuse to think with another temperature
    hard = await client.responses.create(model="tester", input="Think a little.", reasoning={"effort": "low"})
    assert hard.reasoning and hard.reasoning.effort == "low"
    [sent] = await bodies(stack, "Think a little.")
    assert (sent["thinking"]["type"], sent["output_config"]) == ("adaptive", {"effort": "low"})


async def test_unstored_response_cannot_be_named_and_is_removed(stack: Stack, client: AsyncOpenAI) -> None:
    kept = await client.responses.create(model="tester", input="[[script:say text=kept]]")
    secret = "[[script:say text=passing-by]]"
    response = await client.responses.create(
        model="tester", input=secret, store=False, previous_response_id=kept.id, tools=[LOOK_UP]
    )
    assert (response.output_text, response.model_dump()["store"]) == ("passing-by", False)
    assert response.conversation != kept.conversation  # which is kept
    for path in ("", "/input_items", "?stream=true"):
        assert (await stack.http.get(f"/v1/responses/{response.id}{path}")).status_code == 404
    body = {"model": "tester", "input": "And?", "previous_response_id": response.id}
    after = await stack.http.post("/v1/responses", json=body)
    assert after.json()["error"]["code"] == "previous_response_not_found"

    # its calls can be answered all the same, by a client that keeps the history
    waits = await client.responses.create(model="tester", input=calls(look_up(1)), store=False, tools=[LOOK_UP])
    history: list[Any] = [{"role": "user", "content": "x"}]
    history += [item.model_dump(exclude_none=True) for item in waits.output] + outputs(waits)
    again = await client.responses.create(model="tester", input=history, store=False, tools=[LOOK_UP])
    assert again.id == f"{waits.id}_2" and "look_up returned" in again.output_text
    ids = [session_of(response), session_of(waits)]
    ends = "SELECT max(keep_until - ended_at) FROM sessions WHERE id = ANY($1)"
    assert (await stack.pool.fetchval(ends, ids)).total_seconds() < 70
    await stack.pool.execute("UPDATE sessions SET keep_until = now() WHERE id = ANY($1)", ids)

    async def removed() -> bool:
        await stack.sweep()
        count = "SELECT count(*) FROM sessions WHERE id = ANY($1) AND content_removed_at IS NOT NULL"
        return bool(await stack.pool.fetchval(count, ids) == 2)

    await eventually(removed, what="the content is removed")
    assert (await client.responses.retrieve(kept.id)).output_text == "kept"


async def test_reply_that_breaks_off_is_shown_once_by_clients_that_follow_items(
    stack: Stack, client: AsyncOpenAI
) -> None:
    whole = {"name": "whole", "description": "x", "prompt": "x", "whole_replies": True}
    assert (await stack.http.put("/agents/whole", json=whole)).is_success
    script = "[[script:say words=60]] [[fault:cut after=30]]"

    async def read(model: str, ask: str) -> tuple[str, dict[str, str], str]:
        printed, items = "", dict[str, str]()
        async with client.responses.stream(model=model, input=f"{ask} {script}") as stream:
            async for event in stream:
                if event.type == "response.output_text.delta":
                    printed += event.delta
                    items[event.item_id] = items.get(event.item_id, "") + event.delta
                elif event.type == "response.output_item.done" and getattr(event.item, "status", "") == "incomplete":
                    del items[event.item.id or ""]
            return printed, items, (await stream.get_final_response()).output_text

    printed, items, final = await read("tester", "piece by piece")
    assert final.split()[-1] == "word60" and list(items.values()) == [final]
    assert printed != final and printed.endswith(final)  # who prints every delta shows the broken text too
    printed, items, final = await read("whole", "whole-replies-only")
    assert printed == final and list(items.values()) == [final] and final.split()[-1] == "word60"
    assert len(await bodies(stack, "whole-replies-only")) == 2

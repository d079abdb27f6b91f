"""Requests in OpenAI's form, as the SDK's own types know it, and parsing of its stream."""

import asyncio
import json
from typing import Any

import httpx2
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from pydantic import TypeAdapter

from activities.model.openai import OpenAI, ReplyReader, read_error, read_usage, render_request
from domain.agents.models import Provider
from domain.messages import (
    ModelMessage,
    ModelResponse,
    ToolCallBlock,
    ToolDefinition,
    ToolResultBlock,
)
from domain.sessions.session import StopReason, Usage
from tests.support.web_server import response, web_server
from tests.unit.activities.model.test_anthropic import assistant, request, user

MESSAGE: TypeAdapter[Any] = TypeAdapter(ChatCompletionMessageParam)
TOOL = ToolDefinition("bash", "Runs a command.", {"type": "object"})


def check(sent: dict[str, Any]) -> None:
    """What the SDK's types say of the form: no other field, and every message of a known kind."""
    assert sent.keys() <= CompletionCreateParamsBase.__annotations__.keys()
    for message in sent["messages"]:
        read = MESSAGE.validate_python(message, strict=True)
        assert message.keys() - {"reasoning_content", "reasoning_details"} <= read.keys()


def test_an_answer_is_bound_to_its_schema_where_tools_do_not_forbid_it() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    bound = render_request(request(user(), output_schema=schema))
    check(bound)
    assert bound["response_format"]["json_schema"]["schema"] == schema
    assert "response_format" not in render_request(request(user(), output_schema=schema, tools=[TOOL]))
    assert "response_format" in render_request(
        request(user(), output_schema=schema, tools=[TOOL]), binds_with_tools=True
    )


def read(*chunks: dict[str, Any]) -> tuple[ModelResponse, ReplyReader]:
    turn = ModelResponse()
    reader = ReplyReader(turn, lambda _: None, lambda _: None)
    for chunk in chunks:
        reader.read(chunk)
    return turn, reader


def delta(finished: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": more, "finish_reason": finished}]}


def call(arguments: str, **more: Any) -> dict[str, Any]:
    names = {name: more.pop(name) for name in ("name",) if name in more}
    return {**more, "type": "function", "function": {**names, "arguments": arguments}}


def test_parallel_calls_are_put_together_however_they_are_numbered() -> None:
    numbered = [
        delta(tool_calls=[call("", index=0, id="a", name="bash"), call("", index=1, id="b", name="look")]),
        delta(tool_calls=[call('{"x"', index=0)]),
        delta(tool_calls=[call("{}", index=1), call(":1}", index=0)]),
    ]
    whole = [delta(tool_calls=[call('{"x":1}', index=0, id="a", name="bash"), call("", index=0, id="b", name="look")])]
    unnumbered = [
        delta(tool_calls=[call('{"x":1}', id="a", name="bash")]),
        delta(tool_calls=[call("", id="b", name="look")]),
    ]
    for chunks in (numbered, whole, unnumbered):
        _, reader = read(*chunks)
        made = [one for one in reader.content() if isinstance(one, ToolCallBlock)]
        assert [(one.name, one.arguments) for one in made] == [("bash", {"x": 1}), ("look", {})]
        assert made[0].id != made[1].id


@pytest.mark.parametrize(
    ("chunks", "replayed"),
    [
        ([delta(reasoning_content="h"), delta(reasoning_content="m")], {"reasoning_content": "hm"}),
        (
            [
                delta(reasoning_details=[{"type": "reasoning.text", "index": 0, "text": "h"}]),
                delta(reasoning_details=[{"type": "reasoning.text", "index": 0, "text": "m", "signature": "s"}]),
            ],
            {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "hm", "signature": "s"}]},
        ),
    ],
)
def test_reasoning_is_sent_back_within_its_turn_only(chunks: list[dict[str, Any]], replayed: dict[str, Any]) -> None:
    signed = call("{}", index=0, id="a", name="bash", extra_content={"google": {"thought_signature": "z"}})
    _, reader = read(*chunks, delta(tool_calls=[signed]))
    reply = ModelMessage("assistant", [*reader.content()])
    result = user(ToolResultBlock(call_id="a", text="x", failed=False))
    during = render_request(request(user(), reply, result))
    check({**during, "messages": [message for message in during["messages"] if "tool_calls" not in message]})
    sent = during["messages"][2]
    assert {name: sent[name] for name in replayed} == replayed
    assert sent["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "z"}}
    later = render_request(request(user(), reply, result, assistant(), user()))
    assert later["messages"][2].keys() == {"role", "content", "tool_calls"}


@pytest.mark.parametrize(
    ("reported", "usage"),
    [
        (
            {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 8}},
            Usage(llm_calls=1, input_tokens=2, output_tokens=2, cache_read_tokens=8),
        ),
        # reasoning that is not part of the reply's tokens
        (
            {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 42},
            Usage(llm_calls=1, input_tokens=10, output_tokens=32),
        ),
        ({"prompt_tokens": None, "prompt_tokens_details": None}, Usage(llm_calls=1)),
    ],
)
def test_usage_counts_each_token_once(reported: dict[str, Any], usage: Usage) -> None:
    assert read_usage(reported) == usage


def test_reasons_to_stop() -> None:
    reasons = {
        finished: read(delta(finished, content="x"))[1].stop_reason
        for finished in ("stop", "tool_calls", "length", "content_filter", "of_another_year")
    }
    assert list(reasons.values()) == [
        *(StopReason.ANSWERED, StopReason.TOOL_CALLS, StopReason.CUT_OFF, StopReason.DECLINED, StopReason.ANSWERED)
    ]
    assert read(delta("stop", refusal="No."))[1].stop_reason is StopReason.DECLINED


REQUEST = httpx2.Request("POST", "https://api.example/v1/chat/completions")


@pytest.mark.parametrize(
    ("status", "body", "kind", "too_long"),
    [
        (429, {"message": "Rate limit reached", "code": "rate_limit_exceeded"}, "rate_limit_error", False),
        (429, {"message": "You exceeded your quota", "code": "insufficient_quota"}, "billing_error", False),
        (402, {"message": "Insufficient Balance"}, "billing_error", False),
        (400, {"message": "the request exceeds the available context size"}, "invalid_request_error", True),
        (400, {"message": "blocked", "code": "content_filter"}, "content_refused", False),
        (400, {"message": "Unsupported parameter: 'x'", "code": "unsupported_parameter"}, "unknown_parameter", False),
        (400, {"message": "Unrecognized request argument supplied: x"}, "unknown_parameter", False),
        (404, {"message": "No endpoints found that support tool use"}, "tools_unsupported", False),
        (404, {"message": "model 'x' not found", "code": None}, "not_found_error", False),
        (404, None, "wrong_form", False),
        (500, "oops", "api_error", False),
    ],
)
def test_errors_of_many_endpoints_have_few_kinds(status: int, body: Any, kind: str, too_long: bool) -> None:
    response = httpx2.Response(status, request=REQUEST)
    reported = read_error(openai.APIStatusError("no", response=response, body=body))
    assert reported is not None and (reported.kind, reported.too_long) == (kind, too_long)


async def test_calls_at_the_same_time_learn_the_name_of_a_parameter() -> None:
    refused = {"error": {"message": "Unsupported parameter: 'max_tokens'", "param": "max_tokens"}}
    chunk = {"choices": [{"delta": {"content": "yes"}, "finish_reason": "stop"}]}
    both = asyncio.Barrier(2)

    async def answer(_: str, body: bytes) -> bytes:
        if b'"max_tokens"' not in body:
            said = f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode()
            return response(said, "200 OK", "Content-Type: text/event-stream")
        await both.wait()
        return response(json.dumps(refused).encode(), "400 Bad Request", "Content-Type: application/json")

    async with asyncio.timeout(10), web_server(answer) as address:
        vendor = OpenAI("own", Provider(kind="openai", base_url=f"http://{address}/v1"))
        turns = [ModelResponse(), ModelResponse()]
        await asyncio.gather(*(vendor.ask(request(user()), turn, print, print) for turn in turns))
        assert [turn.answer() for turn in turns] == ["yes", "yes"]
        await vendor.close()

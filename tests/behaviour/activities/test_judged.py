"""A conversation with an endpoint that is not the stand-in: it knows the forms from the SDKs' types and the vendors'
own rules, refuses what they would refuse, and answers with what others send."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from openai.types.chat import ChatCompletionMessageParam
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from pydantic import TypeAdapter

from tests.support.stack import Stack, of_type
from tests.support.web_server import response, web_server

CLAUDE: TypeAdapter[Any] = TypeAdapter(MessageCreateParamsStreaming)
MESSAGE: TypeAdapter[Any] = TypeAdapter(ChatCompletionMessageParam)
FIELDS = CompletionCreateParamsStreaming.__annotations__.keys() | {"messages", "model"}
CALLED = [("list_files", {"path": "."}), ("functions.write_file", {"path": "a.txt", "content": "x"})]


def check_claude(sent: dict[str, Any]) -> None:
    assert sent.keys() <= CLAUDE.validate_python(sent).keys()
    seen: set[str] = set()
    waiting: list[str] = []
    for message in sent["messages"]:
        blocks = message["content"]
        answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert answered == waiting, "each call has its result in the next message"
        calls = [block for block in blocks if block["type"] == "tool_use"]
        waiting = [call["id"] for call in calls]
        assert not seen & {*waiting} and len({*waiting}) == len(waiting), "ids of calls are unique"
        seen |= {*waiting}
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", call["name"]) for call in calls)
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]+", call["id"]) for call in calls)
        assert all(block.get("signature") == "of claude" for block in blocks if block["type"] == "thinking")
    assert not waiting


def check_gpt(sent: dict[str, Any]) -> None:
    assert sent.keys() <= FIELDS
    waiting: list[str] = []
    for message in sent["messages"]:
        read = MESSAGE.validate_python(message, strict=True)
        assert message.keys() - {"reasoning_content"} <= read.keys()
        if message["role"] == "tool":
            waiting.remove(message["tool_call_id"])
            continue
        assert not waiting, "each call has its result before the next message"
        calls = message.get("tool_calls") or []
        waiting = [call["id"] for call in calls]
        assert all(re.fullmatch(r"[a-zA-Z0-9]{9}", one) for one in waiting), "as Mistral wants them"
        assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", call["function"]["name"]) for call in calls)
        assert message.get("reasoning_content") in (None, "hm")
    assert not waiting


class Judge:
    def __init__(self) -> None:
        self.refused: list[str] = []
        self.asked: list[str] = []

    async def answer(self, head: str, body: bytes) -> bytes:
        status, kind, said = "404 No", "application/json", '{"error": {"message": "no list"}}'
        if body:
            sent, claude = json.loads(body), "/messages" in head.split()[1]
            replies = sum(message["role"] == "assistant" for message in sent["messages"])
            self.asked.append("claude" if claude else "gpt")
            try:
                (check_claude if claude else check_gpt)(sent)
                away = sent["model"] == "away" and replies == 1
                status, said = ("529 Busy", '{"error": {"message": "busy"}}') if away else ("200 OK", "")
                kind, said = (
                    (kind, said) if away else ("text/event-stream", (claude_says if claude else gpt_says)(replies))
                )
            except (AssertionError, ValueError) as error:
                self.refused.append(f"{error!r}: {sent['messages'][1:]}")
                status, said = "400 No", json.dumps({"error": {"message": "refused", "type": "invalid_request_error"}})
        return response(said.encode(), status, f"Content-Type: {kind}", "Retry-After: 0")


def gpt_says(replies: int) -> str:
    """As small servers send it: the same ids in every reply, no usage, no end of the stream."""
    if replies >= 3:
        pieces: list[Any] = [{"delta": {"content": "All "}}, {"delta": {"content": "done."}, "finish_reason": "stop"}]
    else:
        calls = [
            {"index": n, "id": f"call_{n}", "function": {"name": name, "arguments": json.dumps(given)}}
            for n, (name, given) in enumerate(CALLED)
        ]
        pieces = [{"delta": {"reasoning_content": "hm"}}, {"delta": {"tool_calls": calls}, "finish_reason": "stop"}]
    return "".join(f"data: {json.dumps({'choices': [{'index': 0, **one}]})}\n\n" for one in pieces)


def claude_says(replies: int) -> str:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": "All done."}]
    if replies < 3:
        thought = {"type": "thinking", "thinking": "so", "signature": "of claude"}
        blocks = [
            thought,
            *({"type": "tool_use", "id": "toolu_1", "name": name, "input": given} for name, given in CALLED),
        ]
    sent: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 1}}}
    ]
    sent += [{"type": "content_block_start", "index": n, "content_block": one} for n, one in enumerate(blocks)]
    reason = "tool_use" if replies < 3 else "end_turn"
    sent.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 9}})
    return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in sent)


@pytest_asyncio.fixture
async def judge(stack: Stack) -> AsyncIterator[Judge]:
    address = json.loads(stack.settings.providers or "{}")["judged-gpt"]["base_url"]
    one = Judge()
    async with web_server(one.answer, int(re.findall(r":(\d+)", address)[0])):
        yield one


@pytest.mark.parametrize(
    ("first", "second", "asked"),
    [
        ("judged-gpt/away", "judged-claude/here", ["gpt", "gpt", "gpt", "gpt", "claude", "claude", "claude"]),
        ("judged-claude/away", "judged-gpt/here", ["claude", "claude", "claude", "claude", "gpt", "gpt", "gpt"]),
    ],
)
async def test_every_request_of_a_conversation_is_one_that_the_vendor_takes(
    stack: Stack, judge: Judge, first: str, second: str, asked: list[str]
) -> None:
    """Three replies with two calls each, then an answer; another vendor takes over after the first."""
    definition = {
        "name": "judged",
        "description": "Is judged.",
        "model": first,
        "fallback_models": [second],
        "tools": ["list_files", "write_file"],
        "prompt": "Try.",
    }
    assert (await stack.http.put("/agents/judged", json=definition)).is_success
    record = await stack.run("Look, and write.", "judged")
    assert judge.refused == [] and record["status"] == "completed", record["error"]
    assert judge.asked == asked
    events = await stack.events(record["task_id"])
    assert [one["state"] for one in of_type(events, "tool_returned")].count("ok") == 3  # no tool has the odd name
    assert (await stack.result(record["task_id"]))["output"] == "All done."
    assert all(one["call"]["input_tokens"] > 0 for one in of_type(events, "usage_updated"))

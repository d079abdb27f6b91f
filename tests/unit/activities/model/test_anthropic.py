"""Requests in the vendor's form, and parsing of its stream."""

from dataclasses import replace
from typing import Any

import pytest

from activities.model.anthropic import read_block, render_request
from domain.messages import (
    AnyBlock,
    ModelMessage,
    ModelRequest,
    ModelSettings,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolDefinition,
    ToolResultBlock,
)
from offline.checks import check
from offline.wire import sign

CACHE_POINT = {"cache_control": {"type": "ephemeral"}}
CALL = ToolCallBlock(id="c", name="bash", arguments={"command": "ls", "b": None, "a": [1.0, 10**30]})
RESULT = ToolResultBlock(call_id="c", text="", failed=True)


def request(*messages: ModelMessage, **more: Any) -> ModelRequest:
    return ModelRequest(model="m", max_tokens=100, system="Be brief.", messages=list(messages), **more)


def user(*blocks: AnyBlock) -> ModelMessage:
    return ModelMessage("user", list(blocks) or [TextBlock(text="x")])


def assistant(*blocks: AnyBlock) -> ModelMessage:
    return ModelMessage("assistant", list(blocks) or [TextBlock(text="y")])


def test_every_block_has_the_form_of_the_api() -> None:
    thoughts = [ThinkingBlock(text="hm", proof=sign("hm")), ThinkingBlock(proof="sealed", hidden=True)]
    sent = render_request(request(user(), assistant(*thoughts, CALL), user(RESULT), cached=False))
    check(sent)
    assert [message["content"] for message in sent["messages"][1:]] == [
        [
            {"type": "thinking", "thinking": "hm", "signature": sign("hm")},
            {"type": "redacted_thinking", "data": "sealed"},
            {"type": "tool_use", "id": "c", "name": "bash", "input": CALL.arguments},
        ],
        [{"type": "tool_result", "tool_use_id": "c", "content": "(no output)", "is_error": True}],
    ]


def test_cache_points_close_the_last_two_user_messages_and_the_system_prompt() -> None:
    sent = render_request(request(user(), assistant(), user(), assistant(), user(), notes=["For now."]))
    check(sent)
    marked = [block for message in sent["messages"] for block in message["content"] if "cache_control" in block]
    assert [message["content"][0].keys() >= CACHE_POINT.keys() for message in sent["messages"]] == [
        *(False, False, True, False, True)
    ]
    assert len(marked) == 2
    assert sent["system"] == [{"type": "text", "text": "Be brief.", **CACHE_POINT}]


def test_tools_and_thinking_are_requested_only_where_enabled() -> None:
    bare = render_request(request(user()))
    assert not {"tools", "tool_choice", "thinking"} & bare.keys() and bare["max_tokens"] == 100
    tool = ToolDefinition("bash", "Runs a command.", {"type": "object"})
    sent = render_request(
        request(user(), tools=[tool], settings=ModelSettings(tool_choice="bash"), thinking_tokens=2_000), budgeted=True
    )
    assert sent["tools"] == [{"name": "bash", "description": "Runs a command.", "input_schema": {"type": "object"}}]
    assert sent["tool_choice"] == {"type": "tool", "name": "bash"}
    assert sent["thinking"] == {"type": "enabled", "budget_tokens": 2_000} and sent["max_tokens"] == 2_100
    assert render_request(request(user(), thinking_tokens=9))["thinking"] == {
        "type": "adaptive",
        "display": "summarized",
    }


@pytest.mark.parametrize(
    ("received", "read"),
    [
        ({"type": "text", "text": "a\0b"}, TextBlock(text="ab")),
        (
            {"type": "tool_use", "id": "c", "name": "n", "input": {}, "json": '{"a": "\\ud83d\\ude00"}'},
            ToolCallBlock(id="c", name="n", arguments={"a": "\U0001f600"}),
        ),
        (
            {"type": "tool_use", "id": "c", "name": "n", "input": {"b": 1}, "json": ""},
            ToolCallBlock(id="c", name="n", arguments={"b": 1}),
        ),
        ({"type": "of_another_year"}, None),
    ],
)
def test_finished_blocks_of_a_stream_are_read(received: dict[str, Any], read: AnyBlock | None) -> None:
    found = read_block(received)
    if isinstance(found, ToolCallBlock) and isinstance(read, ToolCallBlock):  # whose id is ours
        found = found.model_copy(update={"id": read.id})
    assert found == read


@pytest.mark.parametrize("json", ["[]", '{"a": NaN}', '{"a": "\\ud800"}'])
def test_arguments_that_could_not_be_stored_make_a_malformed_reply(json: str) -> None:
    with pytest.raises(ValueError):
        read_block({"type": "tool_use", "id": "c", "name": "n", "input": {}, "json": json})


@pytest.mark.parametrize("block", [{}, {"type": "tool_use", "json": ""}])
def test_block_without_its_fields_makes_a_malformed_reply(block: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="malformed"):
        read_block(block)


@pytest.mark.parametrize(
    ("settings", "usual", "sent"),
    [
        ({}, 1_024, {"thinking": {"type": "enabled", "budget_tokens": 1_024}}),
        ({"temperature": 0.0}, 1_024, {"temperature": 0.0}),
        ({"effort": "high"}, 0, {"thinking": {"type": "enabled", "budget_tokens": 16_384}}),
        ({"tool_choice": "required"}, 1_024, {"tool_choice": {"type": "any"}}),
        ({"tool_choice": "bash"}, 0, {"tool_choice": {"type": "tool", "name": "bash"}}),
        ({"tool_choice": "gone"}, 0, {}),
        ({"parallel_tool_calls": False}, 0, {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}),
    ],
)
def test_settings_of_a_task_as_the_api_takes_them(settings: dict[str, Any], usual: int, sent: dict[str, Any]) -> None:
    given = ModelSettings(**settings)
    tool = ToolDefinition("bash", "Runs a command.", {"type": "object"})
    asked = request(
        user(), tools=[tool], settings=given.for_reply(1, ["bash"]), thinking_tokens=given.thinking_tokens(usual)
    )
    names = ("temperature", "top_p", "thinking", "tool_choice", "output_config")
    assert {name: value for name, value in render_request(asked, budgeted=True).items() if name in names} == sent
    later = render_request(replace(asked, settings=given.for_reply(2, ["bash"])), budgeted=True).get("tool_choice", {})
    assert later.get("type") in (None, "auto", "none")

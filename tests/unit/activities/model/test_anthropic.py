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
    ToolDefinition,
)
from offline.checks import check

CACHE_POINT = {"cache_control": {"type": "ephemeral"}}


def request(*messages: ModelMessage, **more: Any) -> ModelRequest:
    return ModelRequest(model="m", max_tokens=100, system="Be brief.", messages=list(messages), **more)


def user(*blocks: AnyBlock) -> ModelMessage:
    return ModelMessage("user", list(blocks) or [TextBlock(text="x")])


def assistant(*blocks: AnyBlock) -> ModelMessage:
    return ModelMessage("assistant", list(blocks) or [TextBlock(text="y")])


def test_cache_points_close_the_last_two_user_messages_and_the_system_prompt() -> None:
    sent = render_request(request(user(), assistant(), user(), assistant(), user(), notes=["For now."]))
    check(sent)
    marked = [block for message in sent["messages"] for block in message["content"] if "cache_control" in block]
    assert [message["content"][0].keys() >= CACHE_POINT.keys() for message in sent["messages"]] == [
        *(False, False, True, False, True)
    ]
    assert len(marked) == 2
    assert sent["system"] == [{"type": "text", "text": "Be brief.", **CACHE_POINT}]


@pytest.mark.parametrize("json", ["[]", '{"a": NaN}', '{"a": "\\ud800"}'])
def test_arguments_that_could_not_be_stored_make_a_malformed_reply(json: str) -> None:
    with pytest.raises(ValueError):
        read_block({"type": "tool_use", "id": "c", "name": "n", "input": {}, "json": json})


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

"""Agents with two AI sides for the tests; the replies of each side are scripted in its prompt."""

import json
from typing import Any

from tests.support.stack import Stack

Reply = str | dict[str, Any]


def declared_tool(name: str, *properties: str) -> dict[str, Any]:
    """A declared tool whose arguments are all text, except `files`, a list of paths."""
    fields: dict[str, Any] = {one: {"type": "string"} for one in properties if one != "files"}
    if "files" in properties:
        fields["files"] = {"type": "array", "items": {"type": "string"}}
    schema = {"type": "object", "properties": fields, "required": list(properties[:1])}
    return {"name": name, "description": f"Calls {name}.", "input_schema": schema}


def call(name: str, **given: Any) -> dict[str, Any]:
    return {"name": name, "input": given}


def turns(*replies: Reply, delay: float = 0) -> str:
    listed = [{"text": reply} if isinstance(reply, str) else reply for reply in replies]
    return f"You are tested. [[script:turns json={json.dumps(listed)} delay={delay}]]"


def prompt(name: str, *replies: Reply, tools: tuple[Any, ...] = (), delay: float = 0, **more: Any) -> dict[str, Any]:
    """A prompt with scripted replies; tools that are objects are declared tools."""
    return {
        "name": name,
        "text": turns(*replies, delay=delay),
        "tools": [tool for tool in tools if isinstance(tool, str)],
        "declared_tools": [tool for tool in tools if not isinstance(tool, str)],
        **more,
    }


async def define(
    stack: Stack,
    name: str,
    a: dict[str, Any],
    b: dict[str, Any],
    *,
    side_a: dict[str, Any] | None = None,
    side_b: dict[str, Any] | None = None,
    **more: Any,
) -> str:
    """Define a dual agent from the prompts of its sides; return its name."""
    definition = {
        "name": name,
        "description": "Two sides.",
        "side_a": {"prompt": a["name"], "label": "Worker", **(side_a or {})},
        "side_b": {"prompt": b["name"], "label": "Reviewer", **(side_b or {})},
        "prompts": {a["name"]: a, b["name"]: b},
        **more,
    }
    answer = await stack.http.put(f"/agents/{name}", json=definition)
    assert answer.is_success, answer.text
    return name

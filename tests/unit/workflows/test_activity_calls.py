"""The activities that workflows call are those that the worker registers, with the same argument and result types."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from temporalio.activity import _Definition
from temporalio.client import Client

import activities
import worker
from activities.events import EventWriter
from activities.sandbox import Refusing
from activities.tools.registry import TOOLS
from settings import ROOT, Settings
from store.database import Pool
from workflows import activity_calls as steps
from workflows.activity_calls import TypedActivity

CALLS = {"start_activity", "execute_activity"}


@pytest.fixture
async def registered(tmp_path: Path) -> dict[str, _Definition]:
    no_pool = cast(Pool, None)  # the activities only store it; any use would fail
    settings = Settings(agents_dir=tmp_path, anthropic_api_key="x", workspaces_dir=tmp_path)
    client = await Client.connect("127.0.0.1:1", lazy=True)
    services = worker.build_services(settings, no_pool, client, EventWriter(no_pool), Refusing("none", ""))
    definitions = [_Definition.must_from_callable(function) for function in activities.build(services)]
    named = {definition.name or "": definition for definition in definitions}
    assert len(named) == len(definitions)
    return named


def expected() -> Iterator[tuple[str, type, type]]:
    """Each activity with its types; the one for tools covers refused, recorded, declared and MCP calls too."""
    for step in (value for value in vars(steps).values() if isinstance(value, TypedActivity)):
        own = [name for name, tool in TOOLS.items() if tool.activity is None]
        names = (
            [step.name]
            if step is not steps.RUN_TOOL
            else [f"tool.{tool}" for tool in (*own, "refuse", "recorded", "declared", "mcp")]
        )
        yield from ((name, step.takes, step.gives) for name in names)


def test_every_step_is_registered_with_the_same_types(registered: dict[str, _Definition]) -> None:
    for name, takes, gives in expected():
        definition = registered[name]
        assert (definition.arg_types, definition.ret_type) == ([takes], gives), name


def test_every_registered_activity_is_called_by_a_workflow(registered: dict[str, _Definition]) -> None:
    called = {name for name, _, _ in expected()} | {name for _, name in literal_calls()}
    assert set(registered) == called


def literal_calls() -> Iterator[tuple[str, str]]:
    """Activities called by a literal name outside activity_calls.py."""
    for file in sorted((ROOT / "workflows").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CALLS):
                continue
            if file.name not in ("typed_activity.py", "activity_calls.py"):
                assert isinstance(node.args[0], ast.Constant), f"{file.name}:{node.lineno}: use activity_calls.py"
                yield file.name, str(node.args[0].value)


def test_only_activity_calls_names_activities() -> None:
    assert list(literal_calls()) == []

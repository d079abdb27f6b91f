"""The activities that workflows call are those that the worker registers, with the same argument and result types."""

import ast
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from temporalio import workflow
from temporalio.activity import _Definition
from temporalio.client import Client

import activities
import worker
from activities.events import EventWriter
from activities.sandbox import Refusing
from activities.tools.registry import TOOLS
from activities.tools.run_tool import GRACE_SECONDS, TURN_PATIENCE_S
from activities.workspaces import WorkspaceCaps
from domain.sessions.session import AgentRef, Effect, SessionRef, ToolCall, ToolRequest
from settings import ROOT, Settings
from store.database import COMMIT_PATIENCE, Pool
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


def test_attempt_has_time_for_what_is_around_its_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {}
    monkeypatch.setattr(workflow, "start_activity", lambda *_, **given: options.update(given))
    tool = ToolCall(index=0, name="bash", activity="tool.bash", timeout_s=600, effect=Effect.ONCE)
    request = ToolRequest(
        ref=SessionRef(tenant="default", session_id="s", conversation_id="s"),
        agent=AgentRef(owner="default", name="a", version=1),
        step=1,
        node="n",
        index=0,
        name="bash",
        effect=Effect.ONCE,
        workspace_id="s",
    )
    steps.run_tool(request, tool)
    saved = WorkspaceCaps().seconds + 2 * COMMIT_PATIENCE  # its files, then its result
    around = TURN_PATIENCE_S + GRACE_SECONDS + saved
    assert options["start_to_close_timeout"] > timedelta(seconds=tool.timeout_s + around)


def test_only_activity_calls_names_activities() -> None:
    assert list(literal_calls()) == []

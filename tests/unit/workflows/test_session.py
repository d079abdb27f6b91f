"""Calls are refused while their guards cannot run."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio import workflow
from temporalio.exceptions import ActivityError, RetryState

from domain.agents.hook import HookPoint
from domain.sessions.session import AgentRef, Effect, SessionRef, ToolCall
from domain.sessions.session_state import HookOutcome, HookPoints
from workflows import activity_calls
from workflows.session import hooks

CALLS = [ToolCall(index=index, name="bash", activity="run_tool", timeout_s=5, effect=Effect.READ) for index in range(2)]


async def failing(*_: Any) -> Any:
    raise ActivityError(
        "no worker answered",
        scheduled_event_id=1,
        started_event_id=2,
        identity="w",
        activity_type="hooks",
        activity_id="1",
        retry_state=RetryState.TIMEOUT,
    )


def session() -> Any:
    ref = SessionRef(tenant="default", session_id="s", conversation_id="c")

    async def wait(handle: Any) -> Any:
        return await handle

    return SimpleNamespace(
        has_hooks=lambda line: True,
        check=lambda: None,
        wait=wait,
        state=SimpleNamespace(hook_points={}),
        start=SimpleNamespace(ref=ref, workspace_id="w"),
    )


LINE: Any = SimpleNamespace(agent=AgentRef(owner="default", name="a", version=1), above=[], step=1, path="main")


@pytest.mark.parametrize("broken", ["list_hooks", "run_hooks"])
def test_calls_are_refused_while_their_guards_cannot_run(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    async def listed(*_: Any) -> HookPoints:
        return HookPoints(points=[HookPoint.BEFORE_TOOL, HookPoint.AFTER_MODEL])

    async def ran(*_: Any) -> HookOutcome:
        return HookOutcome()

    works: dict[str, Any] = {"list_hooks": listed, "run_hooks": ran}
    for name, activity in {**works, broken: failing}.items():
        monkeypatch.setattr(activity_calls, name, activity)
    # outside a workflow the logger cannot ask whether it replays
    monkeypatch.setattr(workflow.logger, "log_during_replay", True)
    own = session()
    assert all(one.refusal for one in asyncio.run(hooks.before_tools(own, LINE, "n", CALLS)))
    # at other points a failure of hooks has no effect
    assert asyncio.run(hooks.run_hooks(own, LINE, HookPoint.AFTER_MODEL)) == HookOutcome()
    monkeypatch.setattr(activity_calls, broken, works[broken])
    assert not any(one.refusal for one in asyncio.run(hooks.before_tools(own, LINE, "n", CALLS)))

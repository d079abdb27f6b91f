"""Calls are refused while their guards cannot run; a subagent's outcome is delivered in one way."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio import workflow
from temporalio.exceptions import ActivityError, RetryState

from domain.agents.hook import HookPoint
from domain.conversations.subagents import Begun, BegunBatch, Settle
from domain.sessions.session import (
    AgentRef,
    CallState,
    Effect,
    ModelReply,
    SessionRef,
    StopReason,
    ToolCall,
    ToolOutcome,
    Usage,
)
from domain.sessions.session_state import HookOutcome, HookPoints
from workflows import activity_calls
from workflows.session import delegation, hooks

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


@pytest.mark.exactly_once
def test_outcome_of_a_child_that_is_promoted_as_it_ends_goes_to_the_mailbox_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settled: list[Settle] = []

    async def begin(*_: Any) -> BegunBatch:
        return BegunBatch(calls=[Begun(index=0, tool="task", child="child", awaited=["child"])])

    async def settle(call: Settle) -> ToolOutcome:
        settled.append(call)
        return ToolOutcome(index=0, name="task", state=CallState.OK, preview="")

    async def wait(condition: Callable[[], bool], **_: Any) -> None:
        assert condition()

    monkeypatch.setattr(activity_calls, "begin_delegations", begin)
    monkeypatch.setattr(activity_calls, "settle_delegation", settle)
    monkeypatch.setattr(workflow, "wait_condition", wait)
    line: Any = SimpleNamespace(**vars(LINE), model="m", resumed=False)
    reply = ModelReply(head="n", stop_reason=StopReason.TOOL_CALLS, calls=CALLS[:1], usage=Usage())
    loop: Any = None  # of inline subagents
    for promoted in ({"child"}, set[str]()):
        own = session()
        own.promoted, own.stopping, own.state.ended = promoted, None, ["child"]
        own.add_child, own.has_hooks = lambda *_, **__: None, lambda line: False
        asyncio.run(delegation.delegate(own, line, reply, CALLS[:1], loop))
    assert [one.promoted for one in settled] == [True, False]

"""Calls that continue at their server are polled by a handle, survive lost connections, and are never made twice."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from mcp_types import CallToolRequestParams, CallToolResult, InputRequiredResult, TextContent

from activities.egress import Fetcher
from activities.mcp.call import AGAIN
from activities.mcp.mcp_tool import mcp_tools
from activities.tools.tool import ToolResult
from domain.sessions.session import Effect, RemoteCall
from tests.support.launch import free_port
from tests.support.mcp_server import FORM, Context, EarlierServer, TaskServer, TestServer, serving
from tests.unit.activities.mcp.test_mcp_tool import call, pinned
from tests.unit.activities.tools.conftest import MakeContext

BUILD = "mcp__pages__build"


@pytest.fixture
async def tasks() -> AsyncIterator[TaskServer]:
    async with serving(TaskServer(free_port())) as found:
        yield found


class AskingServer(TestServer):
    """A server that answers with a question and its state instead of a result, and stores nothing itself."""

    async def _call(self, context: Context, params: CallToolRequestParams) -> Any:
        self.calls.append((params.name, params.arguments or {}))
        if params.request_state is None:
            return InputRequiredResult.model_validate(
                {"resultType": "input_required", "inputRequests": {"form-1": FORM}, "requestState": "s-1"}
            )
        given = params.model_dump(mode="json", by_alias=True, exclude_none=True)["inputResponses"]
        return CallToolResult(content=[TextContent(type="text", text=f"{params.request_state} {given}")])


async def refuses(scope: Any, receive: Any, send: Any) -> None:
    raise ConnectionError


class BrokenFetcher(Fetcher):
    def client(self, *given: Any, **named: Any) -> Any:
        raise ZeroDivisionError


async def test_handle_is_polled_through_outages_until_the_server_forgets_it(
    tasks: TaskServer, make_context: MakeContext
) -> None:
    definition = await pinned(tasks)

    async def poll(remote: RemoteCall | None, **arguments: Any) -> ToolResult:
        return await call(lambda **given: make_context(remote=remote, **given), tasks, definition, BUILD, **arguments)

    begun = await poll(None, target="x")
    # the shortest pause, even if the server asks for less
    assert begun.remote == RemoteCall(task_id="build-1") and begun.wait_ms == 500
    tasks.tools = []  # the tool was removed, its task was not
    assert (await poll(begun.remote)).remote == begun.remote

    tasks.app = refuses
    lost = await poll(begun.remote)
    assert lost.remote == begun.remote and lost.wait_ms == 5_000 and not lost.failed
    tasks.app = None
    tasks.cancelled.append("build-1")
    assert (await poll(begun.remote)).text == f"{BUILD} was cancelled at its server."
    tasks.cancelled.clear()
    tasks.done.add("build-1")
    assert (await poll(begun.remote)).text.endswith("]\nbuild-1 built") and len(tasks.calls) == 1


async def test_server_that_asks_in_place_of_a_result_gets_its_state_and_the_answers_once(
    make_context: MakeContext,
) -> None:
    held: list[RemoteCall] = []

    async def hold(remote: RemoteCall) -> None:
        held.append(remote)

    async with serving(AskingServer(free_port())) as server:
        definition = await pinned(server)
        name = "mcp__pages__set_page"
        asked = await call(make_context, server, definition, name, path="/")
        assert asked.remote is not None and asked.remote.state == "s-1"
        assert [one.key for one in asked.remote.forms] == ["form-1"]

        def continued(**given: Any) -> Any:
            return make_context(remote=asked.remote, hold=hold, answers={"form-1": {"target": "y"}}, **given)

        server.app = refuses  # nothing was sent, so the answers are kept
        assert (await call(continued, server, definition, name, path="/")).remote == asked.remote and not held
        server.app = None
        done = await call(continued, server, definition, name, path="/")
        assert "s-1 {'form-1': {'action': 'accept', 'content': {'target': 'y'}}}" in done.text and not done.failed
        assert [one.sent for one in held] == [True]
        # a worker that died after the answers were sent: the call may have happened, and is not repeated
        again = await call(lambda **given: make_context(remote=held[0], **given), server, definition, name, path="/")
        assert again.failed and "may have happened" in again.text and len(server.calls) == 2
        assert again.unknown


async def test_handle_is_stored_at_once_even_if_the_call_is_cancelled(
    tasks: TaskServer, make_context: MakeContext
) -> None:
    began, held = asyncio.Event(), []

    async def hold(remote: RemoteCall) -> None:
        began.set()
        await asyncio.sleep(0.05)
        held.append(remote)

    definition = await pinned(tasks)
    running = asyncio.create_task(
        call(lambda **given: make_context(hold=hold, **given), tasks, definition, BUILD, target="x")
    )
    await asyncio.wait_for(began.wait(), 10)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert held == [RemoteCall(task_id="build-1")]


async def test_unexpected_error_never_costs_a_handle_and_is_unknown_once_the_call_was_sent(
    tasks: TaskServer, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition, known = await pinned(tasks), RemoteCall(task_id="build-1")

    async def broken(remote: RemoteCall | None) -> ToolResult:
        return await call(
            lambda **given: make_context(**{**given, "remote": remote, "fetcher": BrokenFetcher([])}),
            tasks,
            definition,
            BUILD,
            target="x",
        )

    assert (await broken(known)).remote == known
    lost = await broken(None)
    assert lost.failed and not lost.unknown and "failed unexpectedly" in lost.text and "was not called" in lost.text

    async def crashes(*given: Any) -> ToolResult:
        raise ZeroDivisionError

    monkeypatch.setattr("activities.mcp.call.tool_result", crashes)
    async with serving(TestServer(free_port())) as server:
        sent = await call(make_context, server, await pinned(server), "mcp__pages__set_page", path="/")
    assert sent.failed and sent.unknown and "may have happened" in sent.text and len(server.calls) == 1


async def test_stop_that_a_server_did_not_acknowledge_leaves_the_outcome_unknown(
    tasks: TaskServer, make_context: MakeContext
) -> None:
    [tool] = mcp_tools(await pinned(tasks), [BUILD])
    stop = tool.stop
    assert stop is not None

    async def unknown(remote: RemoteCall, fetcher: Fetcher | None = None) -> bool:
        state = SimpleNamespace(variables={"TOKEN": "t-123"})
        stopped = await stop(make_context(fetcher=fetcher or Fetcher([tasks.host]), state=state, remote=remote))
        assert stopped.failed
        return stopped.unknown

    known = RemoteCall(task_id="build-1")
    assert not await unknown(known) and tasks.cancelled == ["build-1"]
    assert not await unknown(RemoteCall(state="s")) and await unknown(RemoteCall(state="s", sent=True))
    assert await unknown(known, BrokenFetcher([]))
    tasks.app = refuses
    assert await unknown(known)


async def test_questions_during_a_request_wait_for_people_and_are_never_declined(make_context: MakeContext) -> None:
    """A server of an earlier version asks while it is called: the call is made again with what people answered."""
    async with serving(EarlierServer(free_port())) as server:
        definition = await pinned(server)
        [server_tools] = [one.tools for one in definition.mcp_servers.values()]
        assert [one.name for one in server_tools or ()] == ["build"]  # the other cannot be called without a task

        async def run(remote: RemoteCall | None, **answers: Any) -> ToolResult:
            forms = remote.forms if remote else []
            given = {form.key: answers for form in forms} if answers else dict.fromkeys(form.key for form in forms)
            return await call(
                lambda **more: make_context(remote=remote, answers=given, **more), server, definition, BUILD
            )

        first = await run(None)
        # an answer agrees that a call which may have had effects is made again
        assert first.remote and [form.message for form in first.remote.forms] == [f"Which target?\n{AGAIN}"]
        assert server.actions == ["cancel"]
        nobody = await run(first.remote)  # nobody may be asked, or nobody answered
        assert nobody.failed and nobody.text.endswith("no target") and len(server.calls) == 1
        second = await run(first.remote, target="web")
        assert second.remote and [form.message for form in second.remote.forms] == [f"Which branch?\n{AGAIN}"]
        third = await run(second.remote, branch="main")
        assert third.text.endswith("built web main") and not third.failed
        assert server.actions == ["cancel", "accept", "cancel", "accept", "accept"] and len(server.calls) == 3
        server.needs = False  # it can do without an answer, and what it did is not repeated
        assert (await run(None)).text.endswith("built None None") and len(server.calls) == 4
        server.needs = True
        pages = definition.mcp_servers["pages"].model_copy(update={"effects": {"*": Effect.IDEMPOTENT}})
        definition = definition.model_copy(update={"mcp_servers": {"pages": pages}})
        harmless = (await run(None)).remote
        assert harmless and [form.message for form in harmless.forms] == ["Which target?"]

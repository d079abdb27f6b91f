"""Calls that continue at their server: by a handle, through lost connections, and never made twice."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from mcp_types import CallToolRequestParams, CallToolResult, InputRequiredResult, TextContent

from activities.tools.tool import ToolResult
from domain.sessions.remote_call import RemoteCall
from tests.support.launch import free_port
from tests.support.mcp_server import FORM, Context, TaskServer, TestServer, serving
from tests.unit.activities.mcp.test_mcp_tool import call, pinned
from tests.unit.activities.tools.conftest import MakeContext

BUILD = "mcp__pages__build"


@pytest.fixture
async def tasks() -> AsyncIterator[TaskServer]:
    async with serving(TaskServer(free_port())) as found:
        yield found


class AskingServer(TestServer):
    """Asks in place of a result, with a state of its own, and keeps nothing."""

    async def _call(self, context: Context, params: CallToolRequestParams) -> Any:
        self.calls.append((params.name, params.arguments or {}))
        if params.request_state is None:
            return InputRequiredResult.model_validate(
                {"resultType": "input_required", "inputRequests": {"form-1": FORM}, "requestState": "s-1"}
            )
        given = params.model_dump(mode="json", by_alias=True, exclude_none=True)["inputResponses"]
        return CallToolResult(content=[TextContent(type="text", text=f"{params.request_state} {given}")])


async def test_handle_is_polled_through_outages_until_the_server_forgets_it(
    tasks: TaskServer, make_context: MakeContext
) -> None:
    definition = await pinned(tasks)

    async def poll(remote: RemoteCall | None, **arguments: Any) -> ToolResult:
        return await call(lambda **given: make_context(remote=remote, **given), tasks, definition, BUILD, **arguments)

    begun = await poll(None, target="x")
    assert begun.remote == RemoteCall(task_id="build-1") and begun.wait_ms == 500  # never more often
    tasks.tools = []  # the tool is gone, its task is not
    assert (await poll(begun.remote)).remote == begun.remote

    async def refuses(scope: Any, receive: Any, send: Any) -> None:
        raise ConnectionError

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

        done = await call(continued, server, definition, name, path="/")
        assert "s-1 {'form-1': {'action': 'accept', 'content': {'target': 'y'}}}" in done.text and not done.failed
        assert [one.sent for one in held] == [True]
        # a worker that died after the answers were sent: the call may have happened, and is not repeated
        again = await call(lambda **given: make_context(remote=held[0], **given), server, definition, name, path="/")
        assert again.failed and "may have happened" in again.text and len(server.calls) == 2

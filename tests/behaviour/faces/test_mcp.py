"""The MCP SDK's client against the real stack: agents as tools, with and without the tasks extension."""

import asyncio
import json
import sys
from typing import Any, TypeVar

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    CallToolResult,
    CancelTaskResult,
    CreateTaskResult,
    GetTaskResult,
    ListTasksRequest,
    ListTasksResult,
    PaginatedRequestParams,
    ResourceLink,
    Task,
    TextContent,
    TextResourceContents,
    ToolExecution,
)

from domain.ids import new_id
from settings import ROOT
from store.keys import Right
from tests.behaviour.faces.conftest import key_of
from tests.behaviour.faces.mcp_client import (
    TASKS,
    CreatedTask,
    TaskParams,
    TaskRequest,
    TasksExtension,
    ask_task,
    mcp_client,
)
from tests.behaviour.supervision.people import waiting
from tests.support.stack import Stack, calls, eventually, steps

GATED: dict[str, Any] = {
    "name": "gated-tool",
    "description": "Asks before it runs anything.",
    "tools": ["bash"],
    "may_ask": True,
    "permissions": [{"permission": "bash", "action": "ask"}],
    "prompt": "You are tested.",
}
TYPED: dict[str, Any] = {
    "name": "typed-tool",
    "description": "Takes an object.",
    "prompt": "You are tested.",
    "input_schema": {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
        "additionalProperties": False,
    },
}
LOCAL: dict[str, Any] = {
    "name": "local-tool",
    "description": "Needs a region.",
    "tools": ["bash"],
    "may_ask": True,
    "variables": {"REGION": {"description": "where"}},
    "prompt": "You are tested.",
}
KEYED: dict[str, Any] = {
    **LOCAL,
    "name": "keyed-tool",
    "variables": {"TOKEN": {"description": "a key", "kind": "secret"}},
}
CODES = {"params": -32602, "mismatch": -32020, "capability": -32021}


def text_of(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


async def finished(client: Client, task_id: str, **more: Any) -> CallToolResult:
    while True:
        result = await client.call_tool("task_wait", {"task_id": task_id, "seconds": 60}, **more)
        if result.structured_content["status"] not in ("submitted", "working"):
            return result


@pytest.fixture(scope="session")
async def agents(stack: Stack) -> None:
    for agent in (GATED, TYPED, LOCAL, KEYED):
        assert (await stack.http.put(f"/agents/{agent['name']}", json=agent)).is_success


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_plain_client_gets_an_ordinary_result_and_waits_with_progress(
    mode: str, stack: Stack, own_key: str, agents: None
) -> None:
    async with mcp_client(stack, own_key, mode=mode) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"tester", "typed-tool", "task_wait", "task_answer", "task_message", "task_list"} <= listed.keys()
        assert listed["task_status"].annotations and listed["task_status"].annotations.read_only_hint
        assert {"path", "max_cost_usd", "files"} == listed["typed-tool"].input_schema["properties"].keys()
        save = ("save_artifact", {"path": "a.txt"})
        text = steps([("write_file", {"path": "a.txt", "content": "kept"})], [save])
        given = {"input": text, "max_cost_usd": 0.5}
        key: Any = {"errand/idempotencyKey": new_id()}
        started = await client.call_tool("tester", given, meta=key)
        task_id = started.structured_content["task_id"]
        assert f'task_wait with task_id "{task_id}"' in text_of(started) and not started.is_error
        again = await client.call_tool("tester", given, meta=key)
        assert again.structured_content["task_id"] == task_id

        lines: list[str] = []

        async def progress(number: float, total: float | None, message: str | None) -> None:
            lines.append(message or "")

        ended = await finished(client, task_id, progress_callback=progress)
        assert ended.structured_content["status"] == "completed" and lines
        record = await stack.record(task_id)
        assert record["limits"]["cost_usd"] == 0.5
        [link] = [block for block in ended.content if isinstance(block, ResourceLink)]
        [content] = (await client.read_resource(str(link.uri))).contents
        assert isinstance(content, TextResourceContents) and content.text == "kept"
        [result] = (await client.read_resource(f"errand://tasks/{task_id}/result")).contents
        assert isinstance(result, TextResourceContents) and json.loads(result.text)["status"] == "completed"
        [trace] = (await client.read_resource(f"errand://tasks/{task_id}/trace")).contents
        assert isinstance(trace, TextResourceContents) and task_id in trace.text
        assert any(task_id in str(one.uri) for one in (await client.list_resources()).resources)

        # pass a file of one task to the next, add a turn to the conversation, and list both tasks
        file_id = str(link.uri).rsplit("/", 1)[1]
        second = await client.call_tool("tester", {"input": calls(("list_files", {})), "files": [file_id]})
        ended = await finished(client, second.structured_content["task_id"])
        assert "a.txt" in ended.structured_content["output"]
        further = await client.call_tool("task_message", {"task_id": task_id, "message": "[[script:say text=Again]]"})
        ended = await finished(client, further.structured_content["task_id"])
        assert (ended.structured_content["output"], ended.structured_content["conversation_id"]) == ("Again", task_id)
        page = await client.call_tool("task_list", {"agent": "tester", "limit": 2})
        assert [one["task_id"] for one in page.structured_content["items"]][0] == ended.structured_content["task_id"]
        assert page.structured_content["next_cursor"]


async def test_steering_cancelling_and_an_agent_with_a_schema(stack: Stack, own_key: str, agents: None) -> None:
    async with mcp_client(stack, own_key) as client:
        bad = await client.call_tool("typed-tool", {"max_cost_usd": 0.1})
        assert bad.is_error and "/input/path: this field is required" in text_of(bad)
        typed = await client.call_tool("typed-tool", {"path": "x", "max_cost_usd": 0.1})
        record = await stack.record(typed.structured_content["task_id"])
        assert record["agent"] == "typed-tool" and record["limits"]["cost_usd"] == 0.1
        running = await client.call_tool("tester", {"input": "[[script:forever]]"})
        task_id = running.structured_content["task_id"]
        await stack.seen(task_id, "task_started")
        blank = await client.call_tool("task_message", {"task_id": task_id, "message": " \n"})
        assert blank.is_error and "/message: there is nothing in it" in text_of(blank)
        steered = await client.call_tool("task_message", {"task_id": task_id, "message": "Hurry."})
        assert steered.structured_content["task_id"] == task_id, text_of(steered)

        async def read() -> bool:
            return "Hurry." in json.dumps(await stack.nodes(task_id))

        await eventually(read, what="the message was read")
        assert not (await client.call_tool("task_cancel", {"task_id": task_id, "reason": "enough"})).is_error
        ended = await finished(client, task_id)
        assert ended.structured_content["status"] == "cancelled" and not ended.is_error
        empty = await client.call_tool("task_message", {"task_id": task_id, "mode": "fire"})
        assert empty.is_error and "mailbox is empty" in text_of(empty)


async def test_task_with_an_approval_form_and_a_plain_client_of_the_bridge_outlive_kills_of_api_and_worker(
    stack: Stack, own_key: str, agents: None
) -> None:
    forms: list[dict[str, Any]] = []

    def fill(request_id: str, form: dict[str, Any]) -> dict[str, Any]:
        forms.append(form)
        return {"action": "accept", "content": {"approved": True, "notes": "fine"}}

    tasks = TasksExtension(fill)
    program = StdioServerParameters(command=sys.executable, args=["-m", "cli", "mcp"], env=stack.env, cwd=ROOT)
    async with Client(program, cache=None) as plain:
        started = await plain.call_tool("tester", {"input": "[[script:say words=30 delay=0.1]]"})
        ends = asyncio.create_task(finished(plain, started.structured_content["task_id"]))
        async with mcp_client(stack, own_key, tasks) as client:
            assert client.server_capabilities.extensions == {TASKS: {}}
            given = {"input": calls(("bash", {"command": "echo hi"}))}
            created = await client.session.call_tool("gated-tool", given, allow_claimed=True)
            assert isinstance(created, CreatedTask) and created.status == "working"
            died = await stack.kill("api")
        await stack.kill("worker")
        again = await plain.call_tool("tester", {"input": "[[script:say text=once]] through the bridge"})
        assert (await ends).structured_content["status"] == "completed"
        await stack.back("api", died)
    page = (await stack.http.get("/tasks", params={"text": "through the bridge"})).json()["items"]
    assert [one["task_id"] for one in page] == [again.structured_content["task_id"]]
    async with mcp_client(stack, own_key, tasks) as client:  # a host that reconnects has only the id
        result = await tasks.follow(client.session, created.task_id)
        assert not result.is_error and "bash returned: hi" in text_of(result)
        assert result.structured_content["task_id"] == created.task_id and tasks.seen[-1] == "completed"
        [form] = forms
        assert form["message"].startswith("May bash run: $ echo hi?")
        assert form["requestedSchema"]["properties"]["approved"]["type"] == "boolean"


async def test_late_form_after_an_answer_elsewhere_changes_nothing(stack: Stack, own_key: str, agents: None) -> None:
    tasks = TasksExtension(lambda request_id, form: None)
    bash, ask = ("bash", {"command": "echo one"}), ("ask_user", {"question": "Which?", "options": ["red", "blue"]})
    async with mcp_client(stack, own_key, tasks) as client:
        work = asyncio.create_task(client.call_tool("gated-tool", {"input": steps([bash], [ask])}))
        task_id = await tasks.until("input_required")

        async def update(request_id: str, action: str, **content: Any) -> None:
            response = {request_id: {"action": action, "content": content}}
            assert (await ask_task(client.session, "update", task_id, input_responses=response)).status == ""

        [approval] = await waiting(stack, task_id)
        await update(approval["id"], "cancel")  # the request stays open
        assert [one["id"] for one in await waiting(stack, task_id)] == [approval["id"]]
        body = {"response_to": approval["id"], "input": {"approved": False}}
        assert (await stack.http.post(f"/tasks/{task_id}/input", json=body)).status_code == 202
        await update(approval["id"], "accept", approved=True)  # too late: it is acknowledged, and nothing changes
        await update("never-asked", "accept", approved=True)
        [question] = await waiting(stack, task_id)
        # a client without tasks answers the question by a tool; a late answer changes nothing there either
        async with mcp_client(stack, own_key) as plain:
            assert "Which?" in text_of(await plain.call_tool("task_status", {"task_id": task_id}))
            answered = await plain.call_tool("task_answer", {"task_id": task_id, "answer": "blue"})
            assert not answered.is_error, text_of(answered)
            late = {"task_id": task_id, "request_id": question["id"], "answer": "red"}
            assert not (await plain.call_tool("task_answer", late)).is_error
        result = await work
        assert "denied" in text_of(result) and "blue" in text_of(result)
        listed = (await stack.http.get(f"/tasks/{task_id}/input-requests")).json()["items"]
        assert {one["id"]: one["answer"] for one in listed} == {
            approval["id"]: {"approved": False},
            question["id"]: "blue",
        }


async def test_missing_variables_are_a_form_unless_one_is_secret(stack: Stack, own_key: str, agents: None) -> None:
    fields: list[list[str]] = []

    def fill(request_id: str, form: dict[str, Any]) -> dict[str, Any]:
        fields.append(list(form["requestedSchema"]["properties"]))
        return {"action": "accept", "content": {"REGION": "eu"}}

    tasks = TasksExtension(fill)
    async with mcp_client(stack, own_key, tasks) as client:
        result = await client.call_tool("local-tool", {"input": "[[script:say text=Done]]"})
        assert (text_of(result), fields) == ("Done", [["REGION"]])
        created = await client.session.call_tool("keyed-tool", {"input": "x"}, allow_claimed=True)
        assert isinstance(created, CreatedTask)
        await waiting(stack, created.task_id)
        state = await ask_task(client.session, "get", created.task_id)
        assert state.status == "working" and state.input_requests is None  # the request is in the inbox only
        assert state.status_message and "TOKEN" in state.status_message
        await ask_task(client.session, "cancel", created.task_id)
        assert (await stack.wait(created.task_id))["status"] == "cancelled"
        assert (await ask_task(client.session, "get", created.task_id)).status == "cancelled"


async def test_bad_requests_are_refused_in_the_formats_of_the_protocol(
    stack: Stack, own_key: str, agents: None
) -> None:
    """Unknown and foreign ids, missing rights, wrong headers and bad bodies are refused in the protocol's formats."""
    async with mcp_client(stack, own_key) as client:
        started = await client.call_tool("tester", {"input": "[[script:say text=secret]]"})
        task_id = started.structured_content["task_id"]
        await finished(client, task_id)
        for name in ("nobody", "mute", "x" * 300):
            with pytest.raises(MCPError) as unknown:
                await client.call_tool(name, {"input": "x"})
            assert unknown.value.code == CODES["params"]
        # this tool has no such argument
        assert (await client.call_tool("tester", {"input": "x", "permissions": []})).is_error
        with pytest.raises(MCPError) as undeclared:
            await ask_task(client.session, "get", task_id)
        assert undeclared.value.code == CODES["capability"]
        for uri in ("errand://tasks/x/result", "errand://files/x", "file:///etc/passwd"):
            with pytest.raises(MCPError):
                await client.read_resource(uri)
    tasks = TasksExtension(lambda request_id, form: None)
    tenant = f"other-{new_id()}"  # a tenant that no other test uses: agents of other tests would be additional tools
    async with mcp_client(stack, await key_of(stack, tenant), tasks) as foreign:
        assert "tester" not in {tool.name for tool in (await foreign.list_tools()).tools}
        for method in ("get", "cancel", "update"):
            with pytest.raises(MCPError) as hidden:
                await ask_task(foreign.session, method, task_id, input_responses={})
            assert hidden.value.code == CODES["params"]
        for name in ("task_status", "task_wait", "task_cancel"):
            refused = await foreign.call_tool(name, {"task_id": task_id})
            assert refused.is_error and "secret" not in text_of(refused)
        assert (await foreign.call_tool("task_answer", {"task_id": task_id, "answer": "x"})).is_error
        with pytest.raises(MCPError):
            await foreign.read_resource(f"errand://tasks/{task_id}/result")
    async with mcp_client(stack, await key_of(stack, "default", Right.SUPERVISE)) as supervisor:
        kept = await supervisor.call_tool("task_cancel", {"task_id": task_id})  # this key may act, but not read
        assert not kept.is_error and "secret" not in text_of(kept)
        assert kept.structured_content["status"] == "completed" and kept.structured_content["output"] is None

    async with httpx2.AsyncClient(base_url=stack.url, timeout=20) as http:
        http.headers |= {"Authorization": f"Bearer {own_key}", "Accept": "application/json, text/event-stream"}
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}},
        }
        message = {"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"taskId": task_id, "_meta": meta}}
        headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tasks/get"}
        named: list[tuple[dict[str, str], int | None]] = [
            ({}, CODES["mismatch"]),
            ({"Mcp-Name": new_id()}, CODES["mismatch"]),
            ({"Mcp-Name": task_id}, None),
        ]
        for more, code in named:
            answer = (await http.post("/mcp", json=message, headers={**headers, **more})).json()
            assert answer.get("error", {}).get("code") == code, answer
        refusal = await http.post("/mcp", content=b"{", headers={"Content-Type": "application/json", **headers})
        assert (refusal.status_code, refusal.json()["jsonrpc"]) == (400, "2.0"), refusal.text
        assert (await http.get("/mcp")).status_code == 405
        assert (await http.post("/mcp", json=message, headers={"Authorization": "Bearer nobody"})).status_code == 401


R = TypeVar("R", GetTaskResult, CallToolResult, CancelTaskResult)


async def test_tasks_of_the_version_that_has_them_itself(stack: Stack, own_key: str) -> None:
    """A client that negotiates 2025-11-25 starts, polls, lists and cancels tasks and gets their results."""

    async def call(name: str, **arguments: str) -> dict[str, Any]:
        """Call a tool as a task with a bare request, because this client's library knows only the extension."""
        params = {
            "name": name,
            "arguments": arguments,
            "task": {} if "fault" in arguments.get("input", "") else {"ttl": 60_000},
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        accepts = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
        headers = {"Authorization": f"Bearer {own_key}", **accepts}
        async with httpx2.AsyncClient(base_url=stack.url, headers=headers, timeout=60) as http:
            said = (await http.post("/mcp", json=body)).text
        answer: dict[str, Any] = json.loads(said[said.index("{") :])
        return answer

    async def start(text: str) -> Task:
        return CreateTaskResult.model_validate((await call("tester", input=text))["result"]).task

    async def ask(session: ClientSession, method: str, task_id: str, result: type[R]) -> R:
        request = TaskRequest(method=f"tasks/{method}", params=TaskParams(task_id=task_id))
        return await session.send_request(request, result)

    async with mcp_client(stack, own_key, mode="legacy") as client:
        session = client.session
        assert client.protocol_version == "2025-11-25"
        offered = client.server_capabilities.tasks
        assert offered is not None and offered.list is not None and offered.cancel is not None
        assert offered.requests and offered.requests.tools and offered.requests.tools.call is not None
        listed = {one.name: one.execution for one in (await client.list_tools()).tools}
        assert listed["tester"] == ToolExecution(task_support="optional") and listed["task_wait"] is None
        task = await start("[[script:say words=20 delay=0.1]]")
        assert task.status == "working" and task.poll_interval
        now = await ask(session, "get", task.task_id, GetTaskResult)
        assert (now.task_id, now.status) == (task.task_id, "working")
        whole = await ask(session, "result", task.task_id, CallToolResult)  # waits for its end
        assert "word20" in str(whole.content) and not whole.is_error
        assert whole.meta and whole.meta["io.modelcontextprotocol/related-task"] == {"taskId": task.task_id}
        assert (await ask(session, "get", task.task_id, GetTaskResult)).status == "completed"
        pages = await session.send_request(ListTasksRequest(params=PaginatedRequestParams()), ListTasksResult)
        assert task.task_id in [one.task_id for one in pages.tasks]
        failed = await start("[[fault:400 times=always]] Hi")
        assert (await ask(session, "result", failed.task_id, CallToolResult)).is_error
        assert (await ask(session, "get", failed.task_id, GetTaskResult)).status == "failed"
        endless = await start("[[script:forever]]")
        assert (await ask(session, "cancel", endless.task_id, CancelTaskResult)).status == "cancelled"
        assert (await ask(session, "get", endless.task_id, GetTaskResult)).status == "cancelled"
        for method in ("cancel", "result", "get"):
            unknown = endless.task_id if method == "cancel" else new_id()
            with pytest.raises(MCPError) as refused:
                await ask(session, method, unknown, GetTaskResult)
            assert refused.value.error.code == INVALID_PARAMS
        refusal = await call("task_wait", task_id=task.task_id)
        assert refusal["error"]["code"] == METHOD_NOT_FOUND

"""The pure parts of a tool call: its result, and how it is guarded."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from activities.mcp.mcp_tool import mcp_tools
from activities.tools import run_tool
from activities.tools.run_tool import RunTool, call_turn, check_shown, run_guarded, stop_call
from activities.tools.tool import ArtifactFile, Tool, ToolContext, ToolResult
from domain.agents.definition import AgentDefinition
from domain.policy.rules import Action, verdict
from domain.redaction import Redactor
from domain.sealing import SealingError
from domain.sessions.session import Effect, RemoteCall, RemoteForm
from domain.task import Boundary
from tests.support.pictures import png


def test_links_and_forms_of_a_result_are_redacted_and_what_is_sent_back_is_not() -> None:
    address = "https://x.example/?key=secret-1"
    link = ArtifactFile("page", f"{address}\n".encode(), "text/uri-list", "link", "", address)
    form = RemoteForm(key="secret-1", message="Is it secret-1?", answer_schema={"properties": {"secret-1": {}}})
    remote = RemoteCall(task_id="secret-1", state="secret-1", forms=[form])
    found = ToolResult("", artifacts=[link], remote=remote).redact(Redactor(["secret-1"]))
    assert "secret-1" not in str(found.artifacts) and found.remote is not None
    assert found.remote.model_copy(update={"forms": []}) == remote.model_copy(update={"forms": []})
    [shown] = found.remote.forms
    assert shown.key == "secret-1" and "secret-1" not in shown.message + str(shown.answer_schema)


CONTEXT: Any = SimpleNamespace(state=SimpleNamespace(redactor=Redactor()))


class Input(BaseModel):
    pass


class Stubborn:
    """Code that ignores its cancellation. It ends after ten seconds; the worker must not have waited for that."""

    def __init__(self) -> None:
        self.began, self.end = asyncio.Event(), asyncio.Event()
        asyncio.get_running_loop().call_later(10, self.end.set)

    async def run(self, input: Input, context: ToolContext) -> ToolResult:
        self.began.set()
        while not self.end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.end.wait()
        return ToolResult("done")

    def tool(self, timeout_s: float) -> Tool:
        return Tool(
            name="stubborn", description="x", input=Input, run=self.run, effect=Effect.READ, timeout_s=timeout_s
        )


async def test_stop_that_hangs_or_fails_is_bounded_and_leaves_the_call_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_tool, "GRACE_SECONDS", 0.05)
    stubborn = Stubborn()

    async def hangs(context: ToolContext) -> ToolResult:
        return await stubborn.run(Input(), context)

    async def fails(context: ToolContext) -> ToolResult:
        raise ValueError("a secret")

    async def works(context: ToolContext) -> ToolResult:
        return ToolResult("stopped", failed=True)

    def stops(stop: Any) -> Any:
        tool = Tool(name="far", description="x", input=Input, stop=stop, effect=Effect.ONCE, timeout_s=0.05)
        return stop_call(tool, CONTEXT)

    late, failed, fine = await stops(hangs), await stops(fails), await stops(works)
    assert not stubborn.end.is_set()
    stubborn.end.set()
    assert late == ToolResult("The stop of far did not finish within 0.05 seconds.", failed=True, unknown=True)
    assert failed.failed and failed.unknown and "a secret" not in failed.text
    assert fine == ToolResult("stopped", failed=True)


async def test_error_before_a_call_begins_is_not_its_result() -> None:
    @contextlib.asynccontextmanager
    async def unreachable() -> AsyncIterator[ToolResult | None]:
        raise ConnectionError("the database is away")
        yield

    with pytest.raises(ConnectionError):
        await run_guarded(Stubborn().tool(1), Input(), CONTEXT, unreachable())


async def test_picture_that_does_not_fit_leaves_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = png(2, 2), png(40, 40)
    monkeypatch.setattr(run_tool, "MOST_BYTES", 2 * len(small))
    pictures = enumerate((small, large, small))
    files = [ArtifactFile(f"{place}.png", one, "image/png", shown=True) for place, one in pictures]
    result, facts = await check_shown(ToolResult("Three.", artifacts=files))
    assert [fact is not None for fact in facts] == [True, False, True] and "1.png is not shown" in result.text


def server_tool(**server: Any) -> Tool:
    """A tool of an MCP server that only reads, as its definition says."""
    listed = {"name": "look", "description": "", "input_schema": {"type": "object"}}
    given = {"fs": {**server, "effects": {"*": "read"}, "tools": [listed]}}
    [found] = mcp_tools(AgentDefinition.model_validate({"name": "x", "mcp_servers": given}), ["mcp__fs__look"])
    return found


async def test_program_is_bound_by_paths_and_takes_its_turn_in_the_workspace_even_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_tool, "TURN_PATIENCE_S", 0.1)
    program, remote = server_tool(command=["files"]), server_tool(url="https://files.example.org/")
    paths = Boundary(paths=["docs/*"]).layers()
    assert verdict(paths, program, ["stdio"]).action is Action.DENY
    assert verdict(paths, remote, ["files.example.org"]).action is Action.ALLOW

    def turn(tool: Tool) -> Any:
        call: Any = SimpleNamespace(request=None, tool=tool, approval=None)
        pool: Any = None
        return call_turn(pool, call, tmp_path)

    async with run_tool.workspace_turn(tmp_path, alone=True):  # an approved command runs
        async with turn(program) as refusal:
            assert refusal is not None and "mcp__fs__look was not run" in refusal.text
        async with turn(remote) as refusal:
            assert refusal is None
    async with turn(program) as refusal:
        assert refusal is None


async def test_call_that_has_not_begun_waits_for_the_database(tmp_path: Path) -> None:
    """A retry of a call that may happen once could only report that its outcome is unknown."""
    answers = [ConnectionError("the database is away"), SealingError("was read")]

    async def ready(*_: object) -> None:
        raise answers.pop(0)

    @contextlib.contextmanager
    def use(*_: object) -> Iterator[None]:
        yield

    workspaces = SimpleNamespace(ready=ready, use=use, folder=lambda *_: tmp_path)
    given: Any = [workspaces if field.name == "_workspaces" else None for field in fields(RunTool)]
    claim = SimpleNamespace(remote=None, dry=False, workspace_version=0)
    request = SimpleNamespace(ref=SimpleNamespace(tenant="t"), workspace_id="w", cancel=False)
    tool = Stubborn().tool(1)
    call: Any = SimpleNamespace(tool=tool, request=request, claim=claim, arguments={}, agent=None)
    assert "was read" in (await RunTool(*given)._result(call)).text and answers == []

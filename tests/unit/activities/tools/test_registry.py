"""The user's own tools, from a module named in the settings."""

import sys
from pathlib import Path

import pytest
from pydantic import BaseModel

from activities.tools.registry import TOOLS, load_tools
from activities.tools.tool import Tool
from domain.sessions.session import Effect

_TOOL = """
from pydantic import BaseModel
from activities.tools.tool import Tool, ToolResult
from domain.sessions.session import Effect

class Input(BaseModel):
    pass

async def run(input, context):
    return ToolResult("hello")

def tool(name, **more):
    return Tool(name=name, description="d", input=Input, run=run, effect=Effect.READ, **more)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    name = f"own_tools_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(f"{_TOOL}\n{request.param}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


@pytest.mark.proves("S1-24")
@pytest.mark.parametrize("module", ["TOOLS = [tool('greet')]"], indirect=True)
def test_own_tools_join_the_built_in_ones(module: str) -> None:
    loaded = load_tools(module)
    assert (set(loaded.found), loaded.problems) == ({*TOOLS, "greet"}, [])
    assert "greet" not in TOOLS


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("TOOLS = [tool('bash')]", "already a tool named 'bash'"),
        ("TOOLS = [tool(7)]", "7 is not a tool name"),
        ("raise SystemExit(3)", "cannot be imported: SystemExit(3)"),
        ("TOOLS = [print]", "not an activities.tools.tool.Tool"),
        ("TOOLS = [tool('No Name')]", "not a tool name"),
        ("TOOLS = [tool('note', bookkeeping=True)]", "'note' sets bookkeeping, which only built-in tools may"),
        ("TOOLS = [tool('note', asks=True, addresses=True)]", "'note' sets asks, addresses, which only"),
        ("", "needs an attribute TOOLS"),
        ("import no_such_thing", "cannot be imported"),
    ],
    indirect=["module"],
)
def test_a_module_that_cannot_be_used_says_why(module: str, message: str) -> None:
    loaded = load_tools(module)
    assert loaded.found == TOOLS and len(loaded.problems) == 1 and message in loaded.problems[0]


def test_bookkeeping_may_be_repeated() -> None:
    with pytest.raises(ValueError, match="note: bookkeeping may run twice"):
        Tool(name="note", description="d", input=BaseModel, effect=Effect.ONCE, bookkeeping=True)


def test_only_bookkeeping_stays_off_the_queue() -> None:
    """A tool that reads or changes anything outside the session is a separate activity, which the timeline shows."""
    local = {name for name, tool in TOOLS.items() if tool.bookkeeping}
    assert local == {"update_plan", "report_progress", "list_subagents", "set_status"}

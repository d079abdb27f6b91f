"""The user's own tools, from a module named in the settings."""

import sys
from pathlib import Path

import pytest

from activities.tools.registry import TOOLS, load_tools

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
        ("raise SystemExit(3)", "cannot be imported: SystemExit(3)"),
        ("TOOLS = [print]", "not an activities.tools.tool.Tool"),
        ("TOOLS = [tool('No Name')]", "not a tool name"),
        ("TOOLS = [tool('note', asks=True, addresses=True)]", "'note' sets asks, addresses, which only"),
    ],
    indirect=["module"],
)
def test_a_module_that_cannot_be_used_says_why(module: str, message: str) -> None:
    loaded = load_tools(module)
    assert loaded.found == TOOLS and len(loaded.problems) == 1 and message in loaded.problems[0]

"""bash: runs a command of the model and describes in text how it ended."""

import os
from pathlib import Path

import pytest

from activities.sandbox import choose
from activities.tools.registry import TOOLS
from activities.tools.tool import ToolContext, ToolResult
from tests.unit.activities.tools.conftest import MakeContext


@pytest.fixture
async def real(make_context: MakeContext) -> ToolContext:
    return make_context(sandbox=await choose("auto"))


async def bash(context: ToolContext, command: str, **arguments: object) -> ToolResult:
    tool = TOOLS["bash"]
    return await tool.run(tool.input.model_validate({"command": command, **arguments}), context)


async def test_bash_shows_output_exit_code_and_back_end(real: ToolContext, workspace: Path) -> None:
    (workspace / "f").write_text("content\n")
    assert await bash(real, "cat f") == ToolResult(f"content\n[exit code 0; sandbox: {real.sandbox.name}]")
    assert await bash(real, "true") == ToolResult(f"[exit code 0; sandbox: {real.sandbox.name}]")
    failed = await bash(real, "echo no >&2; exit 3")
    assert failed == ToolResult(f"no\n[exit code 3; sandbox: {real.sandbox.name}]", failed=True)


async def test_the_longest_command_can_be_run(real: ToolContext) -> None:
    assert not (await bash(real, "true " + "\U0001f600" * 29_990)).failed


async def test_bash_says_when_a_command_took_too_long(real: ToolContext) -> None:
    result = await bash(real, "echo begun; sleep 60", timeout_s=1)
    assert result.failed and result.text.startswith("begun\n[stopped after 1 s; nothing of it is running any more")


async def test_hidden_characters_are_not_returned(real: ToolContext) -> None:
    assert (await bash(real, r"printf 'a\0b\033[31mc'")).text.startswith("ab[31mc\n")


async def test_a_refusal_is_a_failure_with_the_remedy(context: ToolContext, workspace: Path) -> None:
    result = await bash(context, "touch ran")
    assert result.failed and result.text == "Nothing was run: no sandbox in this test. Give one"
    assert os.listdir(workspace) == []
    assert (await bash(context, "a\0b")).failed

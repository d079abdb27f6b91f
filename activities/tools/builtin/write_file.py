"""The tool write_file: a whole file at once."""

import asyncio

from pydantic import Field

from activities.tools.support.paths import Workspace
from activities.tools.tool import FileChange, Tool, ToolContext, ToolInput, ToolResult
from domain.amounts import format_count
from domain.policy.rules import Subject, SubjectKind
from domain.sessions.session import Effect, EffectKind


class Input(ToolInput):
    path: str = Field(min_length=1, max_length=4096, description="File, relative to the workspace.")
    content: str = Field(max_length=1_000_000, description="The whole new content.")


async def run(input: Input, context: ToolContext) -> ToolResult:
    content = input.content.encode()
    new = await asyncio.to_thread(Workspace(context.workspace).write, input.path, content)
    lines = input.content.count("\n") + (not input.content.endswith("\n") and input.content != "")
    done = f"{'Created' if new else 'Replaced'} {input.path}"
    return ToolResult(f"{done}: {format_count(lines, 'line')}, {format_count(len(content), 'byte')}.")


TOOL = Tool(
    name="write_file",
    description=(
        "Write a whole text file in the workspace: creates it and its folders, or replaces what was there. To change a "
        "part of a file use edit_file."
    ),
    input=Input,
    run=run,
    effect=Effect.IDEMPOTENT,
    kind=EffectKind.FILE,
    change=lambda input: FileChange(input.path, lambda before: input.content),
    subject=Subject(kind=SubjectKind.PATH, fields=("path",)),
    touches=(SubjectKind.PATH,),
    summary=lambda input: f"write {input.path} ({len(input.content):,} characters)",
)

"""The tool edit_file: one exact piece of a file replaced by another."""

import asyncio

from pydantic import BaseModel, ConfigDict, Field

from activities.requests.file_diff import FileChange
from activities.tools.support.paths import Workspace
from activities.tools.tool import Tool, ToolContext, ToolResult
from domain.amounts import counted
from domain.policy.rules import PathError, Subject, SubjectKind
from domain.sessions.session import Effect, EffectKind

_LARGEST = 5_000_000


class Input(BaseModel):
    model_config = ConfigDict(extra="forbid")

    path: str = Field(min_length=1, max_length=4096, description="File, relative to the workspace.")
    old: str = Field(min_length=1, max_length=200_000, description="The exact text to replace, white space included.")
    new: str = Field(max_length=200_000, description="The text to put there.")
    all: bool = Field(False, description="Replace every occurrence instead of exactly one.")


async def run(input: Input, context: ToolContext) -> ToolResult:
    try:
        return await asyncio.to_thread(_edit, input, Workspace(context.workspace), context.again)
    except PathError as error:
        return ToolResult(str(error), failed=True)


def _edit(input: Input, workspace: Workspace, again: bool) -> ToolResult:
    content = workspace.read(input.path, _LARGEST + 1)
    if len(content) > _LARGEST:
        return ToolResult(f"{input.path!r} is larger than {_LARGEST:,} bytes. Edit it with bash.", failed=True)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return ToolResult(f"{input.path!r} is not UTF-8 text. Edit it with bash.", failed=True)
    count = text.count(input.old)
    if again and _done_before(text, input):
        return ToolResult(f"Edited {input.path} (by an earlier attempt of this call).")
    if count == 0:
        return ToolResult(
            f"The text to replace is not in {input.path!r}. Read the file again and copy it.", failed=True
        )
    if count > 1 and not input.all:
        return ToolResult(
            f"The text to replace occurs {counted(count, 'time')} in {input.path!r}."
            " Give more of its surroundings, or set all.",
            failed=True,
        )
    workspace.write(input.path, text.replace(input.old, input.new).encode())
    return ToolResult(f"Edited {input.path}: {count} replacement{'s' if count > 1 else ''}.")


def _apply_edit(input: Input, before: str | None) -> str | None:
    """The new content of the file; None if the call would fail."""
    count = (before or "").count(input.old)
    return before.replace(input.old, input.new) if before and (count == 1 or (count and input.all)) else None


def _done_before(text: str, input: Input) -> bool:
    """Whether an earlier attempt made the edit and died before it could report. If the new text contains the old one,
    every remaining `old` must be inside a `new`."""
    if input.new == "":
        return input.old not in text
    return input.new in text and input.old not in text.replace(input.new, "")


TOOL = Tool(
    name="edit_file",
    description=(
        "Replace an exact piece of text in a workspace file. It must occur exactly once unless `all` is set. Read the "
        "file first."
    ),
    input=Input,
    run=run,
    effect=Effect.IDEMPOTENT,
    kind=EffectKind.FILE,
    change=lambda input: FileChange(input.path, lambda before: _apply_edit(input, before)),
    subject=Subject(kind=SubjectKind.PATH, fields=("path",)),
    touches=(SubjectKind.PATH,),
    summary=lambda input: f"edit {input.path}",
)

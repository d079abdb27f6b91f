"""The tool list_files: what lies in a folder of the workspace."""

import asyncio
from itertools import islice

from pydantic import Field

from activities.tools.support.paths import DirectoryEntry, Workspace
from activities.tools.tool import Tool, ToolContext, ToolInput, ToolResult, clean
from domain.policy.rules import Subject, SubjectKind
from domain.sessions.session import Effect

_MOST = 500


class Input(ToolInput):
    path: str = Field(".", max_length=4096, description="Folder, relative to the workspace.")
    recursive: bool = Field(
        False, description="Also list all folders below; of a git repository without .git and what it ignores."
    )


async def run(input: Input, context: ToolContext) -> ToolResult:
    workspace = Workspace(context.workspace)

    def find() -> list[DirectoryEntry]:
        rules = workspace.ignore_rules(input.path) if input.recursive else None
        return list(islice(workspace.walk(input.path, recursive=input.recursive, without=rules), _MOST + 1))

    entries = await asyncio.to_thread(find)
    if not entries:
        return ToolResult("The folder is empty.")
    lines = [_line(entry) for entry in entries[:_MOST]]
    if len(entries) > _MOST:
        lines.append(f"… more than {_MOST} entries. List a folder below, or look for something with search_files.")
    return ToolResult(clean("\n".join(lines)))


def _line(entry: DirectoryEntry) -> str:
    name = entry.path.replace("\n", "\\n")
    if entry.kind == "folder":
        return f"{name}/"
    return f"{name}  ({entry.size:,} bytes)" if entry.kind == "file" else f"{name}  ({entry.kind}, not followed)"


TOOL = Tool(
    name="list_files",
    description="List the files of a workspace folder with their sizes. Use it first to learn what there is.",
    input=Input,
    run=run,
    effect=Effect.READ,
    subject=Subject(kind=SubjectKind.PATH, fields=("path",)),
    touches=(SubjectKind.PATH,),
    summary=lambda input: f"list {input.path}",
)

"""The tool search_files: lines that match a regular expression."""

import asyncio
import fnmatch
import json
import os
import struct
from collections.abc import Iterator
from itertools import islice
from pathlib import Path, PurePosixPath

from pydantic import BaseModel, ConfigDict, Field

from activities.tools.support.child import start_script
from activities.tools.support.paths import Workspace
from activities.tools.tool import Tool, ToolContext, ToolResult, clean
from domain.policy.rules import PathError, Subject, SubjectKind
from domain.sessions.session import Effect

_MATCHER = Path(__file__).parents[1] / "support" / "match_lines.py"
_TIME_S = 20.0
_MOST_FILES, _LARGEST, _MOST_BYTES = 20_000, 2_000_000, 100_000_000
_MOST_HITS = 200


class Hits(BaseModel):
    """The output of the matcher."""

    error: str | None = None
    hits: list[str] = []
    more: bool = False


class Input(BaseModel):
    model_config = ConfigDict(extra="forbid")

    pattern: str = Field(min_length=1, max_length=1_000, description="Python regular expression, matched line by line.")
    path: str = Field(".", max_length=4096, description="Folder or file to search, relative to the workspace.")
    glob: str = Field("*", min_length=1, max_length=200, description="Only files whose name or path matches, as *.py.")


async def run(input: Input, context: ToolContext) -> ToolResult:
    try:
        async with asyncio.timeout(_TIME_S):
            answer = await _search(input, Workspace(context.workspace))
    except PathError as error:
        return ToolResult(str(error), failed=True)
    except TimeoutError:
        return ToolResult(
            f"The search took longer than {_TIME_S:.0f} seconds and was stopped. Use a simpler pattern (no nested "
            "repetitions) or search a smaller folder.",
            failed=True,
        )
    if answer.error is not None:
        return ToolResult(f"The pattern is not a valid regular expression: {answer.error}.", failed=True)
    lines = answer.hits
    if not lines:
        return ToolResult("Nothing matches.")
    if answer.more:
        lines.append(f"… more than {_MOST_HITS} lines match. Narrow the pattern, the path or the glob.")
    return ToolResult(clean("\n".join(lines)))


async def _search(input: Input, workspace: Workspace) -> Hits:
    """Read files here and match in a child process: a regular expression can run without end, and only a process can be
    stopped."""
    async with start_script(_MATCHER, json.dumps(input.pattern), str(_MOST_HITS)) as matcher:
        assert matcher.stdout is not None
        answer = asyncio.create_task(matcher.stdout.read())
        try:
            await _feed(matcher, input, workspace)
            return Hits.model_validate_json(await answer)
        finally:
            answer.cancel()


async def _feed(matcher: asyncio.subprocess.Process, input: Input, workspace: Workspace) -> None:
    assert matcher.stdin is not None
    contents = _contents(input, workspace)
    try:
        while item := await asyncio.to_thread(next, contents, None):
            name, content = item
            matcher.stdin.write(struct.pack("<II", len(name), len(content)) + name + content)
            await matcher.stdin.drain()
        matcher.stdin.close()
        await matcher.stdin.wait_closed()
    except (BrokenPipeError, ConnectionResetError):
        pass  # it has found enough or rejects the pattern; its output says which


def _contents(input: Input, workspace: Workspace) -> Iterator[tuple[bytes, bytes]]:
    total = 0
    for entry in islice(workspace.walk(input.path, recursive=True), _MOST_FILES):
        named = fnmatch.fnmatch(entry.path, input.glob) or fnmatch.fnmatch(PurePosixPath(entry.path).name, input.glob)
        if entry.kind != "file" or not named or entry.size > _LARGEST or total > _MOST_BYTES:
            continue
        try:
            content = workspace.read(entry.path, _LARGEST)
        except PathError:
            continue  # removed, or not readable
        if b"\0" not in content[:8192]:
            total += len(content)
            yield os.fsencode(entry.path), content


TOOL = Tool(
    name="search_files",
    description=(
        "Search the text files of the workspace with a regular expression; answers path:line: text. Use it to find "
        "where something is before reading whole files."
    ),
    input=Input,
    run=run,
    effect=Effect.READ,
    subject=Subject(kind=SubjectKind.PATH, fields=("path",)),
    touches=(SubjectKind.PATH,),
    summary=lambda input: f"search {input.pattern!r} in {input.path}",
)

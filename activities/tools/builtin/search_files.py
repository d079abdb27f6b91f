"""The tool search_files: lines that match a regular expression."""

import asyncio
import fnmatch
import json
import os
import re
import struct
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path, PurePosixPath

from pydantic import BaseModel, Field

from activities.tools.support.child import start_script
from activities.tools.support.paths import Workspace
from activities.tools.tool import Tool, ToolContext, ToolInput, ToolResult, clean
from domain.policy.rules import PathError, Subject, SubjectKind
from domain.sessions.session import Effect

_MATCHER = Path(__file__).parents[1] / "support" / "match_lines.py"
_TIME_S = 20.0
_MOST_FILES, _LARGEST, _MOST_BYTES = 100_000, 2_000_000, 100_000_000
_AT_ONCE = 1_000_000  # bytes that are read before they are matched
_MOST_HITS, _MOST_CHARS = 200, 15_000  # less than run_tool keeps in a result
_MOST_FORMS = 50
_BRACES = re.compile(r"\{([^{}]*)\}")


class Hits(BaseModel):
    """The output of the matcher."""

    error: str | None = None
    hits: list[str] = []
    shown: int = 0  # matches among them
    more: bool = False


class Input(ToolInput):
    pattern: str = Field(min_length=1, max_length=1_000, description="Python regular expression, matched line by line.")
    path: str = Field(".", max_length=4096, description="Folder or file to search, relative to the workspace.")
    glob: str = Field(
        "*",
        min_length=1,
        max_length=200,
        description="Only files whose name or path matches, as *.py, src/**/*.{ts,tsx} or tests/*.",
    )
    around: int = Field(0, ge=0, le=10, description="Lines to show before and after each match.")


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
        lines.append(f"… more than {answer.shown} lines match. Narrow the pattern, the path or the glob.")
    return ToolResult(clean("\n".join(lines)))


async def _search(input: Input, workspace: Workspace) -> Hits:
    """Read files here and match in a child process: a regular expression can run without end, and only a process can be
    stopped."""
    limits = (str(_MOST_HITS), str(_MOST_CHARS), str(input.around))
    async with start_script(_MATCHER, json.dumps(input.pattern), *limits) as matcher:
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
        while batch := await asyncio.to_thread(_take, contents):
            matcher.stdin.write(b"".join(batch))
            await matcher.stdin.drain()
        matcher.stdin.close()
        await matcher.stdin.wait_closed()
    except (BrokenPipeError, ConnectionResetError):
        pass  # it has found enough or rejects the pattern; its output says which


def _take(contents: Iterator[tuple[bytes, bytes]]) -> list[bytes]:
    """The next files as the matcher reads them: a thread for each small one would cost more than the search."""
    batch: list[bytes] = []
    size = 0
    for name, content in contents:
        batch += [struct.pack("<II", len(name), len(content)), name, content]
        size += len(content)
        if size > _AT_ONCE:
            break
    return batch


def _contents(input: Input, workspace: Workspace) -> Iterator[tuple[bytes, bytes]]:
    total, wanted = 0, _matcher(input.glob)
    entries = workspace.walk(input.path, recursive=True, without=workspace.ignore_rules(input.path))
    for entry in islice(entries, _MOST_FILES):
        if entry.kind != "file" or not wanted(entry.path) or entry.size > _LARGEST or total > _MOST_BYTES:
            continue
        try:
            content = workspace.read(entry.path, _LARGEST)
        except PathError:
            continue  # removed, or not readable
        if b"\0" not in content[:8192]:
            total += len(content)
            yield os.fsencode(entry.path), content


def _matcher(glob: str) -> Callable[[str], bool]:
    """Whether a path is meant. `{a,b}` is either, and `**/` also no folder at all."""
    forms = [glob]
    while len(forms) < _MOST_FORMS and (found := _BRACES.search(forms[0])):
        first = forms.pop(0)
        forms += [first[: found.start()] + one + first[found.end() :] for one in found[1].split(",")]
    forms += [form.replace("**/", "") for form in forms if "**/" in form]
    return lambda path: any(
        fnmatch.fnmatchcase(one, form) for form in forms for one in (path, PurePosixPath(path).name)
    )


TOOL = Tool(
    name="search_files",
    description=(
        "Search the text files of the workspace with a regular expression; answers path:line: text. In a repository "
        "it skips .git and what git ignores, unless `path` names it. Use it to find where something is before reading "
        "whole files."
    ),
    input=Input,
    run=run,
    effect=Effect.READ,
    subject=Subject(kind=SubjectKind.PATH, fields=("path",)),
    touches=(SubjectKind.PATH,),
    summary=lambda input: f"search {input.pattern!r} in {input.path}",
)

"""The tool search_files: lines that match a regular expression."""

import asyncio
import fnmatch
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import PurePosixPath

from pydantic import Field

from activities.tools.support.paths import Workspace
from activities.tools.tool import Tool, ToolContext, ToolInput, ToolResult, clean
from domain.patterns import PatternError, check_pattern, matches
from domain.policy.rules import PathError, Subject, SubjectKind
from domain.sessions.session import Effect

_TIME_S = 20.0
_MOST_FILES, _LARGEST, _MOST_BYTES = 100_000, 2_000_000, 100_000_000
_MOST_HITS, _MOST_CHARS, _SHOWN = 200, 15_000, 300  # less than run_tool keeps in a result
_BRACES = re.compile(r"\{([^{}]*)\}")


class Input(ToolInput):
    pattern: str = Field(
        min_length=1, max_length=900, description="Regular expression without lookaround, matched line by line."
    )
    path: str = Field(".", max_length=4096, description="Folder or file to search, relative to the workspace.")
    glob: str = Field(
        "*",
        min_length=1,
        max_length=200,
        description="Only files whose name or path matches, as *.py, src/**/*.{ts,tsx} or tests/*.",
    )


async def run(input: Input, context: ToolContext) -> ToolResult:
    thread = ThreadPoolExecutor(1, "search_files")  # its own: a search may take long, and no other tool waits for it
    try:
        check_pattern(input.pattern)
        search = partial(_search, input, Workspace(context.workspace))
        found = await asyncio.get_running_loop().run_in_executor(thread, search)
    except (PatternError, PathError) as error:
        return ToolResult(f"Nothing was searched: {error}", failed=True)
    finally:
        thread.shutdown(wait=False)
    return ToolResult(clean("\n".join(found)) or "Nothing matches.")


def _search(input: Input, workspace: Workspace) -> list[str]:
    """The lines that match. Nothing can stop the thread in which this runs: a pattern takes linear time, and files and
    time are bounded."""
    found: list[str] = []
    room, until = _MOST_CHARS, time.monotonic() + _TIME_S
    stopped = f"… the search was stopped after {_TIME_S:.0f} seconds. Search a smaller folder."
    by_line = any(end in input.pattern for end in (r"\A", r"\z"))  # they mean the line's, not the file's
    for path, text in _texts(input, workspace):
        if time.monotonic() > until:
            return [*found, stopped]
        if not by_line and not matches(f"(?m){input.pattern}", text):  # much faster than line by line
            continue
        for number, line in enumerate(text.removesuffix("\n").split("\n"), start=1):
            if time.monotonic() > until:
                return [*found, stopped]
            if not matches(input.pattern, line):
                continue
            hit = f"{path}:{number}: {line[:_SHOWN].rstrip()}"
            room -= len(hit)
            if room < 0 or len(found) == _MOST_HITS:
                return [*found, f"… more than {len(found)} lines match. Narrow the pattern, the path or the glob."]
            found.append(hit)
    return found


def _texts(input: Input, workspace: Workspace) -> Iterator[tuple[str, str]]:
    """The files to search, by path."""
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
            yield entry.path, content.decode(errors="replace")


def _matcher(glob: str) -> Callable[[str], bool]:
    """Whether a path is meant. The first `{a,b}` is either, and `**/` also no folder at all."""
    braces = _BRACES.search(glob)
    forms = [glob[: braces.start()] + one + glob[braces.end() :] for one in braces[1].split(",")] if braces else [glob]
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

"""The tool read_file: numbered lines of a text file; a picture or a PDF as the model sees it."""

import asyncio
import hashlib
import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from io import BufferedReader
from pathlib import PurePosixPath

from errand.models import Source
from pydantic import Field

from activities.tools.support.paths import Workspace
from activities.tools.tool import SHOWN, ArtifactFile, Tool, ToolContext, ToolInput, ToolResult, clean
from domain.amounts import format_count
from domain.pictures import MOST_BYTES, NotShown, inspect, media_type_of
from domain.policy.rules import Subject, SubjectKind, canonical_path
from domain.sessions.session import Effect

_MOST_CHARS = 15_000  # less than run_tool keeps in a result, so that no page is cut
_LONGEST_LINE = 2_000


class Input(ToolInput):
    path: str = Field(min_length=1, max_length=4096, description="File, relative to the workspace.")
    offset: int = Field(1, ge=1, le=10_000_000, description="First line to read; lines count from 1.")
    limit: int = Field(400, ge=1, le=5_000, description="Most lines to read.")


async def run(input: Input, context: ToolContext) -> ToolResult:
    return await asyncio.to_thread(_read, input, Workspace(context.workspace))


def _read(input: Input, workspace: Workspace) -> ToolResult:
    with workspace.open(input.path) as fd, os.fdopen(fd, "rb", closefd=False) as file:
        start = file.peek(8192)[:8192]
        if (kind := media_type_of(start)) is not None:
            return _show(input.path, kind, file)
        if b"\0" in start:
            size = os.fstat(fd).st_size
            return ToolResult(f"{input.path!r} is binary ({size:,} bytes). Look into it with bash.", failed=True)
        page = _page(input, iter(lambda: file.readline(1 << 20), b""))
        return replace(page, sources=[_source(input.path, file)])


def _show(path: str, media_type: str, file: BufferedReader) -> ToolResult:
    content = file.read(MOST_BYTES + 1)
    try:
        inspect(content)
    except NotShown as error:
        return ToolResult(f"{path!r} cannot be shown: {error}. Change it with bash first.", failed=True)
    shown = ArtifactFile(PurePosixPath(path).name, content, media_type, SHOWN, path=canonical_path(path), shown=True)
    text = f"{path!r} is of the type {media_type} and has {len(content):,} bytes."
    return ToolResult(text, artifacts=[shown], sources=[_source(path, file)])


def _source(path: str, file: BufferedReader) -> Source:
    """The source record: the file as a whole, whichever page was read."""
    read_at = datetime.now(UTC)
    file.seek(0)
    return Source(
        kind="file", name=canonical_path(path), at=read_at, sha256=hashlib.file_digest(file, "sha256").hexdigest()
    )


def _page(input: Input, lines: Iterator[bytes]) -> ToolResult:
    page: list[str] = []
    used = number = 0
    more = False
    for number, raw in enumerate(lines, start=1):
        if number < input.offset:
            continue
        line = _number_line(number, raw)
        if len(page) == input.limit or (page and used + len(line) > _MOST_CHARS):
            more = True
            break
        page.append(line)
        used += len(line) + 1
    if not number:
        return ToolResult("(empty file)")
    if not page:
        count = format_count(number, "line")
        return ToolResult(f"{input.path!r} has only {count}; offset {input.offset} is behind its end.", failed=True)
    if more:
        page.append(f"… there is more: continue with offset={number}.")
    return ToolResult("\n".join(page))


def _number_line(number: int, raw: bytes) -> str:
    text = clean(raw.decode(errors="replace")).rstrip("\r\n")
    if len(text) > _LONGEST_LINE:
        text = f"{text[:_LONGEST_LINE]}… ({len(text):,} characters in this line)"
    return f"{number:>6}  {text}"


TOOL = Tool(
    name="read_file",
    description=(
        "Read a text file of the workspace as numbered lines. Long files come in pages: pass the offset the last page "
        "names. The numbers are not part of the file. A picture (png, jpeg, gif, webp) or a PDF is shown to you."
    ),
    input=Input,
    run=run,
    effect=Effect.READ,
    subject=Subject(kind=SubjectKind.PATH, fields=("path",)),
    touches=(SubjectKind.PATH,),
    summary=lambda input: f"read {input.path}" + (f" from line {input.offset}" if input.offset > 1 else ""),
)

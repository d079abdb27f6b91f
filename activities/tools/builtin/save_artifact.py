"""The tool save_artifact: a file of the workspace, or an address, as part of the result."""

import asyncio
import mimetypes
from pathlib import PurePosixPath

from httpx2 import URL, InvalidURL
from pydantic import Field, model_validator

from activities.tools.support.paths import Workspace
from activities.tools.tool import ArtifactFile, Tool, ToolContext, ToolInput, ToolResult, clean, clean_text
from domain.policy.rules import Subject, SubjectKind, path_parts
from domain.sessions.session import Effect, EffectKind

_LARGEST = 20_971_520


class Input(ToolInput):
    path: str | None = Field(None, min_length=1, max_length=4096, description="File, relative to the workspace.")
    url: str | None = Field(
        None, min_length=1, max_length=2_048, description="Instead of a file: the https address of what was made."
    )
    name: str | None = Field(None, min_length=1, max_length=255, description="Name for the caller, if another.")
    type: str = Field(
        "file",
        pattern=r"^[a-z][a-z0-9_]{0,31}$",
        description="What it is: file, report, code, data, image; of an address pull_request, ticket, page.",
    )
    description: str = Field("", max_length=1_000, description="One sentence about it.")

    @model_validator(mode="after")
    def _one_of_two(self) -> "Input":
        if (self.path is None) == (self.url is None):
            raise ValueError("give either path or url")
        return self


async def run(input: Input, context: ToolContext) -> ToolResult:
    return _address(input, input.url) if input.url is not None else await _file(input, input.path or "", context)


def _address(input: Input, given: str) -> ToolResult:
    """Save an address. It is never opened, and is stored as a small file so that it is kept and removed like one."""
    try:
        url = URL(given)
    except InvalidURL:
        url = URL("")
    if url.scheme not in ("http", "https") or not url.host or url.userinfo or not given.isprintable() or " " in given:
        return ToolResult(f"{clean(given)!r} is not an http or https address without a password.", failed=True)
    kind = "link" if input.type == "file" else input.type
    name = input.name or PurePosixPath(url.path).name or url.host
    if bad_name(name):
        name = kind
    content = f"{given}\n".encode()
    artifact = ArtifactFile(name, content, "text/uri-list", kind, clean(input.description).strip(), given)
    return ToolResult(f"Saved the address {given} as {name}.", artifacts=[artifact])


async def _file(input: Input, path: str, context: ToolContext) -> ToolResult:
    name = input.name or PurePosixPath(path).name
    if reason := bad_name(name):
        return ToolResult(
            f"{clean(name)!r} cannot be the name of an artifact: {reason}. Give another name.", failed=True
        )
    content = await asyncio.to_thread(Workspace(context.workspace).read, path, _LARGEST + 1)
    if len(content) > _LARGEST:
        return ToolResult(f"{path!r} is larger than {_LARGEST:,} bytes. Save a smaller file.", failed=True)
    artifact = ArtifactFile(
        name,
        content,
        media_type(name, content),
        input.type,
        clean(input.description).strip(),
        path="/".join(path_parts(path)),
    )
    return ToolResult(f"Saved {name} ({len(content):,} bytes).", artifacts=[artifact])


def bad_name(name: str) -> str | None:
    """Why this name is not safe as a file name on the caller's machine, or None."""
    if any(mark in name for mark in "/\\") or name in (".", "..") or ".." in name:
        return "it contains / or \\ or '..'"
    if clean_text(name) != name or not name.isprintable():
        return "it contains control or invisible characters"
    if name.startswith("-") or not name.strip():
        return "it begins with '-' or is blank"
    return "it is longer than 255 bytes" if len(name.encode()) > 255 else None


def media_type(name: str, content: bytes) -> str:
    guessed = mimetypes.guess_type(name, strict=False)[0]
    if guessed:
        return guessed
    return "application/octet-stream" if b"\0" in content[:8192] else "text/plain"


TOOL = Tool(
    name="save_artifact",
    description=(
        "Hand a workspace file to the caller as part of the result: a report, code, data. Write the file first. Only "
        "saved files reach the caller. What exists elsewhere, such as a pull request, is handed over by its url."
    ),
    input=Input,
    run=run,
    effect=Effect.IDEMPOTENT,
    kind=EffectKind.ARTIFACT,
    subject=Subject(kind=SubjectKind.PATH, fields=("path",)),
    touches=(SubjectKind.PATH,),
    summary=lambda input: f"save {input.path or input.url}",
)

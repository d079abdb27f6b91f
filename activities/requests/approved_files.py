"""The files that an approved command would run. They are shown with their content when people are asked, and must still
have that content when the command runs."""

import asyncio
import hashlib
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from activities.tools.support.paths import Workspace
from activities.tools.tool import Tool
from domain.policy.command_files import files_named
from domain.policy.subjects import PathError, SubjectKind
from domain.sessions.input_request import ApprovedFile, InputRequest
from store import files, workspaces
from store.database import Pool

_CHARACTERS = 20_000  # of all files together that people are shown
_CHUNK = 1 << 20


def runs_commands(tool: Tool) -> bool:
    return tool.subject is not None and tool.subject.kind is SubjectKind.COMMAND


def command_of(tool: Tool, arguments: Any) -> str | None:
    """The command of a call, if its tool runs one."""
    if tool.subject is None or not runs_commands(tool) or not isinstance(arguments, dict):
        return None
    value = tool.subject.value(arguments)
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


_APPROVED = TypeAdapter(list[ApprovedFile])


async def files_to_approve(pool: Pool, tenant: str, workspace_id: str, command: str) -> list[ApprovedFile]:
    _, manifest = await workspaces.get(pool, tenant, workspace_id)
    found: list[ApprovedFile] = []
    room = _CHARACTERS
    for path in files_named(command, manifest):
        digest, size = manifest[path]["sha256"], manifest[path]["size"]
        text = await _text(pool, tenant, digest) if size <= room else None
        room -= len(text or "")
        found.append(ApprovedFile(path=path, sha256=digest, size=size, text=text))
    return found


async def changed_since(
    pool: Pool, tenant: str, workspace_id: str, folder: Path, tool: Tool, approval: InputRequest
) -> list[str]:
    """The files whose content differs from what people saw: changed, removed, or added since.

    A person who approved a changed command is expected to know which files that one runs.
    """
    command = None if "arguments" in approval.answer else command_of(tool, approval.details["arguments"])
    shown = {one.path: one.sha256 for one in _APPROVED.validate_python(approval.details.get("files", []))}
    _, manifest = await workspaces.get(pool, tenant, workspace_id)
    paths = {*files_named(command or "", manifest), *shown}
    now = {path: await asyncio.to_thread(_digest, folder, path) for path in paths}
    return sorted(path for path, digest in now.items() if digest != shown.get(path))


async def _text(pool: Pool, tenant: str, digest: str) -> str | None:
    content = (await files.get_blobs(pool, tenant, [digest])).get(digest)
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError:
        return None


def _digest(folder: Path, path: str) -> str | None:
    digest = hashlib.sha256()
    try:
        with Workspace(folder).open(path) as fd, open(fd, "rb", closefd=False) as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except PathError:
        return None
    return digest.hexdigest()

"""The files that an approved command would run. They are shown with their content when people are asked, and must still
have that content when the command runs."""

import asyncio
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from activities.tools.support.paths import Workspace
from activities.tools.tool import Tool
from domain.policy.command_files import files_named
from domain.policy.rules import PathError, SubjectKind
from domain.sessions.input_request import ApprovedFile, ApprovedFiles, InputRequest, MoreFiles
from store import files, workspaces
from store.database import Pool
from store.workspaces import Manifest, ManifestEntry

_CHARACTERS = 20_000  # of all files together that people are shown
_SHOWN = 50  # files
_SPARSE = 20_000_000  # bytes of a file with holes, which is hashed as it is read
_CHUNK = 1 << 20


def runs_commands(tool: Tool) -> bool:
    return tool.subject is not None and tool.subject.kind is SubjectKind.COMMAND


def command_of(tool: Tool, arguments: Any) -> str | None:
    """The command of a call, if its tool runs one."""
    if tool.subject is None or not runs_commands(tool) or not isinstance(arguments, dict):
        return None
    value = tool.subject.value(arguments)
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


async def files_to_approve(pool: Pool, tenant: str, workspace_id: str, command: str) -> ApprovedFiles:
    _, manifest = await workspaces.get(pool, tenant, workspace_id)
    paths = await asyncio.to_thread(_named, command, manifest)
    found: list[ApprovedFile] = []
    room = _CHARACTERS
    for path in paths[:_SHOWN]:
        shown = await _as_shown(pool, tenant, path, manifest[path], room)
        room -= len(shown.text or "")
        found.append(shown)
    more = {path: await _kept_digest(pool, tenant, manifest[path]) for path in paths[_SHOWN:]}
    return ApprovedFiles(files=found, more_files=MoreFiles(count=len(more), sha256=_sum(more)) if more else None)


async def changed_since(
    pool: Pool, tenant: str, workspace_id: str, folder: Path, tool: Tool, approval: InputRequest
) -> list[str]:
    """The files whose content differs from what people saw: changed, removed, or added since.

    A person who approved a changed command is expected to know which files that one runs.
    """
    command = None if "arguments" in approval.answer else command_of(tool, approval.details["arguments"])
    approved = ApprovedFiles.model_validate(approval.details)
    shown = {one.path: one.sha256 for one in approved.files}
    _, manifest = await workspaces.get(pool, tenant, workspace_id)
    paths = {*await asyncio.to_thread(_named, command or "", manifest), *shown}
    now = await asyncio.to_thread(lambda: {path: _digest(folder, path) for path in paths})
    more = {path: digest for path, digest in now.items() if path not in shown}
    if approved.more_files is not None and _sum(more) == approved.more_files.sha256:
        now = {path: digest for path, digest in now.items() if path in shown}
    return sorted(path for path, digest in now.items() if digest != shown.get(path))


def _named(command: str, manifest: Manifest) -> list[str]:
    links = {path: entry["target"] for path, entry in manifest.items() if entry.get("kind") == "link"}
    return files_named(command, (path for path, entry in manifest.items() if "kind" not in entry), links)


async def _as_shown(pool: Pool, tenant: str, path: str, entry: ManifestEntry, room: int) -> ApprovedFile:
    digest = await _kept_digest(pool, tenant, entry)
    if "target" in entry:
        return ApprovedFile(path=path, sha256=digest, size=0, text=f"a link to {entry['target']}")
    size = entry.get("length", entry["size"])
    text = await _text(pool, tenant, digest) if size <= room and "extents" not in entry else None
    return ApprovedFile(path=path, sha256=digest, size=size, text=text)


async def _kept_digest(pool: Pool, tenant: str, entry: ManifestEntry) -> str:
    """The digest that _digest finds on a worker whose file is unchanged since it was saved."""
    if "target" in entry:
        return _link_digest(entry["target"])
    if "extents" in entry and entry["length"] <= _SPARSE:
        content = (await files.get_blobs(pool, tenant, [entry["sha256"]])).get(entry["sha256"], b"")
        return hashlib.sha256(workspaces.with_holes(entry, content)).hexdigest()
    return entry["sha256"]


def _link_digest(target: str) -> str:
    return hashlib.sha256(os.fsencode(f"link {target}")).hexdigest()


def _sum(digests: Mapping[str, str | None]) -> str:
    return hashlib.sha256(json.dumps(sorted(digests.items())).encode()).hexdigest()


async def _text(pool: Pool, tenant: str, digest: str) -> str | None:
    content = (await files.get_blobs(pool, tenant, [digest])).get(digest)
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError:
        return None


def _digest(folder: Path, path: str) -> str | None:
    digest = hashlib.sha256()
    workspace = Workspace(folder)
    try:
        if (target := workspace.link_target(path)) is not None:
            return _link_digest(target)
        with workspace.open(path) as fd, open(fd, "rb", closefd=False) as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except PathError:
        return None
    return digest.hexdigest()

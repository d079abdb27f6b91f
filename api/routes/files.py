"""/files: upload, download, delete; /tasks/{id}/workspace: the files of a task and its changes to them."""

import re
from typing import Annotated, Literal
from urllib.parse import quote

from errand import models
from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, Field

from api.http import body
from api.http.auth import Call, Reader, Stopper, Submitter
from api.http.lookup import check_kept, check_owner, find, session_of
from api.http.paging import Parameters
from api.http.problems import Unreadable
from api.http.transfers import SECONDS, send_file, take_turn
from api.openapi import BODY, problems, request_body
from api.submission.task_files import check_file_name, quota_exceeded
from api.views.texts import compute
from domain.differences import DiffRow, diff, read_diff
from domain.errors import Conflict, Gone, NotFound
from store import files, workspaces
from store.files import File
from store.sessions import SessionRow
from store.workspaces import Manifest, ManifestEntry, with_holes

router = APIRouter(tags=["files"])

_MEDIA_TYPE = re.compile(r"[A-Za-z0-9.+_-]{1,60}/[A-Za-z0-9.+_-]{1,60}(?:; ?charset=[A-Za-z0-9_-]{1,20})?")
_BINARY = {"schema": {"type": "string", "format": "binary"}}


class FileQuery(Parameters):
    name: str = Field(max_length=1_000, description="path in the workspace, perhaps with folders")


@router.post(
    "/files",
    status_code=201,
    responses=problems(409, *BODY),
    dependencies=[Depends(take_turn)],
    openapi_extra=request_body({"application/octet-stream": _BINARY, "text/plain": _BINARY}),
    summary="Upload a file",
)
async def upload_file(request: Request, call: Submitter, query: Annotated[FileQuery, Query()]) -> models.File:
    """The body is the file. Its id goes into a task's `context.files`."""
    name = check_file_name(query.name)
    kind = request.headers.get("content-type", "application/octet-stream").strip()
    # it becomes a header of the download, so that it must not contain anything else
    if not _MEDIA_TYPE.fullmatch(kind):
        raise Unreadable(415, "unsupported-media-type", "The Content-Type must be a plain media type.")
    content = await body.read_body(request, call.settings.max_file_bytes, SECONDS)
    quota = call.settings.tenant_upload_bytes
    # the quota is checked in the same transaction, because two uploads at once would both fit
    kept = await files.put(call.pool, call.tenant, name, kind, content, call.caller.created_by, quota)
    if kept is None:
        used = await files.count_uploaded_bytes(call.pool, call.tenant)
        raise quota_exceeded("uploaded files", "ERRAND_TENANT_UPLOAD_BYTES", quota, used, len(content))
    return _record(kept)


@router.get(
    "/files/{file_id}",
    response_class=Response,
    responses={200: {"description": "The bytes", "content": {"*/*": _BINARY}}},
    dependencies=[Depends(take_turn)],
    summary="Download a file",
)
async def download_file(call: Reader, file_id: str) -> Response:
    name, media_type, content = await find(call, files.content, file_id)
    headers = {
        "Content-Type": media_type,  # exactly as uploaded: the framework would add a charset
        # a browser must not render or run an agent's file in our origin
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Cache-Control": "private, no-store",
    }
    return send_file(content, headers)


@router.delete("/files/{file_id}", status_code=204, responses=problems(409), summary="Delete an uploaded file")
async def delete_file(call: Stopper, file_id: str) -> Response:
    """Workspaces with its content keep it. An artifact is part of a result and stays as long as the result."""
    found = await find(call, files.get, file_id)
    check_owner(call.caller, found)
    if found.session_id is not None:
        detail = "This is an artifact; it is removed with its task."
        raise Conflict(detail, type="file-in-use", task_id=found.session_id)
    user = await files.delete(call.pool, call.tenant, file_id, call.caller.created_by)
    if user is not None:
        detail = "A task that has not ended was given this file; delete it afterwards, or cancel the task."
        raise Conflict(detail, type="file-in-use", task_id=user)
    return Response(status_code=204)


def _record(file: File) -> models.File:
    return models.File(
        file_id=file.id,
        name=file.name,
        size=file.size,
        sha256=file.sha256,
        media_type=file.media_type,
        url=f"/files/{file.id}",
        created_at=file.created_at,
    )


# /tasks/{id}/workspace: the files of a task's workspace, the task's changes to them, and their content.


MOST_BYTES = 67_108_864  # a sparse file may be far longer than its stored bytes


Kind = Literal["file", "folder", "link"]


class ComparedFileQuery(Parameters):
    path: str = Field(min_length=1, max_length=4_000)


class WorkspaceFileQuery(ComparedFileQuery):
    before: bool = Field(default=False, description="true: as it was when the task began")


@router.get("/tasks/{task_id}/workspace", responses=problems(410), summary="List the files of a task's workspace")
async def list_workspace(call: Reader, task_id: str) -> models.WorkspaceListing:
    """The saved state after the latest tool call, also while the task is running."""
    session = await session_of(call, task_id)
    check_kept(session)
    now, before = await _manifests(call, session)
    paths = sorted({*now, *before})
    return models.WorkspaceListing(items=[_list_path(path, now.get(path), before.get(path)) for path in paths])


@router.get(
    "/tasks/{task_id}/workspace/file",
    response_class=Response,
    responses={**problems(409, 410), 200: {"description": "The bytes", "content": {"*/*": _BINARY}}},
    dependencies=[Depends(take_turn)],
    summary="Read a file of a task's workspace",
)
async def read_workspace_file(call: Reader, task_id: str, query: Annotated[WorkspaceFileQuery, Query()]) -> Response:
    session = await session_of(call, task_id)
    check_kept(session)
    now, before = await _manifests(call, session)
    entry = (before if query.before else now).get(query.path)
    if entry is None or "sha256" not in entry:
        raise NotFound()
    found = await files.get_blobs(call.pool, call.tenant, [entry["sha256"]])
    if entry["sha256"] not in found:
        raise Gone("The content of this file is no longer kept.")
    if entry.get("length", 0) > MOST_BYTES:
        raise Conflict("This file is too large to be read in one piece.", type="file-too-large", size=entry["length"])
    # a browser must not render or run an agent's file in our origin
    headers = {
        "Content-Type": "application/octet-stream",
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Content-Disposition": "attachment",
    }
    return send_file(with_holes(entry, found[entry["sha256"]]), headers)


class FileDifference(BaseModel):
    rows: list[DiffRow]
    note: str | None = Field(default=None, description="why there are no rows")


LARGEST_COMPARED = 1_000_000  # bytes


@router.get(
    "/tasks/{task_id}/workspace/difference",
    responses=problems(410),
    dependencies=[Depends(take_turn)],
    summary="Compare a file of a task's workspace with its beginning",
)
async def compare_workspace_file(
    call: Reader, task_id: str, query: Annotated[ComparedFileQuery, Query()]
) -> FileDifference:
    session = await session_of(call, task_id)
    check_kept(session)
    entries = [manifest.get(query.path) for manifest in await _manifests(call, session)]
    if not any(entries):
        raise NotFound()
    if any(entry and ("sha256" not in entry or _length(entry) > LARGEST_COMPARED) for entry in entries):
        return FileDifference(rows=[], note="It is not a file, or too large to be compared.")
    found = await files.get_blobs(call.pool, call.tenant, [entry["sha256"] for entry in entries if entry])
    try:
        now, before = (
            with_holes(entry, found[entry["sha256"]]).decode() if entry is not None else None for entry in entries
        )
    except KeyError:
        return FileDifference(rows=[], note="Its content is no longer kept.")
    except UnicodeDecodeError:
        return FileDifference(rows=[], note="It is not text.")
    rows = await compute(lambda: read_diff(diff(query.path, before, now or "")))
    return FileDifference(rows=[row for row in rows if row.kind != "file"])


def _length(entry: ManifestEntry) -> int:
    return entry.get("length", entry.get("size", 0))


async def _manifests(call: Call, session: SessionRow) -> tuple[Manifest, Manifest]:
    """The workspace now, and at the beginning of the task."""
    _, now = await workspaces.get(call.pool, call.tenant, session.workspace_id)
    return now, await workspaces.as_of(call.pool, call.tenant, session.workspace_id, session.created_at)


def _list_path(path: str, now: ManifestEntry | None, before: ManifestEntry | None) -> models.WorkspaceFile:
    entry = now or before or {}
    change = "removed" if now is None else "added" if before is None else "modified" if now != before else None
    return models.WorkspaceFile.model_validate(
        {
            "path": path,
            "kind": entry.get("kind", "file"),
            "kind_before": before.get("kind", "file") if before is not None else None,
            "size": _length(entry),
            "mode": entry.get("mode"),
            "mode_before": (before or {}).get("mode"),
            "target": entry.get("target"),
            "change": change,
        }
    )

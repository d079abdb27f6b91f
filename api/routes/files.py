"""/files: upload, list, download, delete."""

import re
from typing import Annotated
from urllib.parse import quote

from errand import models
from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from api.http import body
from api.http.auth import Reader, Stopper, Submitter
from api.http.body import accepts_json
from api.http.lookup import check_owner
from api.http.paging import cursor, position
from api.http.problems import Unreadable, finding
from api.openapi import BODY, problems, request_body
from api.schemas.files import check_file_name
from api.submission import budgets
from domain.errors import Conflict, Invalid, NotFound
from domain.ids import is_id
from store import files
from store.files import File

router = APIRouter(tags=["files"])

UPLOAD_SECONDS = 120.0
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9.+_-]{1,60}/[A-Za-z0-9.+_-]{1,60}(?:; ?charset=[A-Za-z0-9_-]{1,20})?")
_BINARY = {"schema": {"type": "string", "format": "binary"}}


class FileQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(max_length=1_000, description="path in the workspace, perhaps with folders")
    sha256: str | None = Field(default=None, pattern="^[0-9a-f]{64}$", description="refused unless the bytes match")


@router.post(
    "/files",
    status_code=201,
    responses=problems(409, *BODY),
    dependencies=[Depends(accepts_json)],
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
    content = await body.read_body(request, call.settings.max_file_bytes, UPLOAD_SECONDS)
    digest = files.digest_of(content)
    if query.sha256 not in (None, digest):
        problem = finding("/sha256", "digest_mismatch", "the bytes that arrived have another digest", place="query")
        raise Invalid("The content does not match its digest.", type="digest-mismatch", errors=[problem])
    quota = call.settings.tenant_upload_bytes
    # the quota is checked in the same transaction, because two uploads at once would both fit
    kept = await files.put(call.pool, call.tenant, name, kind, content, call.caller.created_by, quota)
    if kept is None:
        used = await files.uploaded_bytes(call.pool, call.tenant)
        raise budgets.exceeded("uploaded files", "ERRAND_TENANT_UPLOAD_BYTES", quota, used, len(content))
    return _record(kept)


class FileListQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    own: bool = Field(default=False, description="true: only what the caller's own key uploaded")
    cursor: str | None = Field(default=None, max_length=200)
    limit: int = Field(default=50, ge=1, le=200)


@router.get(
    "/files",
    responses=problems(422),
    dependencies=[Depends(accepts_json)],
    summary="List uploaded files, the newest first",
)
async def list_files(call: Reader, query: Annotated[FileListQuery, Query()]) -> models.FilePage:
    """Artifacts are not among them: they are part of their task's result."""
    filters = {"own": query.own}
    page = await files.uploads(
        call.pool,
        call.tenant,
        created_by=call.caller.created_by if query.own else None,
        before_id=position(filters, query.cursor),
        limit=query.limit + 1,
    )
    shown = page[: query.limit]
    return models.FilePage(
        items=[_record(one) for one in shown],
        next_cursor=cursor(filters, shown[-1].id) if len(page) > query.limit else None,
    )


@router.get(
    "/files/{file_id}",
    response_class=Response,
    responses={**problems(404), 200: {"description": "The bytes", "content": {"*/*": _BINARY}}},
    summary="Download a file",
)
async def download_file(call: Reader, file_id: str) -> Response:
    found = await files.content(call.pool, call.tenant, file_id) if is_id(file_id) else None
    if found is None:
        raise NotFound()
    name, media_type, content = found
    headers = {
        "Content-Type": media_type,  # exactly as uploaded: the framework would add a charset
        # a browser must not render or run an agent's file in our origin
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Cache-Control": "private, no-store",
    }
    return Response(content, headers=headers)


@router.get(
    "/files/{file_id}/meta",
    responses=problems(404),
    dependencies=[Depends(accepts_json)],
    summary="Name, size and digest of a file",
)
async def describe_file(call: Reader, file_id: str) -> models.File:
    found = await files.get(call.pool, call.tenant, file_id) if is_id(file_id) else None
    if found is None:
        raise NotFound()
    return _record(found)


@router.delete(
    "/files/{file_id}", status_code=204, responses=problems(403, 404, 409), summary="Delete an uploaded file"
)
async def delete_file(call: Stopper, file_id: str) -> Response:
    """Workspaces with its content keep it. An artifact is part of a result and stays as long as the result."""
    found = await files.get(call.pool, call.tenant, file_id) if is_id(file_id) else None
    if found is None:
        raise NotFound()
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

"""/tasks/{id}/workspace: the files of a task's workspace, the task's changes to them, and their content."""

from typing import Annotated, Literal

from errand import models
from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from api.http.auth import Call, Reader
from api.http.lookup import check_kept, session_of
from api.openapi import problems
from domain.errors import Conflict, Gone, NotFound
from store import files, workspaces
from store.sessions import SessionRow
from store.workspaces import Manifest, ManifestEntry, with_holes

router = APIRouter(tags=["tasks"])

MOST_BYTES = 268_435_456  # a sparse file may be far longer than its stored bytes
_BINARY = {"schema": {"type": "string", "format": "binary"}}


Kind = Literal["file", "folder", "link"]


class WorkspaceFileQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    path: str = Field(min_length=1, max_length=4_000)
    before: bool = Field(default=False, description="true: as it was when the task began")


@router.get("/tasks/{task_id}/workspace", responses=problems(404, 410), summary="List the files of a task's workspace")
async def list_workspace(call: Reader, task_id: str) -> models.WorkspaceListing:
    """The saved state after the latest tool call, also while the task is running."""
    session = await session_of(call, task_id)
    check_kept(session)
    now, before = await _manifests(call, session)
    paths = sorted({*now, *before})
    return models.WorkspaceListing(items=[_listed(path, now.get(path), before.get(path)) for path in paths])


@router.get(
    "/tasks/{task_id}/workspace/file",
    response_class=Response,
    responses={**problems(404, 409, 410, 422), 200: {"description": "The bytes", "content": {"*/*": _BINARY}}},
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
    headers = {"Content-Security-Policy": "default-src 'none'; sandbox", "Content-Disposition": "attachment"}
    content = with_holes(entry, found[entry["sha256"]])
    return Response(content, headers=headers, media_type="application/octet-stream")


async def _manifests(call: Call, session: SessionRow) -> tuple[Manifest, Manifest]:
    """The workspace now, and at the beginning of the task."""
    _, now = await workspaces.get(call.pool, call.tenant, session.workspace_id)
    return now, await workspaces.as_of(call.pool, call.tenant, session.workspace_id, session.created_at)


def _listed(path: str, now: ManifestEntry | None, before: ManifestEntry | None) -> models.WorkspaceFile:
    entry = now or before or {}
    change = "removed" if now is None else "added" if before is None else "modified" if now != before else None
    return models.WorkspaceFile.model_validate(
        {
            "path": path,
            "kind": entry.get("kind", "file"),
            "kind_before": before.get("kind", "file") if before is not None else None,
            "size": entry.get("length", entry.get("size", 0)),
            "mode": entry.get("mode"),
            "mode_before": (before or {}).get("mode"),
            "target": entry.get("target"),
            "change": change,
        }
    )

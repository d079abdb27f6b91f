"""Results, traces and files as resources."""

import base64

from mcp_types import (
    BlobResourceContents,
    Resource,
    ResourceTemplate,
    TextResourceContents,
)

from api.http.auth import Call
from api.routes import tasks
from domain.errors import Invalid, NotFound
from domain.ids import is_id
from domain.sessions.session import TERMINAL
from store import files
from store.keys import Right

LISTED = 20
MAX_BYTES = 1_048_576  # a resource is one JSON text, held whole by both sides
JSON = "application/json"
TEMPLATES = [
    ResourceTemplate(
        name="result",
        uri_template="errand://tasks/{task_id}/result",
        description="The result of a task that has ended: output, artifacts, effects, sources, usage.",
        mime_type=JSON,
    ),
    ResourceTemplate(
        name="trace",
        uri_template="errand://tasks/{task_id}/trace",
        description="Every step of a task: model and tool calls, their times, tokens and cost.",
        mime_type=JSON,
    ),
    ResourceTemplate(
        name="file", uri_template="errand://files/{file_id}", description="An artifact or an uploaded file."
    ),
]


async def newest(call: Call) -> list[Resource]:
    """The results of the newest tasks; the templates cover all others."""
    call.check_rights(Right.READ)
    page = await tasks.list_tasks(call, tasks.TaskQuery(status=sorted(TERMINAL), top_level=True, limit=LISTED))
    return [
        Resource(name=one.task_id, title=one.title, uri=f"errand://tasks/{one.task_id}/result", mime_type=JSON)
        for one in page.items
    ]


async def read(call: Call, uri: str) -> TextResourceContents | BlobResourceContents:
    call.check_rights(Right.READ)
    match uri.removeprefix("errand://").split("/") if uri.startswith("errand://") else []:
        case ["tasks", task_id, "result"]:
            result = await tasks.show_result(call, task_id, tasks.ResultQuery())
            return TextResourceContents(uri=uri, mime_type=JSON, text=result.model_dump_json())
        case ["tasks", task_id, "trace"]:
            trace = await tasks.show_trace(call, task_id, tasks.TraceQuery())
            return TextResourceContents(uri=uri, mime_type=JSON, text=trace.model_dump_json())
        case ["files", file_id] if is_id(file_id):
            return await _file(call, uri, file_id)
    raise NotFound("There is no such resource.")


async def _file(call: Call, uri: str, file_id: str) -> TextResourceContents | BlobResourceContents:
    known = (await files.find(call.pool, call.tenant, [file_id])).get(file_id)
    if known is not None and known.size > MAX_BYTES:
        raise Invalid(
            f"The file has {known.size} bytes, and a resource at most {MAX_BYTES}. GET /files/{file_id} returns it."
        )
    found = await files.content(call.pool, call.tenant, file_id)
    if found is None:
        raise NotFound("There is no such resource.")
    _, media_type, content = found
    try:
        return TextResourceContents(uri=uri, mime_type=media_type, text=content.decode())
    except UnicodeDecodeError:
        return BlobResourceContents(uri=uri, mime_type=media_type, blob=base64.b64encode(content).decode())

"""The views of a task in this protocol: structured, as text with links, and as the object of the tasks extension."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from mcp_types import CallToolResult, ContentBlock, ResourceLink, TextContent
from pydantic import BaseModel, Field

from api.faces.mcp.forms import form_of
from api.schemas.tasks import task_error
from domain.json_object import JsonObject
from domain.sessions.input_request import InputRequest
from domain.sessions.session import Reason, Status
from store.files import File
from store.sessions import SessionRow


class WaitingRequest(BaseModel):
    request_id: str
    task_id: str = Field(description="the task itself, or a subagent of it")
    kind: str
    question: str
    details: JsonObject
    answer_schema: JsonObject | None = Field(description="what the answer must look like; null: any text")
    deadline: datetime


class ArtifactLink(BaseModel):
    name: str
    uri: str
    media_type: str
    size: int


class McpTask(BaseModel):
    """The result of every tool."""

    task_id: str
    conversation_id: str
    agent: str
    title: str
    status: Status
    reason: Reason | None = Field(description="why it ended; null until then")
    partial: bool
    progress: str
    output: Any = Field(description="text, or JSON if the agent has an output schema")
    error: str | None
    artifacts: list[ArtifactLink]
    waiting_for: list[WaitingRequest] = Field(description="questions and approvals; answer them with task_answer")
    cost_usd: float | None
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None
    keep_until: datetime | None
    poll_interval_ms: int


def view(session: SessionRow, requests: Sequence[InputRequest], files: Sequence[File], poll_ms: int) -> McpTask:
    error, output = task_error(session), session.output
    return McpTask(
        task_id=session.id,
        progress=session.progress,
        output=json.loads(output) if session.typed and output else output,
        error=f"{error.type}: {error.message}" if error else None,
        artifacts=[_artifact(file) for file in files],
        waiting_for=[_waiting(one) for one in requests],
        cost_usd=session.usage.cost_usd,
        poll_interval_ms=poll_ms,
        **{name: getattr(session, name) for name in _SAME},
    )


def withheld(task: McpTask) -> McpTask:
    """The task for a caller who may act on it but not read it: only its status, as over HTTP."""
    texts = {"title": "", "progress": "", "output": None, "error": None}
    return task.model_copy(update={**texts, "artifacts": [], "waiting_for": [], "cost_usd": None})


_SAME = (
    *("conversation_id", "agent", "title", "status", "reason", "partial"),
    *("created_at", "updated_at", "ended_at", "keep_until"),
)


def _artifact(file: File) -> ArtifactLink:
    uri = file.url or f"errand://files/{file.id}"
    return ArtifactLink(name=file.name, uri=uri, media_type=file.media_type, size=file.size)


def _waiting(request: InputRequest) -> WaitingRequest:
    return WaitingRequest(
        request_id=request.id,
        task_id=request.session_id,
        kind=request.kind,
        question=request.question,
        details={name: value for name, value in request.details.items() if name != "so_far"},
        answer_schema=request.answer_schema,
        deadline=request.deadline,
    )


def shown(task: McpTask, note: str = "") -> CallToolResult:
    """The tool result about a task. A failed task is not a failure of the tool."""
    text = "\n".join(line for line in (note, *_lines(task)) if line)
    return CallToolResult(content=_content(task, text), structured_content=task.model_dump(mode="json"))


def result(task: McpTask) -> CallToolResult:
    """The final result of a call of an agent."""
    failed = task.status is not Status.COMPLETED
    text = "\n".join(_lines(task)) if failed else _text(task.output)
    return CallToolResult(
        content=_content(task, text), structured_content=task.model_dump(mode="json"), is_error=failed
    )


def _content(task: McpTask, text: str) -> list[ContentBlock]:
    links = [
        ResourceLink(type="resource_link", name=one.name, uri=one.uri, mime_type=one.media_type, size=one.size)
        for one in task.artifacts
    ]
    return [TextContent(type="text", text=text), *links]


def _lines(task: McpTask) -> list[str]:
    ended = f" ({task.reason}{', partial result' if task.partial else ''})" if task.reason else ""
    lines = [f"Task {task.task_id} of {task.agent}: {task.status}{ended}"]
    if task.error:
        lines.append(task.error)
    if task.status.terminal:
        return [*lines, _text(task.output)] if task.output is not None else lines
    for one in task.waiting_for:
        lines.append(f"It waits for the answer {one.request_id} ({one.kind}): {one.question}")
    if task.waiting_for:
        return [*lines, "Ask the person, then call task_answer."]
    return [*lines, task.progress, f'Call task_wait with task_id "{task.task_id}" for its result.']


def _text(output: Any) -> str:
    return output if isinstance(output, str) else "" if output is None else json.dumps(output, ensure_ascii=False)


def task_object(task: McpTask, askable: Sequence[InputRequest]) -> JsonObject:
    """A task of the extension. `askable`: requests that this client can show as forms and its caller may answer."""
    ttl = (task.keep_until - task.created_at).total_seconds() if task.keep_until else None
    found: JsonObject = {
        "taskId": task.task_id,
        "status": "working",
        "statusMessage": _message(task),
        "createdAt": task.created_at.isoformat(),
        "lastUpdatedAt": task.updated_at.isoformat(),
        "ttlMs": None if ttl is None else round(ttl * 1_000),
        "pollIntervalMs": task.poll_interval_ms,
    }
    if task.status is Status.CANCELLED:
        return found | {"status": "cancelled"}
    if task.status.terminal:
        whole = result(task).model_dump(mode="json", by_alias=True, exclude_none=True)
        return found | {"status": "completed", "result": whole}
    if askable:
        return found | {"status": "input_required", "inputRequests": {one.id: form_of(one) for one in askable}}
    return found


def earlier_task_object(task: McpTask) -> JsonObject:
    """A task as the version 2025-11-25 has it. Its result is another request, and it has no forms: what people are
    asked waits in the inbox."""
    now = task_object(task, [])
    failed = task.status is Status.FAILED
    return {
        **{name: now[name] for name in ("taskId", "statusMessage", "createdAt", "lastUpdatedAt")},
        "status": "failed" if failed else now["status"],
        "ttl": now["ttlMs"],
        "pollInterval": now["pollIntervalMs"],
    }


def _message(task: McpTask) -> str:
    if task.status.terminal:
        return _lines(task)[0]
    waiting = "; ".join(one.question for one in task.waiting_for)
    return (f"waits for people: {waiting}" if waiting else task.progress or task.status)[:500]

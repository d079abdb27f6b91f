"""The results of a tool call: its artifacts in the store, its outcome for the workflow, its digest for loop
detection."""

from activities.tools.tool import ArtifactFile, Tool, ToolResult
from domain import events as ev
from domain.ids import derive_id
from domain.json_object import JsonObject
from domain.limits.loops import call_digest
from domain.plan import Plan
from domain.sessions.input_request import RequestStatus
from domain.sessions.remote_call import PendingCall, RemoteCall, form_id
from domain.sessions.step import CallState, ToolOutcome, ToolRequest, preview
from domain.sessions.tool_writes import NewFile
from store import files, input_requests
from store.database import Pool


async def save_artifacts(pool: Pool, request: ToolRequest, artifacts: list[ArtifactFile]) -> list[NewFile]:
    """Store the bytes before the transaction, by content, so that a repetition stores nothing twice."""
    digests = await files.put_blobs(pool, request.ref.tenant, [artifact.content for artifact in artifacts])
    return [
        NewFile(
            id=derive_id(request.node, "artifact", request.index, place),
            sha256=digest,
            size=len(artifact.content),
            name=artifact.name,
            media_type=artifact.media_type,
            type=artifact.type,
            description=artifact.description,
            url=artifact.url,
            path=artifact.path,
        )
        for place, (digest, artifact) in enumerate(zip(digests, artifacts, strict=True))
    ]


def saved_event(file: NewFile) -> ev.ArtifactSaved:
    return ev.ArtifactSaved(name=file.name, artifact_type=file.type, file_id=file.id, size=file.size, url=file.url)


def repetition_digest(request: ToolRequest, tool: Tool | None, given: JsonObject, state: str, text: str) -> str | None:
    """The digest for loop detection. A recorded result has none, because it arrives sooner than the original."""
    if (tool is None and request.refusal is None) or (tool is not None and tool.polls):
        return None
    # leave out the name of the file for a long text, which differs from call to call
    text = text.replace(request.node[-8:], "")
    return call_digest(request.name, given, state, text)


def current_step(plan: Plan) -> str:
    return preview(plan.steps[plan.current - 1].title, 80)


def outcome_of(request: ToolRequest, state: CallState, text: str, **more: bool) -> ToolOutcome:
    outcome = ToolOutcome(index=request.index, name=request.name, state=state.for_model, preview=preview(text, 160))
    return outcome.model_copy(update=more)


def pending_outcome(request: ToolRequest, result: ToolResult) -> ToolOutcome:
    """The call continues elsewhere; there is nothing to commit yet."""
    remote = result.remote
    assert remote is not None
    pending = PendingCall(wait_ms=result.wait_ms, round=remote.round, forms=len(remote.forms))
    return ToolOutcome(index=request.index, name=request.name, pending=pending)


async def form_answers(pool: Pool, request: ToolRequest, remote: RemoteCall) -> dict[str, JsonObject | None]:
    """People's answers to the forms of a call that continues elsewhere, by key; None if they gave none."""
    found: dict[str, JsonObject | None] = {}
    for number, form in enumerate(remote.forms, start=1):
        request_id = form_id(request.node, request.index, remote.round, number)
        asked = await input_requests.get(pool, request.ref.tenant, request_id)
        found[form.key] = asked.answer if asked and asked.status is RequestStatus.ANSWERED else None
    return found

"""Declared tools: they have no code. A call has the effect that a binding or a stop rule of its side gives it."""

from dataclasses import replace

from activities.requests.external_tools import Arguments, CallersTool
from activities.tools.builtin import save_artifact
from activities.tools.tool import Tool, ToolContext, ToolResult, clean
from domain.agents.definition import AgentDefinition, Binding, DeclaredTool, Side
from domain.events import Progress
from domain.json_object import JsonObject
from domain.json_schema import fits, run_check
from domain.sessions.session import Effect, ToolRequest

DECLARED = "declared"  # the activity tool.declared runs them all
MOST_ATTACHMENTS = 50
MOST_STATUS = 500  # characters
MOST_PATH = 4096


def make_declared_tool(given: DeclaredTool, side: Side) -> Tool:
    async def run(arguments: Arguments, context: ToolContext) -> ToolResult:
        if not await run_check(fits, given.input_schema, arguments.model_dump()):
            return ToolResult(f"The arguments do not fit the input schema of {given.name}.", failed=True)
        return ToolResult("ok")

    files = any(one.attachments_property for one in side.bindings().values() if one.name == given.name)
    return CallersTool(
        name=given.name,
        description=given.description,
        run=run,
        activity=f"tool.{DECLARED}",
        effect=Effect.IDEMPOTENT,
        kind=None,
        touches=(),
        talks=True,
        bookkeeping=not files,  # attached files are read from the workspace, which may have to be restored first
        schema=given.input_schema,
    )


def find_declared(agent: AgentDefinition, request: ToolRequest) -> Tool | None:
    given = next((one for one in agent.declared_tools if one.name == request.name), None)
    return make_declared_tool(given, agent.side(request.agent.side)) if given else None


async def apply_binding(
    side: Side, tool: str, arguments: JsonObject, context: ToolContext, result: ToolResult
) -> ToolResult:
    """Add the effect of a side's binding to a call's result: a status, or attached files. A file that cannot be
    attached fails the call, so that the session does not end without it."""
    for field, binding in side.bindings().items():
        if binding.name != tool or result.failed:
            continue
        result = await _with_attachments(binding, arguments, context, result)
        if field == "session_status" and not result.failed:
            result = _with_status(binding, arguments, result)
    return result


def _with_status(binding: Binding, arguments: JsonObject, result: ToolResult) -> ToolResult:
    message = " ".join(clean(binding.message(arguments)).split())[:MOST_STATUS]
    if not message:
        return ToolResult("The status has no visible text.", failed=True)
    events = [*result.events, Progress(message=message)]
    return replace(result, progress=message, status_text=message, events=events)


async def _with_attachments(
    binding: Binding, arguments: JsonObject, context: ToolContext, result: ToolResult
) -> ToolResult:
    given = arguments.get(binding.attachments_property) if binding.attachments_property else None
    paths = [given] if isinstance(given, str) else given or []
    if not isinstance(paths, list) or not all(isinstance(path, str) and 0 < len(path) <= MOST_PATH for path in paths):
        return ToolResult(f"{binding.attachments_property} must be a path or a list of paths.", failed=True)
    if len(paths) > MOST_ATTACHMENTS:
        return ToolResult(f"At most {MOST_ATTACHMENTS} files can be handed over.", failed=True)
    artifacts = list(result.artifacts)
    for path in dict.fromkeys(paths):
        saved = await save_artifact.run(save_artifact.Input.model_validate({"path": path}), context)
        if saved.failed:
            return saved
        artifacts += saved.artifacts
    return replace(result, artifacts=artifacts)

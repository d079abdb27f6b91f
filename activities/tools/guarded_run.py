"""Run a tool within its bounds: with its approval, its turn in the workspace and a time limit; errors become results,
and secrets are removed from the output."""

import contextlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.requests.approved_files import changed_since, runs_commands
from activities.runtime.log_redaction import hidden_in_logs
from activities.runtime.user_code import within
from activities.tools.support.workspace_turn import WorkspaceBusyError, workspace_turn
from activities.tools.tool import Tool, ToolContext, ToolResult
from domain import wire
from domain.ids import derive_id
from domain.policy.subjects import SubjectKind
from domain.sessions.input_request import InputRequest, RequestKind
from domain.sessions.step import Effect, ToolRequest
from store import input_requests
from store.database import Pool

GRACE_SECONDS = 8.0  # for a tool that was cancelled; the sandbox takes up to five to end all processes
_BUSY = "Another call is using this workspace and did not end in time. {} was not run; try again."
_CHANGED = (
    "The command was approved with other content of files that it names: {}. It was not run. Make the call again, so "
    "that people see what it would run now."
)


async def approval_of(pool: Pool, request: ToolRequest) -> InputRequest | None:
    """The approval of exactly this call, with which a gated call runs. None if the call is not gated."""
    if request.approval is None:
        return None
    approval = await input_requests.get(pool, request.ref.tenant, request.approval)
    own = request.approval == derive_id(request.node, RequestKind.TOOL_APPROVAL, request.index)
    if not own or approval is None or not (approval.answer or {}).get("approved"):
        raise ApplicationError("This call was not approved.", type=wire.NOT_APPROVED, non_retryable=True)
    return approval


@contextlib.asynccontextmanager
async def call_turn(pool: Pool, request: ToolRequest, tool: Tool, folder: Path) -> AsyncIterator[ToolResult | None]:
    """The call's turn in its workspace, or the result with the reason why it may not run.

    Calls that change the workspace share it. A command that people approved has it exclusively, from the moment its
    files are compared with what people saw, so that no other call can replace one in between.
    """
    if tool.effect is Effect.READ or tool.kind is None or tool.touches == (SubjectKind.HOST,):
        yield None
        return
    approval = await approval_of(pool, request) if runs_commands(tool) else None
    async with contextlib.AsyncExitStack() as turn:
        try:
            await turn.enter_async_context(workspace_turn(folder, alone=approval is not None))
        except WorkspaceBusyError:
            yield ToolResult(_BUSY.format(tool.name), failed=True)
            return
        place = (pool, request.ref.tenant, request.workspace_id, folder)
        changed = await changed_since(*place, tool, approval) if approval is not None else []
        yield ToolResult(_CHANGED.format(", ".join(changed)), failed=True) if changed else None


async def guarded(
    tool: Tool, arguments: Any, context: ToolContext, turn: AbstractAsyncContextManager[ToolResult | None]
) -> ToolResult:
    """Run a tool when its turn comes. An error in the tool is a result for the model, never a failed activity."""
    redactor = context.state.redactor
    with hidden_in_logs(redactor):
        try:
            async with turn as refusal:
                if refusal is not None:
                    return refusal
                result = await within(tool.timeout_s, _run(tool, arguments, context), grace=GRACE_SECONDS)
        except TimeoutError:
            result = ToolResult(f"{tool.name} did not finish within {tool.timeout_s:g} seconds.", failed=True)
        except Exception:
            # An unexpected error may contain secrets, so the model only learns that the tool failed.
            activity.logger.exception("tool %s failed unexpectedly", tool.name)
            text = f"{tool.name} failed unexpectedly; the operator's log has the details."
            result = ToolResult(text, failed=True)
    return result.redacted(redactor)


async def _run(tool: Tool, arguments: Any, context: ToolContext) -> ToolResult:
    with hidden_in_logs(context.state.redactor):  # also while it runs after it was abandoned
        return await tool.run(arguments, context)

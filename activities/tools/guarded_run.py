"""Run a tool within its bounds: with its approval, its turn in the workspace and a time limit; errors become results,
and secrets are removed from the output."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
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
STOP_SECONDS = 40.0  # for a tool's `stop`, at most: with the grace, less than its activity has
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
    reads = tool.effect is Effect.READ and not tool.could_write
    if reads or tool.kind is None or tool.touches == (SubjectKind.HOST,):
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

    async def run() -> ToolResult:
        async with turn as refusal:
            if refusal is not None:
                return refusal
            return await _within(tool.timeout_s, partial(tool.run, arguments, context), context)

    return await _result(tool.name, tool.timeout_s, run, context)


async def stopped(tool: Tool, context: ToolContext) -> ToolResult:
    """Let a tool stop a call that continues elsewhere. If that fails, the outcome of the call is unknown."""
    assert tool.stop is not None
    seconds = min(tool.timeout_s, STOP_SECONDS)
    run = partial(_within, seconds, partial(tool.stop, context), context)
    return await _result(f"The stop of {tool.name}", seconds, run, context, unknown=tool.effect is not Effect.READ)


async def _within(seconds: float, run: Callable[[], Awaitable[ToolResult]], context: ToolContext) -> ToolResult:
    async def hidden() -> ToolResult:
        with hidden_in_logs(context.state.redactor):  # also while it runs after it was abandoned
            return await run()

    return await within(seconds, hidden(), grace=GRACE_SECONDS)


async def _result(
    what: str, seconds: float, run: Callable[[], Awaitable[ToolResult]], context: ToolContext, *, unknown: bool = False
) -> ToolResult:
    redactor = context.state.redactor
    with hidden_in_logs(redactor):
        try:
            result = await run()
        except TimeoutError:
            text = f"{what} did not finish within {seconds:g} seconds."
            result = ToolResult(text, failed=True, unknown=unknown)
        except Exception:
            # An unexpected error may contain secrets, so the model only learns that it failed.
            activity.logger.exception("tool: %s failed unexpectedly", what)
            text = f"{what} failed unexpectedly; the operator's log has the details."
            result = ToolResult(text, failed=True, unknown=unknown)
    return result.redacted(redactor)

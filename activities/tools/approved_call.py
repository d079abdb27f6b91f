"""A call under its approval: which one it is, and that what runs is what people saw."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from temporalio.exceptions import ApplicationError

from activities.requests.approved_files import changed_since, runs_commands
from activities.tools.support.workspace_turn import WorkspaceBusyError, workspace_turn
from activities.tools.tool import Tool, ToolResult
from domain import wire
from domain.ids import derive_id
from domain.sessions.input_request import InputRequest, RequestKind
from domain.sessions.step import Effect, ToolRequest
from store import input_requests
from store.database import Pool

_BUSY = "Another call is using this workspace and did not end in time. {} was not run; try again."
_CHANGED = (
    "The command was approved with other content of files that it names: {}. It was not run. Make the call again, so "
    "that people see what it would run now."
)


async def approval_of(pool: Pool, request: ToolRequest) -> InputRequest | None:
    """The approval with which a gated call runs: of this very call, and a yes. None: the call is not gated."""
    if request.approval is None:
        return None
    approval = await input_requests.get(pool, request.ref.tenant, request.approval)
    own = request.approval == derive_id(request.node, RequestKind.TOOL_APPROVAL, request.index)
    if not own or approval is None or not (approval.answer or {}).get("approved"):
        raise ApplicationError("This call was not approved.", type=wire.NOT_APPROVED, non_retryable=True)
    return approval


@contextlib.asynccontextmanager
async def call_turn(pool: Pool, request: ToolRequest, tool: Tool, folder: Path) -> AsyncIterator[ToolResult | None]:
    """The call's turn in its workspace, or the result that says why it may not run.

    Calls that change the workspace share it. A command that people approved has it for itself, from the moment in
    which its files are compared with what they saw: no other call can exchange one in between.
    """
    if tool.effect is Effect.READ or tool.kind is None:
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

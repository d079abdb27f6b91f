"""Run a user's code within bounds: a time limit, an error as a result, and no secret in what comes out of it."""

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any

from temporalio import activity

from activities.runtime.log_redaction import hidden_in_logs
from activities.tools.tool import Tool, ToolContext, ToolResult


async def guarded(
    tool: Tool, arguments: Any, context: ToolContext, turn: AbstractAsyncContextManager[ToolResult | None]
) -> ToolResult:
    """Run a tool in its turn. An error in it is a result for the model, never a failed activity."""
    redactor = context.state.redactor
    with hidden_in_logs(redactor):
        try:
            async with turn as refusal:
                if refusal is not None:
                    return refusal
                result = await asyncio.wait_for(tool.run(arguments, context), tool.timeout_s)
        except TimeoutError:
            result = ToolResult(f"{tool.name} did not finish within {tool.timeout_s:g} seconds.", failed=True)
        except Exception:
            # an unexpected error may show what nobody should see: the model learns only that the tool failed
            activity.logger.exception("tool %s failed unexpectedly", tool.name)
            text = f"{tool.name} failed unexpectedly; the operator's log has the details."
            result = ToolResult(text, failed=True)
    return result.redacted(redactor)

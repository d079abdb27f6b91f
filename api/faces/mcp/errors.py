"""Our refusals in the form of this protocol: the text of a tool's error, or a JSON-RPC error.

Both are made from the problems that all other routes return, so that checks and texts exist once.
"""

import json

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, CallToolResult, TextContent

from api.http.problems import URN, respond
from domain.ids import new_id

SHOWN = 20  # findings
_REQUESTS = (401, 403, 429)  # about the caller's rights and rates, not about the content


def tool_error(error: Exception) -> CallToolResult:
    _, _, text = _problem(error)
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)


def rpc_error(error: Exception) -> MCPError:
    status, type, text = _problem(error)
    code = INTERNAL_ERROR if status >= 500 else INVALID_REQUEST if status in _REQUESTS else INVALID_PARAMS
    return MCPError(code, text, {"type": type})


def _problem(error: Exception) -> tuple[int, str, str]:
    """Status, type and text. An unexpected error shows only an opaque id."""
    request_id = new_id()
    problem = respond(error, request_id)
    body = json.loads(bytes(problem.body))
    lines = [body["detail"]]
    for one in body.get("errors", [])[:SHOWN]:
        allowed = f" (allowed: {', '.join(map(str, one['allowed'][:SHOWN]))})" if one.get("allowed") else ""
        lines.append(f"{one['pointer']}: {one['message']}{allowed}")
    # the id leads to the entry in the log; the error itself may contain anything and stays there
    if problem.status_code == 500:
        lines.append(f"instance: {request_id}")
    if "retry_after" in body:
        lines.append(f"Try again after {body['retry_after']} s.")
    return problem.status_code, str(body["type"]).removeprefix(URN), "\n".join(lines)

"""Refusals in the shape of OpenAI's API: {"error": {"message", "type", "param", "code"}}.

They are made from the problems that all other routes return, so that checks and texts exist once.
"""

import json
import re

from starlette.responses import JSONResponse, Response

from api.http.problems import URN, respond
from domain.errors import Refusal

PREFIX = "/v1/"
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
# the place of a finding in a task -> the parameter of the request that it came from
_PARAMS = (
    ("/agent", "model"),
    ("/config/instructions", "instructions"),
    ("/config/output_schema", "text.format.schema"),
    ("/config/max_tokens", "max_output_tokens"),
    ("/config/max_tool_calls", "max_tool_calls"),
    ("/config/external_tools", "tools"),
    ("/context", "input"),
    ("/answers", "input"),
)
# of the problem's headers only these: its content type is not that of this body
_HEADERS = ("retry-after", "www-authenticate", "allow", "connection", "cache-control")


class BadParameter(Refusal):
    """A parameter cannot be used here."""

    status = 400

    def __init__(self, param: str | None, message: str, code: str = "invalid_value", status: int = 400) -> None:
        super().__init__(message)
        self.param, self.code = param, code
        self.status = status


def error_response(error: Exception, request_id: str) -> Response:
    if isinstance(error, BadParameter):
        return _shape(error.status, error.detail, error.param, error.code)
    problem = respond(error, request_id)
    body = json.loads(bytes(problem.body))
    code = str(body["type"]).removeprefix(URN).replace("-", "_")
    message, param = body["detail"], None
    if findings := body.get("errors"):
        param = param_of(findings[0]["pointer"])
        # this format has room for one finding
        message = f"{message} {param}: {findings[0]['message']}."
    status = problem.status_code
    if code == "unknown_agent":
        status, code, message = 404, "model_not_found", "There is no agent by the name of this model."
    elif status in (409, 410, 422):  # clients retry a 409 automatically, which would never help here
        status = 400
    headers = {name: value for name, value in problem.headers.items() if name in _HEADERS}
    return _shape(status, message, param, code, headers)


def _shape(
    status: int, message: str, param: str | None, code: str | None, headers: dict[str, str] | None = None
) -> Response:
    kind = "server_error" if status >= 500 else _TYPES.get(status, "invalid_request_error")
    body = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    return JSONResponse(body, status, headers)


def param_of(pointer: str) -> str | None:
    """A JSON pointer in the clients' notation of parameters: input[0].content."""
    for prefix, param in _PARAMS:
        if pointer == prefix or pointer.startswith(f"{prefix}/"):
            pointer = f"/{param}" if param == "input" else f"/{param}{pointer.removeprefix(prefix)}"
            break
    dotted = re.sub(r"/(\d+)(?=/|$)", r"[\1]", pointer).replace("/", ".")
    return dotted.strip(".").replace(".input_schema", ".parameters") or None

"""What the OpenAPI document says beyond the routes' own signatures: bodies that we read ourselves, and problems."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from api.reruns.body import RerunBody
from api.schemas.conversation_bodies import ConversationChange, FireBody, ForkBody, MessageBody, Run
from api.schemas.subscriptions import NewSubscription
from api.schemas.tasks import EventPage, Problem
from domain.agents.definition import AgentDefinition
from domain.task import TaskSpec

_DESCRIPTION = """Submit a task, hang up, come back to the result.

Every refusal is an RFC 9457 problem (`application/problem+json`); a refused request changes nothing.
Lists have cursors. A POST that starts something takes an `Idempotency-Key`: the same key with the same body gives the
same session."""
_MODELS = (TaskSpec, AgentDefinition, Problem, EventPage, Run, MessageBody, FireBody, ForkBody, ConversationChange,
           NewSubscription, RerunBody)  # fmt: skip
_WORDS = {
    400: "The request cannot be read",
    401: "No valid key",
    403: "The key lacks the right",
    404: "There is nothing by that id",
    406: "No media type that the caller accepts",
    408: "The body came too slowly",
    409: "The state does not allow it",
    410: "It is gone",
    413: "Too large",
    414: "The URL is too long",
    415: "The media type is not supported",
    422: "Well-formed but not valid",
    429: "Too many requests or live tasks; see Retry-After",
    431: "The headers are too large",
    503: "A dependency is away; see Retry-After",
}
_ALWAYS = (400, 401, 403, 406, 414, 429, 431, 503)
BODY = (408, 413, 415, 422)

TAGS = [
    {"name": "tasks", "description": "Work given to an agent: submit, watch, cancel, fetch the result."},
    {"name": "conversations", "description": "Turns of one line of work, its subagents, and the mailbox between them."},
    {"name": "record", "description": "What tasks did, and the audit log."},
    {"name": "notifications", "description": "Who is told of what, by which channel, and one feed over everything."},
    {"name": "agents", "description": "Definitions; each change is a new version, running tasks keep theirs."},
    {"name": "files", "description": "Bytes for a task's workspace, and the artifacts that tasks leave."},
    {"name": "operations", "description": "Whether it runs, and how."},
]


def ref(model: type) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route: what may go wrong, documented as problems."""
    content = {"application/problem+json": {"schema": ref(Problem)}}
    return {status: {"description": _WORDS[status], "content": content} for status in sorted({*_ALWAYS, *statuses})}


def request_body(content: dict[str, Any], *, required: bool = True) -> dict[str, Any]:
    return {"requestBody": {"required": required, "content": content}}


def install(app: FastAPI) -> None:
    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(
                title="Errand", version="0.1.0", description=_DESCRIPTION, routes=app.routes, tags=TAGS
            )
            _, extra = models_json_schema(
                [(model, "validation") for model in _MODELS], ref_template="#/components/schemas/{model}"
            )
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            for name, schema in extra["$defs"].items():
                schemas.setdefault(name, schema)
            _correct(document)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _correct(document: dict[str, Any]) -> None:
    """FastAPI documents a 422 of its own wherever there is a parameter (ours are problems, listed where they happen),
    and cannot say that a key is optional on loopback."""
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)
    for methods in document["paths"].values():
        for operation in methods.values():
            if "application/json" in operation["responses"].get("422", {}).get("content", {}):
                del operation["responses"]["422"]
            if "security" in operation:
                operation["security"].append({})

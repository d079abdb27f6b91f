"""Additions to the generated OpenAPI document: problems, and bodies that the API parses itself."""

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from api.http.problems import Problem
from domain.json_object import JsonObject

_DESCRIPTION = """Submit a task, disconnect, fetch the result later.

Every refusal is an RFC 9457 problem (`application/problem+json`); a refused request changes nothing.
Lists have cursors. A POST that starts a session takes an `Idempotency-Key`: the same key with the same body returns
the same session."""
_models: dict[str, type[BaseModel]] = {}  # all that a route refers to
_DESCRIPTIONS = {
    400: "The request cannot be read",
    401: "No valid key",
    403: "The key lacks the right",
    404: "Nothing has this id",
    406: "The response has no media type that the caller accepts",
    408: "The body arrived too slowly",
    409: "The current state does not allow it",
    410: "It was removed",
    413: "Too large",
    414: "The URL is too long",
    415: "The media type is not supported",
    422: "The request is well-formed but not valid",
    429: "Too many requests or live tasks; see Retry-After",
    431: "The headers are too large",
    503: "A dependency is unreachable; see Retry-After",
}
_ALWAYS = (400, 401, 403, 406, 414, 429, 431, 503)
BODY = (408, 413, 415, 422)

TAGS = [
    {"name": "core", "description": "The twelve routes that most callers need; the other tags have them by subject."},
    {"name": "tasks", "description": "Work for an agent: submit, watch, cancel, fetch the result."},
    {
        "name": "conversations",
        "description": "Turns that share one history, their subagents, and the mailbox for outcomes.",
    },
    {"name": "schedules", "description": "Agents that are sent a message by the clock."},
    {"name": "record", "description": "The effects of tasks, and the audit log."},
    {"name": "notifications", "description": "Subscriptions, deliveries, and one feed of everything that happens."},
    {"name": "channels", "description": "Messages of people elsewhere, and the connectors that carry them."},
    {"name": "agents", "description": "Agent definitions. Each change is a new version; running tasks keep theirs."},
    {"name": "files", "description": "Files for a task's workspace, and artifacts that tasks saved."},
    {"name": "console", "description": "Who is signed in at the page at `/`."},
    {"name": "operations", "description": "Health, readiness and metrics."},
]


Responses = dict[int | str, JsonObject]  # in FastAPI's form


def ref(model: type[BaseModel]) -> dict[str, str]:
    """A reference to a model, which is then part of the document."""
    _models[model.__name__] = model
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def problems(*statuses: int) -> Responses:
    """The `responses` of a route: its problems."""
    content = {"application/problem+json": {"schema": ref(Problem)}}
    return {
        status: {"description": _DESCRIPTIONS[status], "content": content} for status in sorted({*_ALWAYS, *statuses})
    }


def request_body(content: JsonObject, *, required: bool = True) -> JsonObject:
    return {"requestBody": {"required": required, "content": content}}


def install(app: FastAPI) -> None:
    def openapi() -> JsonObject:
        # built at the first request, because it takes long and most processes never need it
        if app.openapi_schema is None:
            document = get_openapi(
                title="Errand", version="0.1.0", description=_DESCRIPTION, routes=app.routes, tags=TAGS
            )
            _, extra = models_json_schema(
                [(model, "validation") for model in _models.values()], ref_template="#/components/schemas/{model}"
            )
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            for name, schema in extra["$defs"].items():
                # FastAPI's own schema of the same name stays, because its references point to it
                schemas.setdefault(name, schema)
            _correct(document)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _correct(document: JsonObject) -> None:
    """Remove the 422 that FastAPI adds to each route with parameters (ours are problems, and listed where they occur),
    and make the key optional, as it is on loopback."""
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)
    for methods in document["paths"].values():
        for operation in methods.values():
            if "application/json" in operation["responses"].get("422", {}).get("content", {}):
                del operation["responses"]["422"]
            if "security" in operation:
                operation["security"].append({})

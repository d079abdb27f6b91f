"""Additions to the generated OpenAPI document: problems, and bodies that the API parses itself."""

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from api.http.body import JsonBody
from api.http.problems import Problem
from domain.json_object import JsonObject

_DESCRIPTION = """Submit a task, disconnect, fetch the result later.

Every refusal is an RFC 9457 problem (`application/problem+json`); a refused request changes nothing.
Lists have cursors. A POST that starts a session takes an `Idempotency-Key`: the same key with the same body returns
the same session."""
_models: dict[str, type[BaseModel]] = {}  # all that a route refers to
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
    """The `responses` of a route: problems that do not follow from its form."""
    content = {"application/problem+json": {"schema": ref(Problem)}}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": content}
        for status in sorted({*_ALWAYS, *statuses})
    }


def describe_body(body: JsonBody[Any]) -> JsonObject:
    content = {"application/json": {"schema": ref(body.model), **body.examples}}
    return {"required": not body.optional, "content": content}


def request_body(content: JsonObject) -> JsonObject:
    """The body of a route that reads it itself."""
    return {"requestBody": {"required": True, "content": content}}


def install(app: FastAPI, routers: Iterable[APIRouter]) -> None:
    def openapi() -> JsonObject:
        # built at the first request, because it takes long and most processes never need it
        if app.openapi_schema is None:
            document = get_openapi(
                title="Errand", version="0.1.0", description=_DESCRIPTION, routes=app.routes, tags=TAGS
            )
            for router in routers:
                for route in router.routes:
                    if isinstance(route, APIRoute) and route.include_in_schema:
                        for method in route.methods or ():
                            _complete(document["paths"][route.path][method.lower()], route)
            _, extra = models_json_schema(
                [(model, "validation") for model in _models.values()], ref_template="#/components/schemas/{model}"
            )
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            for name, schema in extra["$defs"].items():
                # FastAPI's own schema of the same name stays, because its references point to it
                schemas.setdefault(name, schema)
            for name in ("HTTPValidationError", "ValidationError"):
                schemas.pop(name, None)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _complete(operation: JsonObject, route: APIRoute) -> None:
    """Add what the framework does not know of a route: its body, and the refusals that follow from its form."""
    bodies = [one.call for one in route.dependant.dependencies if isinstance(one.call, JsonBody)]
    refusals = [404] if "{" in route.path else []
    if any(one["in"] == "query" for one in operation.get("parameters", ())):
        refusals.append(422)
    for body in bodies:
        operation["requestBody"] = describe_body(body)
        refusals += BODY
    responses = operation["responses"]
    if "application/json" in responses.get("422", {}).get("content", {}):
        del responses["422"]  # the framework's own
    if "security" in operation:
        operation["security"].append({})  # on loopback no key is needed
        described = {str(status): response for status, response in problems(*refusals).items()}
        operation["responses"] = dict(sorted({**described, **responses}.items()))

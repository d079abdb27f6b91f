"""/agents: definitions, as JSON or as Markdown files."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, Field

from agents.loader import complete, load_agent, to_markdown
from agents.problems import AgentFileError, Catalogue, FieldProblem, validate_parts
from api.http import body
from api.http.auth import Admin, Call, ServicesDep, Viewer
from api.http.body import choose_media_type
from api.http.lookup import require_found
from api.http.paging import Parameters
from api.http.problems import Unreadable, finding
from api.openapi import BODY, problems, ref, request_body
from domain.agents.definition import AgentDefinition, AgentVersion
from domain.agents.mcp_discovery import (
    DiscoverTools,
    lists_problem,
    unread,
    with_known_lists,
    with_lists,
    without_lists,
)
from domain.errors import Conflict, Invalid, NotFound
from domain.json_schema import run_check
from domain.sessions.session import AgentRef
from store import agents

router = APIRouter(tags=["agents"])
_MARKDOWN = "text/markdown"
_EXAMPLE = (
    "---\nname: greeter\ndescription: Greets.\ntools: [write_file]\n---\n\nYou greet the person that the task names.\n"
)


class AgentRecord(AgentDefinition):
    version: int
    shipped: bool = Field(description="true: the agent was shipped as a file; false: a tenant defined it")

    @classmethod
    def of(cls, ref: AgentRef, definition: AgentDefinition) -> "AgentRecord":
        # Not validated again: an agent file may have a packaging `version`, which is different from this one.
        return cls.model_construct(**dict(definition), version=ref.version, shipped=ref.owner == "*")


class AgentPage(BaseModel):
    items: list[AgentRecord]


class AgentVersions(BaseModel):
    items: list[int] = Field(description="oldest first")


@router.get("/agents", summary="List the agents that can be used")
async def list_agents(call: Viewer) -> AgentPage:
    found = await agents.list_current(call.pool, call.tenant)
    return AgentPage(items=[AgentRecord.of(ref, definition) for ref, definition in found])


@router.get("/agents/{name}/versions", summary="List the versions of an agent")
async def list_agent_versions(call: Viewer, name: str) -> AgentVersions:
    found = await agents.list_versions(call.pool, call.tenant, name) if _nameable(name) else []
    if not found:
        raise NotFound()
    return AgentVersions(items=found)


class VersionQuery(Parameters):
    version: AgentVersion | None = Field(default=None, description="default: the current one")


@router.get(
    "/agents/{name}",
    response_model=AgentRecord,
    responses={**problems(409), 200: {"content": {_MARKDOWN: {"schema": {"type": "string"}}}}},
    summary="Show an agent",
)
async def show_agent(
    request: Request, call: Viewer, name: str, query: Annotated[VersionQuery, Query()]
) -> AgentRecord | Response:
    """The current version, or an earlier one. With `Accept: text/markdown`, the response is the file that PUT
    accepts."""
    form = choose_media_type(request, "application/json", _MARKDOWN)
    # any text can be in the path, and the store would refuse some of it with an error of the database
    if not _nameable(name):
        raise NotFound()
    if query.version is None:
        found = require_found(await agents.get_current(call.pool, call.tenant, name))
    else:
        found = require_found(await agents.get_version(call.pool, call.tenant, name, query.version))
    if form == _MARKDOWN:
        return Response(to_markdown(found[1]), media_type=_MARKDOWN)
    return AgentRecord.of(*found)


def _nameable(name: str) -> bool:
    return len(name) <= 63 and name.isascii() and name.isprintable()


async def _read_sent(request: Request, services: ServicesDep) -> tuple[str, list[FieldProblem]]:
    """The definition as Markdown; a JSON body is converted to it, and may have problems that Markdown does not show."""
    kind = body.media_type(request)
    if kind == _MARKDOWN:
        text = body.decode_text(await body.read_body(request, services.settings.max_body_bytes))
        return body.check_text(text, ""), []
    if kind != "application/json":
        allowed = ["application/json", _MARKDOWN]
        raise Unreadable(415, "unsupported-media-type", f"Send {' or '.join(allowed)}.", allowed=allowed)
    value, _ = await body.read_json(request, services.settings.max_body_bytes)
    if not isinstance(value, dict):
        raise _refusal([FieldProblem("(file)", "a definition is an object")])
    definition, found = validate_parts(value, AgentDefinition)
    if definition is None:
        raise _refusal(found)
    return to_markdown(definition), found


@router.put(
    "/agents/{name}",
    response_model=AgentRecord,
    responses={**problems(*BODY), 201: {"description": "The first version of this name", "model": AgentRecord}},
    openapi_extra=request_body(
        {
            "application/json": {"schema": ref(AgentDefinition)},
            _MARKDOWN: {"schema": {"type": "string"}, "example": _EXAMPLE},
        }
    ),
    summary="Define an agent, or a new version of it",
)
async def put_agent(
    call: Admin, name: str, sent: Annotated[tuple[str, list[FieldProblem]], Depends(_read_sent)], response: Response
) -> AgentRecord:
    """Running tasks keep the version they started with. An unchanged definition creates no new version."""
    known = {ref.name: definition for ref, definition in await agents.list_current(call.pool, call.tenant)}
    catalogue = Catalogue(**await agents.list_known_names(call.pool))
    file = f"{name}.md"
    with _refuse_faults():
        definition = await run_check(load_agent, *sent, file, catalogue, known)
    response.status_code = 200 if name in known else 201

    async def check(others: Mapping[str, AgentDefinition]) -> None:
        """Again, when nobody can change the other agents: since the first time somebody may have."""
        with _refuse_faults():
            await run_check(complete, definition, others, catalogue, file)

    return await _put(call, with_known_lists(definition, known.get(name)), check=check)


async def _put(
    call: Call, definition: AgentDefinition, made_from: AgentRef | None = None, check: agents.Check | None = None
) -> AgentRecord:
    """Store a definition, and read the tool lists of MCP servers that were not read yet."""
    # outside of the transaction, because a server elsewhere may take seconds to answer
    if wanted := unread(definition):
        found = await call.services.workflows.discover(DiscoverTools.of(call.tenant, definition, wanted))
        if found.problems:
            raise _refusal([FieldProblem(f"mcp_servers.{name}", why) for name, why in found.problems.items()])
        definition = with_lists(definition, found)
        if problem := lists_problem(definition):
            raise _refusal([FieldProblem("mcp_servers", problem)])
    ref = await agents.put(call.pool, call.tenant, definition, call.caller.created_by, made_from=made_from, check=check)
    return AgentRecord.of(ref, definition)


@router.post(
    "/agents/{name}/refresh",
    responses=problems(409, 422, 503),
    summary="Read the tool lists of an agent's MCP servers again",
)
async def refresh_agent(call: Admin, name: str) -> AgentRecord:
    """If a list has changed, a new version is made. For a shipped agent it is your own version, until its file changes.
    Running tasks keep their version; a tool that has changed is refused there."""
    found = require_found(await agents.get_current(call.pool, call.tenant, name) if _nameable(name) else None)
    if not found[1].mcp_servers:
        return AgentRecord.of(*found)
    return await _put(call, without_lists(found[1]), made_from=found[0])


@router.delete("/agents/{name}", status_code=204, responses=problems(409), summary="Remove an agent of your own")
async def remove_agent(call: Admin, name: str) -> Response:
    """Running tasks and schedules keep their version. A shipped agent of the same name can be used again."""
    current, _ = require_found(await agents.get_current(call.pool, call.tenant, name) if _nameable(name) else None)
    if current.owner == agents.SHIPPED:
        raise Conflict(f"The agent {name} comes from the file {name}.md of the workers: remove it there.")
    replaced = name in await agents.list_shipped(call.pool)
    connectors = [] if replaced else await agents.find_connectors(call.pool, call.tenant, name)

    async def check(known: Mapping[str, AgentDefinition]) -> None:
        others = [] if replaced else [one.name for one in known.values() if name in one.references and one.name != name]
        users = [f"the agent {one}" for one in others] + [f"the connector {one}" for one in connectors]
        if users:
            raise Conflict(f"The agent {name} is needed by {', '.join(users[:20])}: change or remove these first.")

    await agents.remove(call.pool, call.tenant, name, call.caller.created_by, check=check)
    return Response(status_code=204)


@contextmanager
def _refuse_faults() -> Iterator[None]:
    try:
        yield
    except AgentFileError as error:
        raise _refusal(error.problems) from None


def _refusal(found: list[FieldProblem]) -> Invalid:
    errors = []
    for problem in found[:50]:
        pointer = "" if problem.field.startswith("(") else "/" + problem.field.replace(".", "/")
        errors.append(finding(pointer, "invalid", problem.message[:300], problem.allowed or None))
    return Invalid("The definition cannot be used.", type="invalid-spec", errors=errors)

"""/environments: repositories that tasks may name, and how their trees are prepared. Changes need the right admin."""

from typing import Annotated, Any

from errand import models
from fastapi import APIRouter, Path, Response

from api.http.auth import Admin, Call, Reader
from api.http.body import json_body
from api.http.lookup import require_found
from api.openapi import problems
from domain.environments import EnvironmentSpec
from domain.errors import Conflict
from domain.task import EnvironmentName
from store import environments

router = APIRouter(tags=["environments"])
MOST = 200  # of one tenant
_EXAMPLE: dict[str, Any] = {"git": {"url": "https://git.example.org/shop.git"}, "setup": "make deps"}


@router.get("/environments", summary="List the environments")
async def list_environments(call: Reader) -> models.EnvironmentPage:
    found = await environments.list_all(call.pool, call.tenant)
    return models.EnvironmentPage(items=[_show(name, spec) for name, spec in found.items()])


@router.get("/environments/{environment}", summary="Show an environment")
async def show_environment(call: Reader, environment: str) -> models.Environment:
    return _show(environment, await find_environment(call, environment))


@router.put(
    "/environments/{environment}",
    response_model=models.Environment,
    responses={**problems(409), 201: {"description": "A new environment", "model": models.Environment}},
    summary="Define an environment",
)
async def put_environment(
    call: Admin,
    environment: Annotated[EnvironmentName, Path()],
    body: Annotated[EnvironmentSpec, json_body(EnvironmentSpec, example=_EXAMPLE)],
    response: Response,
) -> models.Environment:
    """Tasks that were submitted before keep the commit they work on. Whether its credentials can be used is checked for
    each task, which may find others than the tenant's."""
    others = await environments.list_all(call.pool, call.tenant)
    if environment not in others and len(others) >= MOST:
        raise Conflict(f"There are {MOST} environments, as many as there may be.", type="quota-exceeded")
    response.status_code = 201 if await environments.put(call.pool, call.tenant, environment, body) else 200
    return _show(environment, body)


@router.delete("/environments/{environment}", status_code=204, summary="Remove an environment")
async def remove_environment(call: Admin, environment: str) -> Response:
    """A task that waits to begin with it fails; those that have begun continue."""
    await find_environment(call, environment)
    await environments.remove(call.pool, call.tenant, environment)
    return Response(status_code=204)


async def find_environment(call: Call, name: str) -> EnvironmentSpec:
    found = await environments.get(call.pool, call.tenant, name) if name.isascii() and name.isprintable() else None
    return require_found(found, "There is no such environment.")


def _show(name: str, spec: EnvironmentSpec) -> models.Environment:
    return models.Environment(name=name, **spec.model_dump())

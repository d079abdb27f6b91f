"""/healthz, /readyz, /summary, /queues, /metrics: for operators."""

import asyncio

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel

from api.http.auth import Reader, ServicesDep
from api.openapi import problems
from api.services import Services
from store import figures, workers
from store.figures import TenantFigures
from workflows.queue_client import QueueState

router = APIRouter(tags=["operations"])


class Health(BaseModel):
    status: str = "ok"


class Readiness(BaseModel):
    ready: bool
    postgres: bool
    temporal: bool
    worker: bool
    workers: dict[str, str]  # worker -> its sandbox
    missing: list[str] = []  # what Temporal lacks for tasks to start


@router.get("/healthz", summary="Check that this process is running")
async def check_health() -> Health:
    # no dependency is asked: a restart of this process would not cure them
    return Health()


@router.get(
    "/readyz",
    responses={**problems(), 503: {"description": "A dependency is unreachable", "model": Readiness}},
    summary="Check that all dependencies are reachable",
)
async def check_readiness(services: ServicesDep, response: Response) -> Readiness:
    # at once, because a probe gives up early and each of the two may wait for its timeout
    seen, missing = await asyncio.gather(_workers(services), _missing(services))
    ready = bool(seen) and missing == []
    response.status_code = 200 if ready else 503
    return Readiness(
        ready=ready,
        postgres=seen is not None,
        temporal=missing is not None,
        worker=bool(seen),
        workers=seen or {},
        missing=missing or [],
    )


async def _workers(services: Services) -> dict[str, str] | None:
    try:
        return {name: sandbox for name, (sandbox, _) in (await workers.fresh(services.pool)).items()}
    except Exception:  # any error means: not ready
        return None


async def _missing(services: Services) -> list[str] | None:
    """What Temporal lacks; None if it is unreachable."""
    try:
        return await services.workflows.missing()
    except Exception:  # any error means: not ready
        return None


@router.get("/summary", responses=problems(), summary="Count what runs, what waits for people and today's spending")
async def show_summary(call: Reader) -> TenantFigures:
    """The figures of this tenant. A day begins at midnight UTC."""
    return await figures.of_tenant(call.pool, call.tenant)


class Queues(BaseModel):
    items: list[QueueState]


@router.get("/queues", responses=problems(503), summary="Show what waits in Temporal's task queue")
async def show_queues(call: Reader) -> Queues:
    """Figures only, over all tenants."""
    return Queues(items=await call.services.queues.states())


@router.get(
    "/metrics",
    response_class=Response,
    responses={**problems(), 200: {"description": "Prometheus text", "content": {"text/plain": {}}}},
    summary="Metrics",
)
async def show_metrics(_: Reader, services: ServicesDep) -> Response:
    counts = await figures.sessions_by_status(services.pool)
    return Response(services.metrics.page(counts, services.listener.listening), media_type=CONTENT_TYPE_LATEST)

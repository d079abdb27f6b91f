"""/healthz, /readyz, /summary, /queues, /metrics: for operators. /codec: payloads for Temporal's own pages."""

import asyncio
import json
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel, Field
from temporalio.api.common.v1 import Payloads

from api.http import body
from api.http.auth import Admin, Reader, ServicesDep
from api.http.paging import Parameters
from api.openapi import BODY, problems, request_body
from api.services import Services
from domain.errors import Invalid
from domain.json_object import JsonObject
from domain.sealing import SealingError
from store import figures, workers
from store.figures import PeriodFigures, TenantFigures
from workflows.client import QueueState
from workflows.codec import EncryptingCodec

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


@router.get("/summary", summary="Count what runs, what waits for people and today's spending")
async def show_summary(call: Reader) -> TenantFigures:
    """The figures of this tenant. A day begins at midnight UTC."""
    return await figures.of_tenant(call.pool, call.tenant)


class FiguresQuery(Parameters):
    days: int = Field(default=1, ge=1, le=31, description="1: the last 24 hours, by hour; more: by day, in UTC")
    agent: str | None = Field(default=None, max_length=100)


@router.get("/figures", summary="Count tasks, failures and spending by time and agent")
async def show_figures(call: Reader, query: Annotated[FiguresQuery, Query()]) -> PeriodFigures:
    return await figures.by_day_and_agent(call.pool, call.tenant, query.days, query.agent)


class Queues(BaseModel):
    items: list[QueueState]


@router.get("/queues", responses=problems(503), summary="Show what waits in Temporal's task queue")
async def show_queues(call: Reader) -> Queues:
    """Figures only, over all tenants."""
    return Queues(items=await call.services.workflows.queue_states())


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"description": "Prometheus text", "content": {"text/plain": {}}}},
    summary="Metrics",
)
async def show_metrics(_: Reader, services: ServicesDep) -> Response:
    counts = await figures.sessions_by_status(services.pool)
    return Response(services.metrics.page(counts, services.listener.listening), media_type=CONTENT_TYPE_LATEST)


# /codec: a codec server that decrypts our payloads for Temporal's Web UI and command line.


_PAYLOADS: JsonObject = {
    "type": "object",
    "properties": {"payloads": {"type": "array", "items": {"type": "object"}}},
    "example": {"payloads": [{"metadata": {"encoding": "anNvbi9wbGFpbg=="}, "data": "ImhpIg=="}]},
}
_JSON = {"application/json": {"schema": _PAYLOADS}}


@router.post(
    "/codec/decode",
    response_class=Response,
    responses={**problems(*BODY), 200: {"content": _JSON}},
    openapi_extra=request_body(_JSON),
    summary="Decrypt payloads of Temporal's history",
)
async def decode_payloads(request: Request, call: Admin) -> Response:
    value, _ = await body.read_json(request, call.settings.max_body_bytes)
    try:
        payloads = ParseDict(value, Payloads())
        found = await EncryptingCodec(call.services.keys, encrypts=False).decode(payloads.payloads)
    # the parser raises these for JSON of an unexpected shape
    except (ParseError, TypeError, AttributeError):
        raise Invalid("The body is not a list of payloads.") from None
    except SealingError as error:
        raise Invalid(f"These payloads cannot be decrypted: {error}.") from None
    content = json.dumps(MessageToDict(Payloads(payloads=found)))
    return Response(content, headers=_cors_headers(request), media_type="application/json")


@router.options("/codec/decode", include_in_schema=False)
async def preflight(request: Request) -> Response:
    return Response(status_code=204, headers=_cors_headers(request))


def _cors_headers(request: Request) -> dict[str, str]:
    """CORS headers for the pages of a configured Web UI; the browser refuses all others."""
    origin = request.headers.get("origin")
    if origin is None or origin not in body.services_of(request).settings.temporal_ui_origins:
        # also without the other headers: a cache must not give this response to a page that is allowed
        return {"Vary": "Origin"}
    return {
        "Vary": "Origin",
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Allow-Methods": "POST",
        "Access-Control-Allow-Headers": "authorization, content-type, x-namespace",
        "Access-Control-Max-Age": "600",
    }

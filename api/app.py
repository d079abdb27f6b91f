"""The application; `python -m api` serves it. It runs even while its dependencies are unreachable."""

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from operator import attrgetter
from types import FrameType

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from fastapi.routing import APIRoute
from fastapi_offline import FastAPIOffline
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from agents.loader import load_prices
from api import openapi
from api.faces.mcp import routes as mcp
from api.faces.mcp.routes import McpHost
from api.faces.responses import routes as responses
from api.http.auth import is_loopback
from api.http.metrics import Metrics
from api.http.middleware import RequestMiddleware
from api.http.transfers import Transfers
from api.routes import (
    agents,
    budgets,
    channels,
    console,
    conversations,
    credentials,
    environments,
    events,
    files,
    input_requests,
    notifications,
    operations,
    record,
    reruns,
    schedules,
    steering,
    tasks,
    triggers,
    variables,
)
from api.services import Services
from api.streams.feeds import EventListener, StreamSlots
from api.submission.submit import Starts, WaitingBound
from domain.sealing import KeyRing
from settings import Settings, SettingsError
from store import database
from store.variables import SharedVariables
from workflows import client, telemetry
from workflows.schedules import ScheduleClient

log = logging.getLogger("errand.api")

# closing the pool waits for its users, and one of them may hang on an unreachable database
CLOSING_SECONDS = 2.0
ROUTERS = (
    *(tasks.router, record.router, input_requests.router, steering.router, events.router, reruns.router),
    *(budgets.router, variables.router, conversations.router, notifications.router),
    *(schedules.router, triggers.router, channels.router, agents.router, files.router),
    *(credentials.router, environments.router),
    *(operations.router, console.router, responses.router, mcp.router),
)


def create_app(settings: Settings | None = None) -> FastAPI:
    """Settings are read when the server starts the app, not when this module is imported."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with _run_services(settings or Settings.from_env()) as services:
            app.state.services = services
            yield

    app = FastAPIOffline(
        title="Errand",
        lifespan=lifespan,
        redirect_slashes=False,
        # the handler's name is the operationId, and so the name of the method in a generated client
        generate_unique_id_function=attrgetter("name"),
        exception_handlers=dict.fromkeys(
            (HTTPException, RequestValidationError, WebSocketRequestValidationError), _raise
        ),
    )
    for router in ROUTERS:
        app.include_router(router)
    app.add_middleware(RequestMiddleware)
    openapi.install(app, ROUTERS)
    return app


async def _raise(request: Request, error: Exception) -> Response:
    """Let RequestMiddleware turn the error into a problem, as it does with all others."""
    if isinstance(error, HTTPException) and error.status_code == 405:
        routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
        found = [route.methods or set() for route in routes if route.matches(request.scope)[0] is not Match.NONE]
        # all methods of the path; the framework names only those of the first route
        error.headers = {"Allow": ", ".join(sorted(set().union(*found)))}
    raise error


@contextlib.asynccontextmanager
async def _run_services(settings: Settings) -> AsyncIterator[Services]:
    _logging()
    url = settings.database_url
    if not url:
        raise SettingsError(
            "ERRAND_DATABASE_URL is not set: set it to a PostgreSQL, or start everything with ./errand up"
        )
    if not is_loopback(settings.host):
        log.warning("bound to %s: every request needs a key; make one with `errand keys create NAME`", settings.host)
    # no connection at first: the database may be unreachable
    pool = await database.connect(url, min_size=0, max_size=20, patience=database.FOR_REQUESTS, enters_tenants=True)
    listener = EventListener(url)
    keys = KeyRing.parse(settings.secret_keys)
    prices = load_prices(settings.prices_file, settings.model_providers)
    prices.price(settings.default_model)  # reads the list, for which no request should wait
    temporal = await client.connect(
        lazy=True,
        telemetry=settings.otel_exporter_otlp_endpoint,
        keys=keys,
        encrypts=settings.payload_encryption == "on",
    )
    workflows = client.WorkflowClient(temporal, settings.task_queue)
    services = Services(
        settings=settings,
        pool=pool,
        workflows=workflows,
        schedules=ScheduleClient(temporal, settings.task_queue),
        starts=Starts(pool, workflows),
        waiting_bound=WaitingBound(pool, settings.waiting_tasks),
        listener=listener,
        prices=prices,
        keys=keys,
        shared_variables=SharedVariables(keys, dict(one.split("=", 1) for one in settings.variables)),
        metrics=Metrics(),
        slots=StreamSlots(settings.streams_per_key),
        transfers=Transfers(),
        mcp=McpHost(),
    )
    parts = (listener.run(), services.mcp.run())
    running = [asyncio.create_task(part) for part in parts]
    try:
        with _draining(listener):
            yield services
    finally:
        listener.drain()
        for task in running:
            task.cancel()
        # waits until all have ended, so that none of them uses the pool while it closes
        await asyncio.gather(*running, return_exceptions=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSING_SECONDS):
                await pool.close()
        # without effect after a clean close; otherwise it cuts the connections that were still in use
        pool.terminate()
        # in a thread, because it blocks until the collector has answered
        await asyncio.to_thread(telemetry.flush)


@contextlib.contextmanager
def _draining(listener: EventListener) -> Iterator[None]:
    """End open streams at the first signal, because the server waits for them before it shuts the app down."""
    # Python accepts signal handlers in the main thread only
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def end(number: int, frame: FrameType | None) -> None:
        # the handler runs between two bytecodes, perhaps while the loop sleeps: only this call wakes it
        loop.call_soon_threadsafe(listener.drain)
        handler = before[signal.Signals(number)]
        # the server's own handler, which begins the shutdown
        if callable(handler):
            handler(number, frame)

    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _logging() -> None:
    """Replace the server's access log, which would show query strings, by our own."""
    logging.getLogger("uvicorn.access").disabled = True
    ours = logging.getLogger("errand")
    if not ours.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
        ours.addHandler(handler)
        ours.setLevel(logging.INFO)


app = create_app()

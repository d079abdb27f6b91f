"""The worker (`python worker.py`): connects to everything, and runs the workflows and their activities."""

import gc

# Imports make no garbage, and their objects live as long as the process: collecting is a seventh of the worker's start.
if __name__ == "__main__":
    gc.disable()

import asyncio
import contextlib
import logging
import math
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta

import uvloop
from temporalio.client import Client
from temporalio.common import WorkerDeploymentVersion
from temporalio.worker import UnsandboxedWorkflowRunner, Worker, WorkerDeploymentConfig

import activities
from activities import ActivityServices
from activities.attempt import OwnFailureTexts, RunFence
from activities.dead_workers import end_calls
from activities.egress import Fetcher, Guard
from activities.environments import Environments
from activities.events import EventWriter
from activities.handlers.registry import load_handlers
from activities.hooks.hook import load_hooks
from activities.mcp.discover import ShippedLists
from activities.model.models import Models, ModelTrial
from activities.notifications.channels import MailServer, build_channels, build_ports
from activities.notifications.dispatcher import Dispatcher
from activities.sandbox import Commands, Sandbox, SandboxLimits, choose, existing_folders
from activities.sandbox.bubblewrap import bury_orphans
from activities.sessions.sweep import Sweep
from activities.tools.builtin.web_search import Service, VendorSearch, with_search
from activities.tools.registry import load_tools
from activities.tools.tool import Tool
from activities.trees import Mirrors
from activities.user_code import RedactingFormatter
from activities.workspaces import WorkspaceCaps, Workspaces
from agents.loader import AgentFolder, LoadedAgents, load_prices
from agents.problems import AgentFileError, Catalogue
from domain import wire
from domain.sealing import KeyRing, KeyRingError
from settings import MISCONFIGURED, Settings, SettingsError, reach_loopback_directly
from store import agents, workers
from store.database import TRANSIENT_ERRORS, Pool, connect, patiently
from workflows.activity_calls import HEARTBEATS
from workflows.argument_guard import ArgumentGuard, DroppedSignals
from workflows.client import connect as connect_temporal
from workflows.registry import WORKFLOWS

log = logging.getLogger("errand.worker")


def build_services(
    settings: Settings, pool: Pool, client: Client, events: EventWriter, sandbox: Sandbox
) -> ActivityServices:
    caps = WorkspaceCaps(settings.workspace_file_bytes, settings.workspace_files, settings.workspace_bytes)
    prices = load_prices(settings.prices_file, settings.model_providers)
    prices.price(settings.default_model)  # reads the list, for which no call should wait
    models = Models(settings.model_providers, prices)
    tools = with_search(load_tools(settings.tools_module).found, find_search(settings, models))
    commands = _commands(settings, sandbox, tools)
    guard = Guard(settings.allow_private_hosts, ports=_ports(settings))
    keys = KeyRing.parse(settings.secret_keys)
    environments = Environments(pool, keys)
    mirrors = Mirrors(pool, settings.workspaces_dir.with_name("mirrors"), commands, guard, environments)
    return ActivityServices(
        pool=pool,
        temporal=client,
        task_queue=settings.task_queue,
        models=models,
        events=events,
        tools=tools,
        handlers=load_handlers(settings.tools_module).found,
        hooks=load_hooks(settings.tools_module).found,
        commands=commands,
        workspaces=Workspaces(
            pool, settings.workspaces_dir, caps, settings.tenant_workspace_bytes, build_tree=mirrors.build
        ),
        environments=environments,
        mirrors=mirrors,
        fetcher=Fetcher(settings.allow_private_hosts, ports=_ports(settings)),
        keys=keys,
        channels=build_channels(_notifier(settings, max_bytes=10_000), _mail_server(settings)),
        # Slack answers with the message that it posted, formatted
        ports=build_ports(_notifier(settings, max_bytes=1_000_000), _mail_server(settings), settings.slack_url),
        dispatcher=Dispatcher(pool, client, settings.task_queue, settings.delivery_hours * 3_600),
        subagent_depth=settings.subagent_depth,
        max_children=settings.max_children,
        max_questions=settings.max_questions,
        max_tool_calls=settings.max_tool_calls,
        variables=dict(one.split("=", 1) for one in settings.variables),
    )


def find_search(settings: Settings, models: Models) -> Service | VendorSearch | None:
    model = settings.searching_model
    return VendorSearch(models, model) if model else Service.of(settings.search_url, settings.brave_key)


def build_worker(settings: Settings, services: ActivityServices) -> Worker:
    beat = HEARTBEATS.every = timedelta(seconds=settings.cancel_heartbeat_seconds)
    return Worker(
        services.temporal,
        task_queue=settings.task_queue,
        workflows=WORKFLOWS,
        activities=activities.build(services),
        # No sandbox: it imports the module of a workflow again for each run, 2 to 3 ms and 75 kB. It guards against
        # code that reads a clock or uses randomness, and all of that is ours: what users write runs as activities. So
        # the check is made before a release: every recorded history is replayed inside it (workflows/replay.py).
        workflow_runner=UnsandboxedWorkflowRunner(),
        # Named, since the SDK would otherwise compute a name from every module, a tenth of the worker's start.
        deployment_config=WorkerDeploymentConfig(
            WorkerDeploymentVersion(wire.DEPLOYMENT, wire.BUILD), use_worker_versioning=False
        ),
        interceptors=[ArgumentGuard(), OwnFailureTexts(), RunFence(services.pool, services.temporal)],
        max_concurrent_activities=settings.max_model_calls + settings.max_tool_calls,
        max_concurrent_workflow_tasks=16,
        # how long the next task of a session waits for the worker that has it in memory, and that may have been killed
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=2),
        graceful_shutdown_timeout=timedelta(seconds=settings.drain_seconds),
        max_heartbeat_throttle_interval=beat,
        default_heartbeat_throttle_interval=beat,
    )


class AgentFiles:
    """Publishes the agents of a folder, which all tenants can use, whenever their files change."""

    def __init__(self, pool: Pool, folder: AgentFolder, lists: ShippedLists) -> None:
        self._pool = pool
        self._folder = folder
        self._lists = lists  # reads the tool lists of MCP servers
        self._loaded: LoadedAgents | None = None
        self._names: frozenset[str] | None = None  # names of the published files
        self._unpublished: LoadedAgents | None = None
        self.problems: list[str] = []

    async def publish(self) -> bool:
        """Store the changes; True if there were any. It is repeated until it succeeds."""
        self._unpublished = await asyncio.to_thread(self._folder.changes) or self._unpublished
        if self._unpublished is None and self._lists.due():
            self._unpublished = self._loaded
        if (loaded := self._unpublished) is None:
            return False
        if self._names is None:  # the first worker also removes earlier files; others may have files that we lack
            earlier = set() if await workers.fresh(self._pool) else await agents.list_shipped(self._pool)
            self._names = frozenset(earlier)
        for definition in loaded.agents.values():
            await agents.put(self._pool, agents.SHIPPED, await self._lists.pin_lists(definition))
        for name in self._names - loaded.names if loaded.names else ():  # an empty folder may just not be mounted
            await agents.remove(self._pool, agents.SHIPPED, name)
            log.info("the agent %s has no file any more", name)
        self.problems = [f"agent file {error}" for error in loaded.errors] + self._lists.all_problems
        for problem in self.problems:  # the other agents can still be used
            log.error("%s", problem)
        self._names, self._loaded, self._unpublished = loaded.names, loaded, None
        return True


def _commands(settings: Settings, sandbox: Sandbox, tools: dict[str, Tool]) -> Commands:
    limits = SandboxLimits(
        memory_bytes=settings.sandbox_memory_bytes,
        processes=settings.sandbox_processes,
        disk_bytes=settings.sandbox_disk_bytes,
        readable=existing_folders(settings.sandbox_folders),
    )
    guard = Guard(settings.allow_private_hosts, ports=_ports(settings)) if settings.sandbox_network == "on" else None
    return Commands(sandbox, limits, guard, tools)


def _ports(settings: Settings) -> frozenset[int]:
    return frozenset(map(int, settings.allow_ports))


def _notifier(settings: Settings, max_bytes: int) -> Fetcher:
    """Notifications have a separate list of private hosts: a model must not fetch from a host that may be notified."""
    hosts = settings.notify_private_hosts
    return Fetcher(hosts, ports=None, setting="ERRAND_NOTIFY_PRIVATE_HOSTS", max_bytes=max_bytes, timeout_s=20.0)


def _mail_server(settings: Settings) -> MailServer | None:
    if not settings.smtp_host:
        return None
    return MailServer(
        settings.smtp_host,
        settings.smtp_port,
        settings.smtp_from,
        settings.smtp_user,
        settings.smtp_password,
        settings.smtp_tls,
    )


async def run(settings: Settings) -> None:
    if not settings.database_url:
        raise SystemExit("ERRAND_DATABASE_URL is not set: give a PostgreSQL, or start everything with ./errand up")
    url, name, stop = settings.database_url, f"{socket.gethostname()}/{os.getpid()}", asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    pool = await connect(url, max_size=20, name=name)
    client = await connect_temporal(
        identity=name,
        telemetry=settings.otel_exporter_otlp_endpoint,
        keys=KeyRing.parse(settings.secret_keys),
        encrypts=settings.payload_encryption == "on",
    )
    await end_calls(pool, client, name)
    sandbox = await choose(settings.sandbox)
    async with pool, EventWriter(pool) as events:
        services = build_services(settings, pool, client, events, sandbox)
        known = Catalogue(tools=services.tools, handlers=services.handlers, hooks=services.hooks)
        files = AgentFiles(pool, AgentFolder(settings.agents_dir, known), activities.build_shipped_lists(services))
        await patiently(files.publish, seconds=math.inf)  # the database may be restarting, or its disk full
        own, model = _problems(settings.tools_module), ModelTrial(services.models, settings.default_model)
        await model.run()

        async def beat() -> None:
            problems = [*model.problems, *own, *files.problems]
            await workers.beat(
                pool, name, sandbox.name, known.tools, known.handlers, known.hooks, problems, model.reports
            )

        sweep = Sweep(pool, client, settings.task_queue, events, services.workspaces, services.dispatcher)
        async with build_worker(settings, services):
            beating = asyncio.create_task(_beat(beat))
            watching = asyncio.create_task(_watch(files, model, beat))
            dispatching = asyncio.create_task(services.dispatcher.run())
            sweeping = asyncio.create_task(sweep.watch(name))
            log.info("working on queue %s", settings.task_queue)
            await stop.wait()
            log.info("draining")
            for task in (beating, dispatching, sweeping, watching):
                task.cancel()
        await services.models.close()
        with contextlib.suppress(*TRANSIENT_ERRORS):
            await workers.leave(pool, name)


def _problems(module: str | None) -> list[str]:
    """Log and return the problems of the user's own tools, handlers and hooks; the worker runs without these."""
    parts = (load_tools(module), load_handlers(module), load_hooks(module))
    problems = list(dict.fromkeys(problem for part in parts for problem in part.problems))
    for problem in problems:
        log.error("%s", problem)
    return problems


async def _watch(files: AgentFiles, model: ModelTrial, beat: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(1)
        try:
            with contextlib.suppress(*TRANSIENT_ERRORS):
                if published := await files.publish():
                    log.info("read the agent files again")
                if await model.run() or published:
                    await beat()
        except Exception:  # an error must not end this loop
            log.exception("the agent files could not be read again")


async def _beat(beat: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            with contextlib.suppress(*TRANSIENT_ERRORS):
                await beat()
            if buried := await asyncio.to_thread(bury_orphans):
                log.warning("ended %d sandboxes whose worker was killed", buried)
        except Exception:  # keep trying: without heartbeats this worker counts as dead
            log.exception("a heartbeat of this worker failed")
        await asyncio.sleep(5)


if __name__ == "__main__":
    gc.freeze()
    gc.set_threshold(20_000)  # a step makes many short-lived objects, so collect less often
    gc.enable()
    handler = logging.StreamHandler()
    handler.setFormatter(RedactingFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    handler.addFilter(DroppedSignals())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it would log every URL, and some contain a token
    try:
        reach_loopback_directly()
        uvloop.run(run(Settings.from_env()))
    except (SettingsError, KeyRingError, AgentFileError) as error:
        log.error("%s", error)  # its message explains what to change; a traceback would hide it
        sys.exit(MISCONFIGURED)

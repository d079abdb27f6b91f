"""One start of the embedded stack: its ports, the plan of its parts, their environment, and their start in order."""

import asyncio
import contextlib
import errno
import json
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from deploy import state
from deploy.child import Part, get
from deploy.data_dir import postgres_account
from deploy.postgres import API_ROLE, WORKER_ROLE, Postgres, url_of
from deploy.state import (
    MASK,
    StackError,
    StackInfo,
    claim_of,
    describe,
    find_start,
    holder_of,
    without_passwords,
)
from deploy.supervisor import Supervisor
from deploy.temporal import CONNECTION, Temporal
from domain.agents.models import Provider
from settings import CLI_ONLY, OF_THE_WORKER, ROOT, VARIABLES, Settings, field_of
from settings import SECRETS as OF_USERS

# Choosing ports: a busy default is replaced by the next free port, which is logged; a configured port never is. What
# was chosen is kept in the data folder and taken again at the next start.


TRIES = 100
LOCAL = "127.0.0.1"
_KEPT: TypeAdapter[dict[str, int]] = TypeAdapter(dict[str, int])


class Ports(contextlib.ExitStack):
    """Chooses ports, and reserves them until it is closed. `file`: those of the last start."""

    def __init__(self, log: Callable[[str], None], file: Path | None = None) -> None:
        self._log = log
        super().__init__()
        self._chosen: set[int] = set()
        self._file = file
        self._kept: dict[str, int] = {}
        self.moved: list[str] = []  # what was logged about them
        with contextlib.suppress(OSError, ValidationError):
            self._kept = _KEPT.validate_json(file.read_bytes()) if file else {}

    def choose(self, name: str, wanted: int, *, host: str = LOCAL, variable: str | None = None) -> int:
        """Choose the port of the last start or the wanted one, else the next free one; 0 is any. `variable` is the
        setting that requires this port."""
        default = wanted or _bind(host, 0)
        first = self._kept.get(name, default) if wanted and not variable else default
        candidates: list[int] = [first, *range(default, default + TRIES)]
        for port in candidates:
            if not (problem := self._claim(host, port)):
                break
            if variable:
                raise StackError(f"{variable}: cannot listen on {host}:{port}: {problem}")
        else:
            raise StackError(f"no port for {name}: {host} has none free from {default} to {default + TRIES - 1}")
        if port != first:
            self.moved.append(f"port {first} is taken by {self._holder(first)}; {name} takes {port}, also from now on")
            self._log(self.moved[-1])
        self._chosen.add(port)
        if wanted and not variable:
            self._kept[name] = port
        return port

    def keep(self) -> None:
        """Keep the chosen ports for the next start."""
        if self._file:
            self._file.write_bytes(_KEPT.dump_json(self._kept))

    def _holder(self, port: int) -> str:
        return "another part of this stack" if port in self._chosen else holder_of(port)

    def _claim(self, host: str, port: int) -> str | None:
        """Reserve a port; returns the problem, or None."""
        if port > 65_535:
            return "there is no such port"  # the resolver would take it modulo 65,536
        if port in self._chosen:
            return "already chosen"
        try:
            _bind(host, port)
            if sys.platform == "linux":
                # Another stack that starts now would also find the port free, until our server listens. All accounts
                # see an abstract socket name, and the kernel frees it when this process ends.
                claim = self.enter_context(socket.socket(socket.AF_UNIX))
                claim.bind(f"\0{claim_of(port)}")
        except OSError as error:
            text = error.strerror or str(error)
            if error.errno == errno.EADDRNOTAVAIL:
                need = "; the embedded servers need it: `ip address add 127.0.0.1/8 dev lo`" if host == LOCAL else ""
                raise StackError(f"this machine has no address {host}{need}") from None
            return f"{text}, by {self._holder(port)}" if error.errno == errno.EADDRINUSE else text
        return None


def _bind(host: str, port: int) -> int:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        # like the servers: connections of a server that has just ended must not count as busy
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        bound: int = probe.getsockname()[1]
        return bound


# The plan of one start: the processes to start, and their ports.


OFFLINE_PORT, POSTGRES_PORT, TEMPORAL_PORT, TEMPORAL_UI_PORT = 8701, 5433, 7233, 8233
OFFLINE_KEY = "offline"  # the SDK requires one; the offline model accepts any
OFFLINE_MODEL = "offline"  # its price is zero


@dataclass(frozen=True)
class StackPlan:
    """Ports of the processes to start. None: the address was configured, so that server is not ours."""

    settings: Settings  # with every address filled in, except that of a database that does not exist yet
    postgres_port: int | None
    temporal_port: int | None
    temporal_ui_port: int | None
    offline_port: int | None

    @property
    def temporal_address(self) -> str:
        return self.settings.temporal_address or ""


def make_plan(settings: Settings, ports: Ports) -> StackPlan:
    configured = settings.port not in (0, Settings.port)
    port = ports.choose("the API", settings.port, host=settings.host, variable="ERRAND_PORT" if configured else None)
    temporal_port = ui_port = postgres_port = offline_port = None
    temporal_address = find_temporal_address(settings)
    if temporal_address is None:
        temporal_port = ports.choose("Temporal", TEMPORAL_PORT)
        ui_port = ports.choose("the Temporal Web UI", TEMPORAL_UI_PORT)
        temporal_address = f"127.0.0.1:{temporal_port}"
    if settings.database_url is None:
        postgres_port = ports.choose("PostgreSQL", POSTGRES_PORT)
    ui_url = f"http://127.0.0.1:{ui_port}" if ui_port else settings.temporal_ui_url
    filled = replace(settings, port=port, temporal_address=temporal_address, temporal_ui_url=ui_url)
    providers = settings.model_providers
    if providers.default not in providers.named:
        known = ", ".join(sorted(providers.named)) or "none"
        raise StackError(f"ERRAND_DEFAULT_MODEL: there is no provider {providers.default!r}; there are: {known}")
    if providers.named[providers.default] == Provider(kind="anthropic"):  # nothing is known of it but its name
        offline_port = ports.choose("the offline model", OFFLINE_PORT)
        model = f"http://127.0.0.1:{offline_port}"
        # the offline model is free, whatever model name it is asked for
        filled = replace(filled, anthropic_base_url=model, anthropic_api_key=OFFLINE_KEY, default_cost_usd=0)
        if settings.openai_api_key is None and settings.openai_base_url is None:  # it speaks that form too
            filled = replace(filled, openai_base_url=f"{model}/v1", openai_api_key=OFFLINE_KEY)
        if settings.default_model == Settings.default_model:
            filled = replace(filled, default_model=OFFLINE_MODEL)
        # the pages that its search finds, and nothing else there, can be read
        filled = replace(filled, allow_private_hosts=(*settings.allow_private_hosts, f"127.0.0.1:{offline_port}"))
    return StackPlan(filled, postgres_port, temporal_port, ui_port, offline_port)


def find_temporal_address(settings: Settings) -> str | None:
    """An address from TEMPORAL_ADDRESS, or from a profile of the SDK's own configuration file."""
    if settings.temporal_address:
        return settings.temporal_address
    from temporalio.envconfig import ClientConfigProfile  # takes half a second to import

    try:
        return ClientConfigProfile.load().address
    except Exception as error:  # the SDK's bridge raises an error class that it does not export
        raise StackError(f"Temporal's configuration cannot be used: {error}") from None


# Settings as environment variables, for the processes of the embedded stack.


def variables(settings: Settings) -> dict[str, str]:
    """The inverse of Settings.from_env, without the command line's own settings.

    Paths become absolute, because the processes run in another folder.
    """
    values = {name: getattr(settings, field_of(name)) for name in VARIABLES if name not in CLI_ONLY}
    return {name: text_of(value) for name, value in values.items() if value is not None}


def mask_setting(name: str, text: str) -> str:
    """A setting as people may see it."""
    # an empty secret is shown as empty, so that people see that it is not set
    return MASK if name in OF_USERS and text else without_passwords(text)


def text_of(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, bool):
        return str(value).lower()
    return str(value.absolute() if isinstance(value, Path) else value)


# The processes on top of PostgreSQL and Temporal: migrations, offline model, worker and API.


DATABASES = ("ERRAND_DATABASE_URL", "ERRAND_API_DATABASE_URL", "ERRAND_WORKER_DATABASE_URL")  # with passwords
SECRETS = (*OF_THE_WORKER, "ERRAND_LOCAL_TOKEN", "ERRAND_SECRET_KEYS", *DATABASES)
DRAIN_SECONDS = 2.0  # short, because tasks resume at the next start


@dataclass(frozen=True)
class AppParts:
    migrate: Part  # runs to its end before the others are started
    parts: list[Part]


def make_model_part(settings: Settings, port: int) -> Part:
    address, argv = f"127.0.0.1:{port}", [sys.executable, "-m", "offline", "--port", str(port)]
    env = _without(variables(settings), *SECRETS) | {"PYTHONUNBUFFERED": "1"}
    return Part(name="model", argv=argv, env=env, address=f"http://{address}", check=f"tcp://{address}")


def make_app_parts(settings: Settings, connection: dict[str, str]) -> AppParts:
    """Describe the processes. `settings` has all addresses; `connection` are Temporal's own variables."""
    env = variables(replace(settings, drain_seconds=min(settings.drain_seconds, DRAIN_SECONDS)))
    env |= connection | {"PYTHONUNBUFFERED": "1"}
    api_url = local_url(settings.host, settings.port)
    parts = [
        # Ready means that a task submitted now will run: the worker has stored the agents and polls its queue.
        Part(
            name="worker",
            argv=[sys.executable, "worker.py"],
            env=_without(env, "ERRAND_LOCAL_TOKEN", *DATABASES) | _database(settings, settings.worker_database_url),
            check=f"{api_url}/readyz",
            ready=partial(_has_reported, f"{api_url}/readyz"),
        ),
        Part(
            name="api",
            argv=[sys.executable, "-m", "api"],
            env=_without(env, *OF_THE_WORKER, *DATABASES)
            | {"ERRAND_PROVIDERS": settings.model_providers.without_keys().as_json()}
            | _database(settings, settings.api_database_url),
            address=api_url,
            check=f"{api_url}/healthz",
        ),
    ]
    migrate_env = _without(env, *SECRETS) | {name: env.get(name, "") for name in DATABASES}
    return AppParts(Part(name="migrate", argv=[sys.executable, "-m", "store.migrate"], env=migrate_env), parts)


def _database(settings: Settings, own: str | None) -> dict[str, str]:
    """A process connects with its own role, if it has one."""
    return {"ERRAND_DATABASE_URL": own or settings.database_url or ""}


def _without(env: dict[str, str], *names: str) -> dict[str, str]:
    """The environment with these variables empty, because a process also inherits the variables of its parent."""
    return env | dict.fromkeys(names, "")


def _has_reported(readyz: str, pid: int) -> bool:
    """Whether the worker with this pid has reported; /readyz may still count one that was just killed."""
    response = get(readyz)
    return response is not None and f"{socket.gethostname()}/{pid}" in json.loads(response)["workers"]


def local_url(host: str, port: int) -> str:
    """The address at which this machine reaches a server that listens on `host`."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


STATE_RETRY_SECONDS = 5.0


class Stack:
    def __init__(
        self,
        plan: StackPlan,
        home: Path,
        *,
        started_with: dict[str, str],
        moved: list[str],
        log: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._started_with = started_with
        self._moved = moved
        self._home = home
        self._connection = CONNECTION if plan.temporal_port else {}
        self._ready = False
        (home / "logs").mkdir(mode=0o700, exist_ok=True)  # others may pass through the folder above
        self.supervisor = Supervisor(home / "logs", log=log, changed=self._write_state)
        self._retry: asyncio.TimerHandle | None = None

    async def boot(self) -> None:
        """Start PostgreSQL, Temporal and the offline model concurrently and prepare each; then start the parts that
        need them, which therefore stop first."""
        state.write(self.info())  # first: if this is impossible, so is everything else
        try:
            async with asyncio.TaskGroup() as group:
                database = group.create_task(self._start_database())
                group.create_task(self._start_temporal())
                if port := self._plan.offline_port:
                    group.create_task(self.supervisor.start(make_model_part(self._plan.settings, port)))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        await self.supervisor.start(*database.result().parts)
        self._ready = True
        self._write_state()

    def _write_state(self) -> None:
        """Write the state file. If that fails, as on a full disk, the stack continues and tries again."""
        if self._retry:
            self._retry.cancel()
            self._retry = None
        try:
            state.write(self.info())
        except OSError as error:
            self.supervisor.log(f"cannot write the state of the stack: {describe(error)}")
            self._retry = asyncio.get_running_loop().call_later(STATE_RETRY_SECONDS, self._write_state)

    async def _start_database(self) -> AppParts:
        settings = self._plan.settings
        if self._plan.postgres_port:
            postgres = Postgres(self._home, postgres_account())
            await postgres.create(self.supervisor)
            await self.supervisor.start(postgres.part(self._plan.postgres_port))
            port = self._plan.postgres_port
            settings = replace(
                settings,
                database_url=postgres.url(port),
                api_database_url=postgres.role_url(port, API_ROLE),
                worker_database_url=postgres.role_url(port, WORKER_ROLE),
            )
        app = make_app_parts(settings, self._connection)
        await self.supervisor.run(app.migrate)
        return app

    async def _start_temporal(self) -> None:
        plan, temporal = self._plan, Temporal(self._home)
        if not plan.temporal_port or not plan.temporal_ui_port:
            return
        env = self._connection | {"TEMPORAL_ADDRESS": plan.temporal_address, "PYTHONPATH": str(ROOT)}
        # at every start, because the database may have been deleted or replaced by an older one
        prepare = Part(name="temporal-namespace", argv=[sys.executable, "-m", "deploy.temporal"], env=env)
        await self.supervisor.start(temporal.part(plan.temporal_port, prepare), temporal.guard(plan.temporal_ui_port))

    def info(self) -> StackInfo:
        plan, settings = self._plan, self._plan.settings
        api_url, searcher = local_url(settings.host, settings.port), settings.searching_model
        if searcher:
            searcher = "a few pages of the stand-in" if searcher == OFFLINE_MODEL else f"the vendor of {searcher}"
        providers = settings.model_providers
        provider = providers.named[providers.default]
        database = url_of(plan.postgres_port) if plan.postgres_port else settings.database_url or ""
        return StackInfo(
            pid=os.getpid(),
            started=find_start(os.getpid()),
            ready=self._ready,
            api_url=api_url,
            docs_url=f"{api_url}/docs",
            temporal_address=plan.temporal_address,
            temporal_ui_url=f"http://127.0.0.1:{plan.temporal_ui_port}" if plan.temporal_ui_port else None,
            database_url=without_passwords(database),
            data_dir=self._home,
            offline_model=plan.offline_port is not None,
            model=settings.default_model,
            model_endpoint=without_passwords(provider.address or provider.kind),  # clouds are found by their region
            search=settings.search_url or ("Brave" if settings.brave_key else searcher),
            cost_limit=settings.default_cost_usd,
            started_with=self._started_with,
            moved=self._moved,
            parts=self.supervisor.infos(),
        )

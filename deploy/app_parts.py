"""The processes on top of PostgreSQL and Temporal: migrations, offline model, worker and API."""

import json
import socket
import sys
from dataclasses import dataclass, replace
from functools import partial

from deploy.child import Part, get
from deploy.environment import variables
from settings import Settings

OF_THE_WORKER = ("ANTHROPIC_API_KEY", "ERRAND_SMTP_PASSWORD")
DATABASES = ("ERRAND_DATABASE_URL", "ERRAND_API_DATABASE_URL", "ERRAND_WORKER_DATABASE_URL")  # with passwords
SECRETS = (*OF_THE_WORKER, "ERRAND_LOCAL_TOKEN", "ERRAND_SECRET_KEYS", *DATABASES)
DRAIN_SECONDS = 2.0  # short, because tasks resume at the next start


@dataclass(frozen=True)
class AppParts:
    migrate: Part  # runs to its end before the others are started
    parts: list[Part]


def make_app_parts(settings: Settings, connection: dict[str, str], offline_port: int | None) -> AppParts:
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
            env=_without(env, *OF_THE_WORKER, *DATABASES) | _database(settings, settings.api_database_url),
            address=api_url,
            check=f"{api_url}/healthz",
        ),
    ]
    if offline_port:
        parts.insert(0, _offline_model(offline_port, _without(env, *SECRETS)))
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


def _offline_model(port: int, env: dict[str, str]) -> Part:
    address = f"127.0.0.1:{port}"
    argv = [sys.executable, "-m", "offline", "--port", str(port)]
    return Part(name="model", argv=argv, env=env, address=f"http://{address}", check=f"tcp://{address}")


def local_url(host: str, port: int) -> str:
    """The address at which this machine reaches a server that listens on `host`."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

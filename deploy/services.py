"""What runs on top of PostgreSQL and Temporal: the migrations, the offline model, the worker and the API."""

import json
import socket
import sys
from dataclasses import dataclass, replace
from functools import partial

from deploy.child import Part, get
from deploy.environment import variables
from settings import Settings

KEEP_ALIVE_SECONDS = 75  # longer than clients keep idle connections, so that it is not we who close under a request
DRAIN_SECONDS = 2.0  # tasks resume at the next start, so there is nothing to wait for


@dataclass(frozen=True)
class Services:
    migrate: Part  # runs to its end before the parts are started
    parts: list[Part]


def services(settings: Settings, connection: dict[str, str], offline_port: int | None) -> Services:
    """`settings` with every address filled in; `connection` is what else Temporal's clients must be told."""
    env = variables(replace(settings, drain_seconds=min(settings.drain_seconds, DRAIN_SECONDS)))
    env |= connection | {"PYTHONUNBUFFERED": "1"}
    api_url = local_url(settings.host, settings.port)
    listen = [
        "--host",
        settings.host,
        "--port",
        str(settings.port),
        "--timeout-keep-alive",
        str(KEEP_ALIVE_SECONDS),
        "--timeout-graceful-shutdown",
        str(int(DRAIN_SECONDS)),
    ]
    parts = [
        # ready means that a task sent now will run: the worker has stored the agents and works
        Part(
            name="worker",
            argv=[sys.executable, "worker.py"],
            env=env,
            check=f"{api_url}/readyz",
            ready=partial(_at_work, f"{api_url}/readyz"),
        ),
        Part(
            name="api",
            argv=[sys.executable, "-m", "uvicorn", "api.app:app", *listen],
            env=env,
            address=api_url,
            check=f"{api_url}/healthz",
        ),
    ]
    if offline_port:
        parts.insert(0, _offline_model(offline_port, env))
    return Services(Part(name="migrate", argv=[sys.executable, "-m", "store.migrate"], env=env), parts)


def _at_work(readyz: str, pid: int) -> bool:
    """Whether this very worker has reported: one that was killed a moment ago still counts for /readyz."""
    answer = get(readyz)
    return answer is not None and f"{socket.gethostname()}/{pid}" in json.loads(answer)["workers"]


def _offline_model(port: int, env: dict[str, str]) -> Part:
    address = f"127.0.0.1:{port}"
    argv = [sys.executable, "-m", "offline", "--port", str(port)]
    return Part(name="model", argv=argv, env=env, address=f"http://{address}", check=f"tcp://{address}")


def local_url(host: str, port: int) -> str:
    """Where this machine reaches a server that listens on `host`."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

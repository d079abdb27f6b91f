"""A program that runs the real stack so that API and worker reach PostgreSQL and Temporal through proxies.

FAULT_PROXIES has the ports of the proxies; the real addresses of the servers are written to FAULT_UPSTREAMS.
"""

import asyncio
import json
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

from deploy import stack
from deploy.local import up
from deploy.stack import AppParts, make_app_parts
from settings import Settings


def through_proxies(settings: Settings, connection: dict[str, str]) -> AppParts:
    ports = json.loads(os.environ["FAULT_PROXIES"])
    database, temporal = settings.database_url or "", settings.temporal_address or ""
    upstreams = {"postgres": int(re.findall(r":(\d+)/", database)[-1]), "temporal": int(temporal.rpartition(":")[2])}
    Path(os.environ["FAULT_UPSTREAMS"]).write_text(json.dumps(upstreams))
    app = make_app_parts(settings, connection)

    def proxied(url: str | None) -> str:
        return re.sub(r":\d+/", f":{ports['postgres']}/", url or "")

    there = replace(
        settings,
        temporal_address=f"127.0.0.1:{ports['temporal']}",
        api_database_url=proxied(settings.api_database_url),
        worker_database_url=proxied(settings.worker_database_url),
    )
    return AppParts(app.migrate, make_app_parts(there, connection).parts)


def log(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    stack.make_app_parts = through_proxies
    asyncio.run(up(Settings.from_env(), on_ready=lambda info: log("ready"), log=log))

"""A stack whose API and worker reach PostgreSQL, Temporal and the model through proxies, and the faults of these."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from random import Random

from tests.faults.nemesis import Fault
from tests.faults.proxy import Address, Proxy
from tests.support.launch import connected, home, offline_model, settings_in, started
from tests.support.stack import Stack

SERVERS = ("postgres", "temporal", "model")


@asynccontextmanager
async def proxied() -> AsyncIterator[tuple[Stack, dict[str, Proxy]]]:
    with home() as folder, offline_model(folder) as model_port:
        upstreams = folder / "upstreams.json"

        def target(name: str) -> Address:
            return "127.0.0.1", model_port if name == "model" else json.loads(upstreams.read_text())[name]

        async with (
            Proxy(partial(target, "postgres")) as postgres,
            Proxy(partial(target, "temporal")) as temporal,
            Proxy(partial(target, "model")) as model,
        ):
            proxies = {"postgres": postgres, "temporal": temporal, "model": model}
            settings = settings_in(folder, model.port)
            env = {
                "FAULT_PROXIES": json.dumps({name: proxy.port for name, proxy in proxies.items()}),
                "FAULT_UPSTREAMS": str(upstreams),
            }
            program = "tests.faults.proxied_stack"
            log = folder / "stack.log"
            async with started(settings, log, program, env) as info, connected(settings, info) as stack:
                # requests of the tests themselves do not pass through a proxy
                stack.model_url = f"http://127.0.0.1:{model_port}"
                yield stack, proxies


def faults(proxies: dict[str, Proxy]) -> dict[str, Fault]:
    """One fault for each server, and one for all of them together."""
    return {
        **{f"network to {name}": partial(_disturb, [proxies[name]]) for name in SERVERS},
        "network to all": partial(_disturb, list(proxies.values())),
    }


async def _disturb(proxies: list[Proxy], stack: Stack, random: Random) -> None:
    """For a while, cut connections, refuse new ones, stop the traffic or slow it down."""
    kind, seconds = random.choice(("cut", "refuse", "stall", "slow")), random.uniform(1, 4)
    for proxy in proxies:
        if kind in ("cut", "refuse"):
            proxy.refuses = kind == "refuse"
            proxy.cut()
        elif kind == "stall":
            proxy.stall()
        else:
            proxy.delay = 0.15
    await asyncio.sleep(seconds)
    for proxy in proxies:
        proxy.refuses, proxy.delay = False, 0.0
        if kind == "stall":
            proxy.cut()  # like a router that forgot the connection
        proxy.resume()

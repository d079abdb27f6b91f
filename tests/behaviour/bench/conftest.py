"""The bench on the stack of the tests, with an additional worker for the bare loop."""

import sys
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bench.lab import Lab
from bench.ours import Ours
from deploy import local
from deploy.temporal import CONNECTION
from tests.support.launch import process
from tests.support.stack import Stack


@pytest_asyncio.fixture(scope="module")
async def lab(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Lab]:
    log = tmp_path_factory.mktemp("bench") / "bare.log"
    env = stack.env | CONNECTION | {"TEMPORAL_ADDRESS": stack.temporal_address}
    url = local.database_url(stack.settings)
    with process([sys.executable, "-m", "bench.bare_worker"], log, env) as bare:
        pids = {name: stack.pid(name) for name in ("worker", "api", "temporal", "postgres")} | {"bare": bare.pid}
        ours = Ours(stack.http, stack.client)
        await ours.define_looker()
        yield Lab(ours, stack.http, stack.client, stack.pool, pids, url, stack.model_url, stack.settings)

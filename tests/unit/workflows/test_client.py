"""An update of a conversation has one time limit for all its calls to Temporal."""

import socket
import time
from datetime import timedelta

import pytest

from domain.conversations.requests import Steer
from domain.errors import Unavailable
from workflows.client import WorkflowClient, connect


async def test_a_server_that_accepts_connections_and_is_silent_is_unavailable_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = WorkflowClient(await connect(lazy=True, address=f"127.0.0.1:{silent.getsockname()[1]}"), "queue")
        begun = time.monotonic()
        with pytest.raises(Unavailable):
            await client.steer("t", "c", Steer(request_id="r", thread="c", message="m"), timedelta(seconds=0.5))
        assert time.monotonic() - begun < 1.5

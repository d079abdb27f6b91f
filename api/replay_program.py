"""`python -m api.replay_program ID`: replays a task's histories on this code and prints the results as JSON.

It is a separate process, because a replay uses a processor for seconds and the SDK's threads outlive it.
"""

import asyncio
import json
import os
import sys

from errand import models
from temporalio.runtime import Runtime, TelemetryConfig

from domain.sealing import KeyRing
from settings import Settings
from workflows import replay
from workflows.client import connect
from workflows.codec import data_converter


async def verdicts(session_id: str) -> list[models.ReplayVerdict]:
    keys = KeyRing.parse(Settings.from_env().secret_keys)
    client = await connect(keys=keys)
    found = await replay.with_conversation(client, session_id)
    return [await replay.replay(history, data_converter(keys)) for history in found]


if __name__ == "__main__":
    Runtime.set_default(Runtime(telemetry=TelemetryConfig(logging=None)))  # the SDK would log to our standard output
    sys.stdout.write(json.dumps([one.model_dump() for one in asyncio.run(verdicts(sys.argv[1]))]))
    sys.stdout.flush()
    os._exit(0)  # the SDK's threads can crash an interpreter that shuts down while they run

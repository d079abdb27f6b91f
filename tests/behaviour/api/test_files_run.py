"""A reader can follow a task: few files run between the request and its result."""

import asyncio
import json
import sys

from tests.support.stack import Stack

# lower them when the count falls; the aim is 14 and 45
BEFORE_TEMPORAL = 27
IN_ALL = 90


async def test_a_task_runs_through_few_files(stack: Stack) -> None:
    env = stack.env | {"TEMPORAL_ADDRESS": stack.temporal_address, "ERRAND_DATABASE_URL": stack.database_url}
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.files_run"), env=env, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await program.communicate()
    files = json.loads(output)
    before, after = files["before_temporal"], files["after"]
    listing = "\n".join([*before, "-- Temporal --", *after])
    assert len(before) <= BEFORE_TEMPORAL, listing
    assert len(before) + len(after) <= IN_ALL, listing

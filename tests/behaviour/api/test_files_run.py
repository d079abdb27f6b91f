"""A reader can follow a task: few files run between the request and its result."""

import asyncio
import json
import sys

from tests.support.stack import Stack

# Lower them when a count falls. The domain is left out: its models run wherever a value is parsed.
BEFORE_TEMPORAL = 22
IN_ALL = 79


async def test_a_task_runs_through_few_files(stack: Stack) -> None:
    env = stack.env | {"TEMPORAL_ADDRESS": stack.temporal_address, "ERRAND_DATABASE_URL": stack.database_url}
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.files_run"), env=env, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await program.communicate()
    files = json.loads(output)
    before, after = (
        [name for name in files[part] if not name.startswith("domain/")] for part in ("before_temporal", "after")
    )
    listing = "\n".join([*before, "-- Temporal --", *after])
    assert len(before) <= BEFORE_TEMPORAL, listing
    assert len(before) + len(after) <= IN_ALL, listing

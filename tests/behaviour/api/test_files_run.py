"""A reader can follow a task: few files run between the request and its result."""

import asyncio
import json
import sys

from tests.support.stack import Stack

# Lower these numbers when a count falls. The domain is not counted: its models run wherever a value is parsed.
BEFORE_TEMPORAL = 23
# including hooks, failure texts, starts after the response, what a worker remembers, the model's transport, its events
# and the visits of payloads, each in its own file
IN_ALL = 97
# The API's listener receives the first event and the response is counted while Temporal is being called, so these may
# run before or after that.
BESIDE = {"api/http/metrics.py", "api/streams/listener.py", "store/events.py"}


async def test_a_task_runs_through_few_files(stack: Stack) -> None:
    # delete shared variables, which few tenants have: they would be looked up for every agent that this one refers to
    await stack.pool.execute("DELETE FROM tenant_variables WHERE tenant = 'default'")
    env = {name: value for name, value in stack.env.items() if name != "ERRAND_VARIABLES"}
    env |= {"TEMPORAL_ADDRESS": stack.temporal_address, "ERRAND_DATABASE_URL": stack.database_url}
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.files_run"), env=env, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await program.communicate()
    files = json.loads(output)
    before, after = (
        [name for name in files[part] if not name.startswith("domain/")] for part in ("before_temporal", "after")
    )
    listing = "\n".join([*before, "-- Temporal --", *after])
    assert len(set(before) - BESIDE) <= BEFORE_TEMPORAL, listing
    assert len(before) + len(after) <= IN_ALL, listing

"""The walk of a task: through how many files a task with one tool call runs, the aim beside the number of the day."""

import asyncio
import json
import sys

from tests.support.files_run import walk_line
from tests.support.stack import Stack

# The numbers of the day: lower them when a count falls. The aim is in tests/support/files_run.py.
BEFORE_TEMPORAL = 16
IN_ALL = 59
# Features that a plain agent's task does not use: none of their code is entered, they are looked at only where a
# definition or a task names them.
FEATURES = (
    *("activities/hooks/", "activities/handlers/", "activities/mcp/", "activities/notifications/"),
    *("activities/schedules/", "activities/delegation/", "activities/requests/", "activities/sandbox/"),
    *("activities/model/recorded.py", "activities/tools/declared_tools.py", "activities/tools/risks.py"),
    *("activities/skills.py", "activities/trees.py", "domain/skills.py", "domain/ignored.py", "domain/pictures.py"),
    *("domain/missions.py", "domain/agents/handler.py", "domain/agents/hook.py", "domain/agents/variables.py"),
)
# The API's listener receives the first event and the response is counted while Temporal is being called, so these may
# run before or after that.
BESIDE = {"api/streams/feeds.py", "store/events.py"}


async def test_a_task_runs_through_few_files(stack: Stack) -> None:
    # delete shared variables, which few tenants have: they would be looked up for every agent that this one refers to
    await stack.pool.execute("DELETE FROM tenant_variables WHERE tenant = 'default'")
    env = {name: value for name, value in stack.env.items() if name != "ERRAND_VARIABLES"}
    env |= {"TEMPORAL_ADDRESS": stack.temporal_address, "ERRAND_DATABASE_URL": stack.database_url}
    program = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.files_run"), env=env, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await program.communicate()
    files = json.loads(output.splitlines()[-1])  # Temporal's SDK prints its warnings there, too
    before, after = files["before_temporal"], files["after"]
    listing = "\n".join([walk_line(before, after), *before, "-- Temporal --", *after])
    assert [name for name in (*before, *after) if name.startswith(FEATURES)] == [], listing
    assert len(set(before) - BESIDE) <= BEFORE_TEMPORAL, listing
    assert len(before) + len(after) <= IN_ALL, listing

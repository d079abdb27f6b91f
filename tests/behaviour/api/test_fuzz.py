"""Requests made from our own OpenAPI document: no input gives a server error, and every answer is as documented."""

import asyncio
import re
import sys
from pathlib import Path

from api.app import create_app
from store.database import Pool
from tests.behaviour.api.conftest import key_for

CHECKS = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance")
# a stream does not end without an event, and without Temporal these are rightly unavailable
ALONE = "(/events|/notifications|/conversations/run|/readyz|/mailbox|/steer|/trigger|/backfill|/replay|/queues)$"
# no task of this test ends, so that the result of one would be waited for until the generator gives up
CONFIG = """
[[operations]]
include-name = "GET /tasks/{task_id}/result"
parameters = { "query.wait" = 0 }
"""


async def test_generated_requests_meet_the_openapi_document(keyed_url: str, pool: Pool, tmp_path: Path) -> None:
    key = (await key_for(pool, "fuzz"))["Authorization"]  # a tenant of its own, which it may litter
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    run = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{keyed_url}/openapi.json"),
        *("--header", f"Authorization: {key}", "--checks", ",".join(CHECKS)),
        *("--max-examples", "2", "--phases", "examples,coverage,fuzzing"),
        *("--seed", "1", "--generation-database", "none", "--no-color"),
        *("--exclude-path-regex", ALONE),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await run.communicate()
    assert run.returncode == 0, output.decode()[-6_000:]
    paths = create_app().openapi()["paths"]
    tested = sum(len(methods) for path, methods in paths.items() if not re.search(ALONE, path))
    assert f"Tested: {tested}".encode() in output

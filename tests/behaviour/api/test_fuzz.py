"""Requests generated from our own OpenAPI document, and from the models of the Responses API, which it leaves out: no
input causes a server error, and every answer is as documented."""

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from api.app import create_app
from api.faces.responses.request import CreateResponse
from api.faces.responses.routes import GetQuery, ItemQuery
from store.database import Pool
from tests.behaviour.api.conftest import key_for
from tests.behaviour.api.every_route import routes_of

CHECKS = ("not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance")
# a stream does not end without an event, and the others are unavailable without Temporal
ALONE = "(/events|/notifications|/conversations/run|/readyz|/mailbox|/steer|/trigger|/backfill|/replay|/queues)$"
# no task ends in this test, so a request with `wait` would last until the generator's timeout; of the methods that
# no route has one is sent
CONFIG = """
[phases.coverage]
unexpected-methods = ["TRACE"]

[[operations]]
include-name = "GET /tasks/{task_id}/result"
parameters = { "query.wait" = 0 }
"""
# Half of all generated cases would vary what is described elsewhere too: the task that these contain as POST /tasks
# does, the second side of an agent, and its prompts, whose fields it has itself. With the profile `search` (see
# tests/conftest.py) they are generated here too.
TASK_AGAIN = (
    "PUT /schedules/{schedule_id}",
    "PUT /triggers/{trigger}",
    "POST /conversations/{conversation_id}/messages",
)
FEWER = """
[[operations]]
include-name = "{name}"
phases.coverage.enabled = false
phases.fuzzing.generation.max-examples = 4
"""

AGAIN: dict[str, dict[str, Any]] = {
    "NewSchedule": {"task": {"const": {"agent": "assistant", "input": "x"}}},
    "AgentDefinition": {"side_b": {"type": "null"}, "prompts": {"const": {}}},
}
ANSWER = {"description": "as OpenAI's API", "content": {"application/json": {"schema": {"type": "object"}}}}
RESPONSE = "/v1/responses/{response_id}"


def document(again: dict[str, dict[str, Any]]) -> dict[str, Any]:
    described = create_app().openapi()
    for name, fields in again.items():
        described["components"]["schemas"][name]["properties"] |= fields
    created = CreateResponse.model_json_schema(ref_template="#/components/schemas/{model}")
    described["components"]["schemas"] |= created.pop("$defs")
    # a response that the client waits for, or streams, would not end here
    created["properties"] |= {"background": {"const": True}, "stream": {"type": "null"}}
    created["required"] = [*created["required"], "background"]
    queries: dict[str, dict[str, Any]] = {
        RESPONSE: {**GetQuery.model_json_schema()["properties"], "stream": {"const": False}},
        f"{RESPONSE}/input_items": ItemQuery.model_json_schema()["properties"],
    }
    for method, path in sorted(routes_of(create_app())):
        if path.startswith("/v1/"):
            names = re.findall(r"{(\w+)}", path)
            places = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
            asked = queries.get(path, {}) if method == "GET" else {}
            places += [{"name": name, "in": "query", "schema": schema} for name, schema in asked.items()]
            operation: dict[str, Any] = {"parameters": places, "responses": {"default": ANSWER}}
            if path == "/v1/responses":
                operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": created}}}
            described["paths"].setdefault(path, {})[method.lower()] = operation
    return described


async def test_generated_requests_meet_the_openapi_document(
    keyed_url: str, pool: Pool, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    search = pytestconfig.getoption("--hypothesis-profile") == "search"
    fewer = "" if search else "".join(FEWER.replace("{name}", name) for name in TASK_AGAIN)
    # a separate tenant, in which the generator can create anything
    key = (await key_for(pool, "fuzz"))["Authorization"]
    (tmp_path / "schemathesis.toml").write_text(CONFIG + fewer)
    described = document({} if search else AGAIN)
    paths = described["paths"]
    (tmp_path / "openapi.json").write_text(json.dumps(described))
    run = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "schemathesis.cli", "run", "openapi.json", "--url", keyed_url),
        *("--header", f"Authorization: {key}", "--checks", ",".join(CHECKS)),
        *("--max-examples", "100" if search else "2", "--phases", "examples,coverage,fuzzing"),
        *("--seed", "1", "--generation-database", "none", "--no-color"),
        *("--exclude-path-regex", ALONE),
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await run.communicate()
    assert run.returncode == 0, output.decode()[-6_000:]
    tested = sum(len(methods) for path, methods in paths.items() if not re.search(ALONE, path))
    assert f"Tested: {tested}".encode() in output
    assert all(name.split()[1] in paths for name in TASK_AGAIN)

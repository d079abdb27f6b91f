"""Results: structured if the agent has a schema, and with a list of their sources."""

import hashlib
import json
from datetime import datetime
from typing import Any

import pytest

from tests.behaviour.record.conftest import SCHEMA, agent
from tests.support.stack import Stack, calls, steps

READ = ("read_file", {"path": "notes.md"})


def answers(*texts: str) -> str:
    return f"[[script:turns json={json.dumps([{'text': text} for text in texts])}]]"


async def answering(stack: Stack, name: str, *texts: str) -> str:
    """An agent whose model gives these answers, one after the other."""
    definition = agent(name, output_schema=SCHEMA, prompt=answers(*texts))
    said = await stack.http.put(f"/agents/{name}", json=definition)
    assert said.is_success, said.text
    return name


async def test_an_answer_that_fits_is_json_in_the_result(recorded: Stack) -> None:
    record = await recorded.run("Which?", await answering(recorded, "fitting", "It is five.", '{"port": 5}'))
    assert (record["status"], record["usage"]["llm_calls"]) == ("completed", 2)
    assert (await recorded.result(record["task_id"]))["output"] == {"port": 5}
    asked = await recorded.asked(record["task_id"])
    assert '"port"' in asked[0]["body"]["system"][0]["text"]
    assert "Your answer is not JSON" in str(asked[1]["body"]["messages"][-1])


async def test_answer_that_never_matches_its_schema_fails_with_the_last_answer(recorded: Stack) -> None:
    record = await recorded.run("Which?", await answering(recorded, "misfitting", '{"port": "five"}'))
    assert (record["status"], record["reason"], record["partial"]) == ("failed", "error", True)
    assert record["error"]["type"] == "output_schema" and "at port" in record["error"]["message"]
    assert record["usage"]["llm_calls"] == 3
    assert (await recorded.result(record["task_id"]))["output"] == '{"port": "five"}'


@pytest.mark.proves("S1-70")
async def test_result_lists_its_sources_with_their_times(recorded: Stack) -> None:
    content = b"The parser reads one line at a time.\n"
    uploaded = (await recorded.http.post("/files", params={"name": "notes.md"}, content=content)).json()
    script = steps([READ], [("write_file", {"path": "notes.md", "content": "changed"})], [READ])
    record = await recorded.run(script, context={"files": [uploaded["file_id"]]})
    result = await recorded.result(record["task_id"])
    based_on = result["based_on"]
    assert (based_on["agent"], based_on["agent_version"]) == ("tester", record["agent_version"])
    assert based_on["models"] == record["models"][:1]
    hashes = [hashlib.sha256(content).hexdigest(), hashlib.sha256(b"changed").hexdigest()]
    assert _of(based_on, "context_file") == [("notes.md", hashes[0])]
    # the file was changed in between
    assert _of(based_on, "file") == [("notes.md", hashes[0]), ("notes.md", hashes[1])]
    [(message, digest)] = _of(based_on, "message")
    parts = await recorded.pool.fetchval("SELECT parts FROM inbox WHERE id = $1", message)
    assert digest == hashlib.sha256(parts.encode()).hexdigest()
    times = [datetime.fromisoformat(source["at"]) for source in based_on["sources"] if source["kind"] == "file"]
    assert datetime.fromisoformat(record["created_at"]) < times[0] < times[1]


def _of(based_on: dict[str, Any], kind: str) -> list[tuple[str, str]]:
    return [(source["name"], source["sha256"]) for source in based_on["sources"] if source["kind"] == kind]


@pytest.mark.proves("S1-70")
async def test_continuation_names_the_session_it_continues(recorded: Stack) -> None:
    first = await recorded.run(calls(("list_files", {"path": "."})))
    second = await recorded.run("And?", context={"history_session": first["task_id"]})
    sources = (await recorded.result(second["task_id"]))["based_on"]["sources"]
    assert [source["name"] for source in sources if source["kind"] == "session"] == [first["task_id"]]

"""Results: structured if the agent has a schema, and with a list of their sources."""

import hashlib
import json
import os
import pwd
from datetime import datetime
from typing import Any

import pytest

from tests.behaviour.record.conftest import SCHEMA, agent
from tests.support.command import cli
from tests.support.stack import Stack, calls, of_type, steps

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


@pytest.mark.proves("S1-81", "S1-82", "S1-83")
async def test_trace_has_reasons_thinking_and_cost(recorded: Stack) -> None:
    thinker = agent("weigher", thinking_tokens=2048, prompt='[[script:say thought="Weigh it." text="Because."]]')
    assert (await recorded.http.put("/agents/weigher", json=thinker)).is_success
    record = await recorded.run("Why?", "weigher")
    log = (await recorded.result(record["task_id"], audit_log="full"))["audit_log"]
    assert [event["text"] for event in of_type(log, "thinking", "message")] == ["Weigh it.", "Because."]
    [used] = of_type(log, "usage_updated")
    assert used["step"] == 1 and used["call"]["output_tokens"] > 0 and "cost_usd" in used["call"]
    began, ended = of_type(log, "step_started"), of_type(log, "step_completed")
    assert began[0]["at"] < ended[0]["at"]  # the times of a step are those of the wall clock
    system = (await recorded.asked(record["task_id"]))[0]["body"]["system"][0]["text"]
    assert "Before you call tools, say in a sentence why these." in system


WRITE = ("write_file", {"path": "a.txt", "content": "one\n"})


async def test_the_log_is_shown_and_verified(recorded: Stack) -> None:
    record = await recorded.run(calls(WRITE))
    shown = await cli(recorded, "audit", record["task_id"])
    lines = shown.stdout.splitlines()
    assert lines[1].split()[1:3] == ["account", pwd.getpwuid(os.geteuid()).pw_name]
    assert "submit" in lines[1] and "agent tester" in lines[2] and "completed goal_reached" in lines[-1]
    assert "older entries" in (await cli(recorded, "audit", "--limit", "1")).stderr
    whole = await cli(recorded, "audit", "verify")
    assert whole.exit_code == 0 and whole.stdout.startswith("intact: ")
    head = json.loads((await cli(recorded, "audit", "verify", "--json")).stdout)["head"]
    assert (await cli(recorded, "audit", "verify", "--head", head)).exit_code == 0
    broken = await cli(recorded, "audit", "verify", "--head", "f" * 64)
    assert broken.exit_code == 1 and broken.stdout.startswith("BROKEN: the tenant's own chain, entry 1")
    assert (await cli(recorded, "audit", "no-such-task")).exit_code == 4

"""Invalid graphs are refused with all problems at once, by the CLI and by the API; what holds for every valid one."""

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli.main import errand
from domain.front_matter import join
from domain.ids import new_id
from store.database import Connection
from tests.behaviour.conversations.talk import Talk, agent, chain
from tests.behaviour.graphs.duet import call, declared_tool, define, prompt
from tests.support.stack import Stack, eventually, of_type

A, B = prompt("bg_a", "x"), prompt("bg_b", "x")
PROMPTS = {"bg_a": A, "bg_b": B}
DUAL: dict[str, Any] = {"side_a": {"prompt": "bg_a"}, "side_b": {"prompt": "bg_b"}, "prompts": PROMPTS}


def dual(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": "Two sides.", **DUAL, **more}


def starts(name: str, *others: str) -> dict[str, Any]:
    """Side A has the definition's own prompt, which starts other agents."""
    immediate = [{"name": one, "immediate": True} for one in others]
    sides = {"side_b": {"prompt": "bg_b"}, "prompts": {"bg_b": B}, "expose_as_tool": True}
    return {"name": name, "description": "Starts others.", "prompt": "Work.", **sides, "subagent_tools": immediate}


# a definition, then the field and reason of each problem that must be named
TABLE: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "dual_ai without side B, and everything else that can be checked": (
        {**agent("bg_alone"), "type": "dual_ai", "hooks": ["none"], "subagent_tools": [{"name": "bg_desk"}]},
        {
            "side_b": "missing, and type dual_ai needs it",
            "hooks": "no hook 'none'",
            "subagent_tools.0.name": "'bg_desk' has a human side, so it cannot be a subagent",
        },
    ),
    "both sides human": (
        {"name": "bg_people", "description": "x", "side_a": "human", "side_b": "human", "handoffs": ["nobody"]},
        {"side_a": "both sides are human: nobody would do the work", "handoffs": "no agent 'nobody'"},
    ),
    "an unknown handler, and a binding to an unknown tool beside it": (
        {**agent("bg_handled"), "side_b": {"handler": "nobody", "session_stop": "go"}},
        {"side_b.handler": "no handler 'nobody'", "side_b.session_stop": "no tool 'go' on this side"},
    ),
    "a circle of immediate subagents": (
        starts("bg_first", "bg_second"),
        {"subagent_tools": "immediate subagents start each other: bg_first → bg_second → bg_third → bg_first"},
    ),
    "unknown fields": (
        dual(
            "bg_fields",
            colour="red",
            maxSessionTurns="many",
            side_a={"prompt": "bg_a", "sessionStop": "quit"},
            side_b={"prompt": "bg_b", "speed": 3},
            tools=["no_such_tool"],
        ),
        {
            "colour": "unknown field",
            "side_b.speed": "unknown field",
            "max_session_turns": "Input should be a valid integer",
            "side_a.session_stop": "no tool 'quit' on this side",
            "tools": "no tool 'no_such_tool'",
        },
    ),
    "a subagent with a human side": (
        {**agent("bg_boss"), "subagent_tools": [{"name": "bg_desk"}, {"name": "nobody"}]},
        {
            "subagent_tools.0.name": "'bg_desk' has a human side, so it cannot be a subagent",
            "subagent_tools.1.name": "no agent 'nobody'",
        },
    ),
}
BESIDE = [agent("bg_desk", expose_as_tool=True, tools=["bash"]), starts("bg_third"), starts("bg_second", "bg_third")]


def write(folder: Path, definition: dict[str, Any]) -> None:
    """Write the definition as the files that a user would write: prompts are separate files."""
    fields = {key: value for key, value in definition.items() if key not in ("prompt", "prompts")}
    (folder / f"{definition['name']}.md").write_text(join(fields, definition.get("prompt", "")))


def test_agents_check_lists_all_problems_of_all_files_together(tmp_path: Path) -> None:
    (tmp_path / "prompts").mkdir()
    for name in PROMPTS:
        (tmp_path / "prompts" / f"{name}.md").write_text("---\n{}\n---\n\nWork.\n")
    for definition in (*BESIDE[:1], starts("bg_third", "bg_first"), starts("bg_second", "bg_third")):
        write(tmp_path, definition)
    for definition, _ in TABLE.values():
        write(tmp_path, definition)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.md")}
    checked = CliRunner().invoke(errand, ["agents", "check", str(tmp_path), "--json"])
    assert checked.exit_code == 1, checked.output
    found = json.loads(checked.stdout)
    named = {(one["file"], one["field"], one["message"]) for one in found["problems"]}
    for definition, problems in TABLE.values():
        for field, reason in problems.items():
            assert (f"{definition['name']}.md", field, reason) in named, (field, named)
    assert found["agents"] == ["bg_desk"]
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.md")} == before
    text = CliRunner().invoke(errand, ["agents", "check", str(tmp_path)])
    assert text.exit_code == 1 and "bg_people.md:\n  side_a: both sides are human" in text.output


@pytest.mark.parametrize("case", TABLE)
async def test_put_refuses_a_bad_graph_with_every_pointer_and_changes_nothing(stack: Stack, case: str) -> None:
    definition, problems = TABLE[case]
    for one in BESIDE:
        assert (await stack.http.put(f"/agents/{one['name']}", json=one)).is_success
    name = definition["name"]
    if name == "bg_first":  # the agents of the circle, without its last link
        beside = starts("bg_third", "bg_first")
        assert (await stack.http.put("/agents/bg_first", json=starts("bg_first"))).is_success
        assert (await stack.http.put("/agents/bg_third", json=beside)).is_success
    known = await stack.http.get(f"/agents/{name}/versions")
    answer = await stack.http.put(f"/agents/{name}", json=definition)
    assert answer.status_code == 422, answer.text
    body = answer.json()
    found = {(one["pointer"], one["message"]) for one in body["errors"]}
    for field, reason in problems.items():
        pointer = "" if field.startswith("(") else "/" + field.replace(".", "/")
        assert (pointer, reason) in found, (pointer, found)
    assert body["type"] == "urn:errand:problem:invalid-spec"
    after = await stack.http.get(f"/agents/{name}/versions")
    assert (after.status_code, after.json().get("items")) == (known.status_code, known.json().get("items"))


async def test_two_changes_at_once_cannot_close_a_circle_or_leave_a_reference_to_nobody(stack: Stack) -> None:
    names = [f"bg-{new_id()[-8:]}-{place}" for place in range(3)]
    for name in names:
        assert (await stack.http.put(f"/agents/{name}", json=starts(name))).is_success

    async def at_once(*requests: Coroutine[Any, Any, Any]) -> list[Any]:
        """Both definitions have been checked and are waiting to be written."""
        waiting = """SELECT count(*) FROM pg_locks held JOIN pg_locks wanted USING (locktype, classid, objid, objsubid)
                     WHERE locktype = 'advisory' AND held.pid = pg_backend_pid() AND NOT wanted.granted"""
        async with stack.pool.acquire() as connection, connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('agents/default', 2))")
            sent = [asyncio.create_task(request) for request in requests]
            await eventually(lambda: _reached(connection, waiting, len(sent)), pause=0.05, what="both wait")
        return await asyncio.gather(*sent)

    first, second, third = names
    answers = await at_once(
        stack.http.put(f"/agents/{first}", json=starts(first, second)),
        stack.http.put(f"/agents/{second}", json=starts(second, first)),
    )
    refused, _ = sorted(answers, key=lambda one: one.is_success)
    assert sorted(one.status_code for one in answers) == [200, 422]
    assert "immediate subagents start each other" in refused.text
    answers = await at_once(
        stack.http.put(f"/agents/{first}", json=starts(first, third)), stack.http.delete(f"/agents/{third}")
    )
    codes = [one.status_code for one in answers]
    assert codes in ([200, 409], [422, 204]), [one.text for one in answers]


async def _reached(connection: Connection, query: str, count: int) -> bool:
    return bool(await connection.fetchval(query) >= count)


APPROVE = declared_tool("approve", "summary")
STOP = {"session_stop": {"name": "approve", "message_property": "summary"}}


@pytest.mark.proves("S4-B01", "S4-B03")
async def test_steps_and_calls_run_one_after_another_and_an_error_is_a_result(stack: Stack) -> None:
    calls = [
        call("bash", command="sleep 0.5; echo one >> log"),
        call("explode"),
        call("bash", command="echo two >> log"),
        call("read_file", path="log"),
    ]
    a = prompt("order-a", {"calls": calls}, "Done.", tools=("bash", "explode", "read_file"))
    b = prompt("order-b", {"calls": [call("approve", summary="Fine.")]}, tools=(APPROVE,))
    await define(stack, "orderly", a, b, side_b=STOP)
    task_id = await stack.submit("Go.", agent="orderly")
    assert (await stack.wait(task_id))["status"] == "completed"
    events = await stack.events(task_id)
    tools = [(event["type"], event["tool"]) for event in of_type(events, "tool_called", "tool_returned")]
    in_order = [("tool_called", one["name"]) for one in calls]
    assert [one for one in tools if one[0] == "tool_called"][:4] == in_order
    # no call began before the previous one had returned
    assert tools[:8:2] == in_order and tools[1:8:2] == [("tool_returned", one["name"]) for one in calls]
    nodes = await stack.nodes(task_id)
    results = [node["body"]["results"] for node in nodes if node["kind"] == "tool_results"][0]
    assert [one["failed"] for one in results] == [False, True, False, False]
    assert results[3]["text"].index("one") < results[3]["text"].index("two")
    # everything from a step was in the tree before the next reply
    assert [(node["kind"], node["step"]) for node in nodes] == [
        ("user", 1),
        ("assistant", 1),
        ("tool_results", 2),
        ("assistant", 2),
        ("assistant", 3),
        ("tool_results", 3),
    ]


@pytest.mark.proves("S4-B03")
async def test_a_queued_message_enters_before_the_next_step(stack: Stack) -> None:
    a = prompt("queue-a", {"calls": [call("bash", command="sleep 3")]}, "Done.", tools=("bash",))
    b = prompt("queue-b", {"calls": [call("approve", summary="Fine.")]}, tools=(APPROVE,))
    await define(stack, "queueing", a, b, side_b=STOP)
    task_id = await stack.submit("Go.", agent="queueing")
    await stack.seen(task_id, "tool_called")
    sent = await stack.http.post(f"/tasks/{task_id}/steer", json={"message": "Make it blue."})
    assert sent.is_success, sent.text
    assert (await stack.wait(task_id))["status"] == "completed"
    asked = [json.dumps(one["body"]) for one in await stack.asked(task_id)]
    assert ["Make it blue." in one for one in asked] == [False, True, True]  # both sides see messages from outside


@pytest.mark.proves("S4-B08")
@pytest.mark.parametrize("blocking", [True, False])
async def test_a_parent_learns_that_the_turns_of_its_child_are_used_up(stack: Stack, blocking: bool) -> None:
    sides = prompt("rally-a", "Ping."), prompt("rally-b", "Pong.")
    await define(stack, "rally", *sides, max_session_turns=2, expose_as_tool=True)
    name = f"rally-lead-{blocking}".lower()
    lead = agent(name, subagent_tools=[{"name": "rally", "blocking": blocking}])
    (await stack.http.put(f"/agents/{name}", json=lead)).raise_for_status()
    talk = await Talk.done(stack, chain([("rally", {"message": "Play."})], last="" if blocking else "Off."), name)
    await talk.rest()
    [child] = await talk.children()
    assert child.reason == "turn_limit"
    head = f"Subagent (reference: {child.thread_id}) has "

    async def received() -> list[str]:
        own = [row.id for row in await talk.sessions() if row.thread_id == talk.id]
        return [one for id in own for one in await talk.prompts(id) if one.startswith(head)]

    [text] = await talk.results() if blocking else await eventually(received, what="the parent received it")
    await talk.rest()
    assert len(await received()) == (not blocking)
    assert text.startswith(head) and "turn" in text and "Pong." in text, text

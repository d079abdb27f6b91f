"""Permissions: rules that can only be tightened, approvals for one call, boundaries, and the keys that may approve."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from store.keys import Right
from tests.behaviour.supervision.people import agent, answer, answered, ask, bash, bearer, output, waiting
from tests.support.stack import Stack, calls, eventually, of_type, steps

pytestmark = pytest.mark.together


def rule(permission: str, pattern: str, action: str) -> dict[str, str]:
    return {"permission": permission, "pattern": pattern, "action": action}


async def exists(stack: Stack, task_id: str, name: str) -> bool:
    return await asyncio.to_thread((stack.workspace(task_id) / name).exists)


@pytest.mark.proves("S1-61")
async def test_rules_bind_commands_and_paths(people: Stack) -> None:
    """The agent's rules allow only echo. A second command in a line is checked too; the task's rules only tighten."""
    tried = [
        bash("echo fine"),
        bash("echo x; rm -rf y"),
        bash("echo $(id)"),
        bash("echo a && echo b"),
        bash("echo secret"),
        ("write_file", {"path": "./keys/../k", "content": "x"}),
        ("write_file", {"path": "/workspace/./keys//id", "content": "x"}),
        ("write_file", {"path": "notes", "content": "x"}),
    ]
    permissions = [
        rule("bash", "*", "allow"),  # this rule loosens nothing
        rule("bash", "*secret*", "deny"),
        rule("write_file", "keys/*", "deny"),
    ]
    record = await people.run(calls(*tried), "careful", permissions=permissions)
    states = [one["state"] for one in await results(people, record["task_id"])]
    assert states == ["ok", "failed", "failed", "ok", "failed", "failed", "failed", "ok"]
    said = await output(people, record["task_id"])
    named = "The rules of this task forbid this call of bash: deny bash \"*\", here 'rm -rf y'. It was not run."
    assert named in said
    assert "deny bash \"*secret*\", here 'echo secret'" in said
    assert "deny write_file \"keys/*\", here 'keys/id'" in said
    returned = [
        one["rule"] for one in of_type(await people.events(record["task_id"]), "tool_returned") if "rule" in one
    ]
    assert rule("write_file", "keys/*", "deny") in returned and len(returned) == 4
    entries = (await people.http.get(f"/tasks/{record['task_id']}/audit")).json()["items"]
    denied = [one["subject"] for one in entries if one["action"] == "tool_denied"]
    assert len(denied) == 4 and any(one.endswith('by deny bash "*secret*"') for one in denied)


@pytest.mark.together(False)
async def test_a_rule_for_no_tool_is_refused(people: Stack) -> None:
    """Such a rule would forbid nothing, and nobody would notice."""
    before = len((await people.http.get("/tasks", params={"limit": 200})).json()["items"])
    task = {"agent": "tester", "input": "x", "permissions": [rule("write_*", "*", "deny"), rule("bahs", "*", "deny")]}
    refused = await people.http.post("/tasks", json={**task, "boundary": {"tools": ["read_file", "nosuch"]}})
    assert refused.status_code == 422
    found = refused.json()["errors"]
    assert [one["pointer"] for one in found] == ["/permissions/1/permission", "/boundary/tools/1"]
    assert "bash" in found[0]["allowed"]
    typo = agent("typo", permissions=[rule("bash", "*", "ask"), rule("bahs", "*", "deny")])
    refused = await people.http.put("/agents/typo", json=typo)
    [problem] = refused.json()["errors"]
    assert problem["pointer"] == "/permissions/1/permission" and "bahs" in problem["message"]
    assert len((await people.http.get("/tasks", params={"limit": 200})).json()["items"]) == before


async def results(stack: Stack, task_id: str) -> list[dict[str, Any]]:
    rows = await stack.pool.fetch(
        "SELECT tool, state FROM tool_calls WHERE session_id = $1 ORDER BY node, call_index", task_id
    )
    return [dict(row) for row in rows]


@pytest.mark.proves("S1-13", "S1-42")
async def test_a_call_is_approved_changed_or_denied(people: Stack) -> None:
    task_id = await people.submit(calls(bash("touch a"), bash("touch b"), bash("touch c")), "careful")
    first, second, _ = await waiting(people, task_id, 3)
    assert first["kind"] == "tool_approval"
    assert first["details"]["tool"] == "bash" and first["details"]["arguments"] == {"command": "touch a"}
    assert "touch a" in first["question"]
    bad = await answer(people, task_id, first["id"], {"approved": True, "arguments": {"command": 5}})
    assert bad.json()["errors"][0]["pointer"] == "/input/arguments/command"
    assert (await answer(people, task_id, first["id"], {"approved": True})).status_code == 202
    changed = {"approved": True, "arguments": {"command": "touch instead"}}
    assert (await answer(people, task_id, second["id"], changed)).status_code == 202
    record = await answered(people, task_id, {"approved": False, "notes": "c is taken"})
    assert record["reason"] == "goal_reached"
    made = [await exists(people, task_id, name) for name in ("a", "b", "instead", "c")]
    assert made == [True, False, True, False]
    assert "A person denied this call: c is taken. It was not run." in await output(people, task_id)
    assert len(of_type(await people.events(task_id), "input_received")) == 3


@pytest.mark.proves("F-11")
async def test_an_approval_serves_one_call_only(people: Stack) -> None:
    task_id = await people.submit(steps([bash("touch a")], [bash("touch a")]), "careful")
    [first] = await waiting(people, task_id)
    await answer(people, task_id, first["id"], {"approved": True})

    async def asked_again() -> Any:
        found = await waiting(people, task_id)
        return [one for one in found if one["id"] != first["id"]]

    [second] = await eventually(asked_again, what="the same call is asked about again")
    differing = {"so_far": 0, "files": 0}  # these fields differ, because the file exists now
    assert second["details"] | differing == first["details"] | differing
    record = await answered(people, task_id, {"approved": False})
    assert record["reason"] == "goal_reached"
    assert [one["state"] for one in await results(people, task_id)] == ["ok", "failed"]


async def test_approver_cannot_approve_what_is_denied(people: Stack) -> None:
    """The approval is refused with the rule's name and the request stays open, also if several are answered at once."""
    task_id = await people.submit(calls(bash("touch a")), "careful")
    [request] = await waiting(people, task_id)
    changed = {"approved": True, "arguments": {"command": "touch a; rm -rf ."}}
    together = {"conversation_id": task_id, "transport": "stream", "answers": {request["id"]: changed}}
    for refused in (
        await answer(people, task_id, request["id"], changed),
        await people.http.post("/conversations/run", json=together),
    ):
        assert (refused.status_code, refused.json()["type"]) == (422, "urn:errand:problem:denied-by-rule")
        assert refused.json()["rule"] == rule("bash", "*", "deny")
        assert refused.json()["errors"][0]["pointer"] == "/input/arguments"
        assert "rm -rf" not in refused.text  # the refusal does not repeat the input
    assert [one["id"] for one in await waiting(people, task_id)] == [request["id"]]
    await answered(people, task_id, {"approved": True, "arguments": {"command": "touch b"}})
    assert await exists(people, task_id, "b")


@pytest.mark.proves("S1-61")
async def test_rules_apply_to_agents_that_work_is_delegated_to(people: Stack) -> None:
    """This holds inline and in separate sessions; an inline subagent's approvals are requests of the session."""
    denied = steps([bash("rm x"), bash("danger")])
    inline = ("delegate", {"agent": "mute-helper", "prompt": denied})
    child = ("task", {"agent": "asking-helper", "prompt": denied, "description": "the same"})
    refused = ("task", {"agent": "mute-helper", "prompt": denied, "description": "not at all"})
    permissions = [rule("bash", "rm *", "deny"), rule("delegation", "mute-helper", "ask")]
    task_id = await people.submit(calls(inline, child, refused), "asking-lead", permissions=permissions)
    handed = await waiting(people, task_id, 2)
    assert {one["details"]["tool"] for one in handed} == {"delegate", "task"}
    for one in handed:
        yes = {"approved": one["details"]["tool"] == "delegate"}
        assert (await answer(people, task_id, one["id"], yes)).status_code == 202

    async def both() -> list[dict[str, Any]] | None:
        params = {"conversation_id": task_id}
        items: list[dict[str, Any]] = (await people.http.get("/input-requests", params=params)).json()["items"]
        return items if len(items) == 2 else None

    requests = await eventually(both, what="both ask for the danger")
    assert {one["session_id"] == task_id for one in requests} == {True, False}
    for one in requests:
        no = {"approved": False, "notes": "too dangerous"}
        assert (await answer(people, one["session_id"], one["id"], no)).status_code == 202
    await people.wait(task_id)
    said = await output(people, task_id)
    assert said.count("forbid this call of bash") == 2 and said.count("too dangerous") == 2


OWN_TOOLS = agent(
    "own-tools", tools=["write_file", "save_artifact", "copy_file", "ping", "add", "ledger_again", "bash"]
)


def copied(source: str, *targets: str) -> tuple[str, dict[str, Any]]:
    return "copy_file", {"source": source, "targets": list(targets)}


@pytest.mark.proves("S1-62")
async def test_path_boundary_binds_every_tool_that_takes_paths(people: Stack, tmp_path: Path) -> None:
    """This includes users' own tools, with all of their paths. A tool without declared paths is denied."""
    await people.http.put("/agents/own-tools", json=OWN_TOOLS)
    tried = [
        ("write_file", {"path": "src/a", "content": "x"}),
        copied("src/a", "src/b"),
        copied("secret", "src/c"),
        copied("src/a", "src/d", "elsewhere"),
        ("save_artifact", {"path": "secret"}),
        ("save_artifact", {"path": "src/a"}),
        ("ledger_again", {"path": str(tmp_path / "ledger")}),
        ("ping", {"host": "example.org"}),
        ("add", {"numbers": [1, 2]}),
    ]
    record = await people.run(steps(*([one] for one in tried)), "own-tools", boundary={"paths": ["src/*"]})
    states = [one["state"] for one in await results(people, record["task_id"])]
    assert states == ["ok", "ok", "failed", "failed", "failed", "ok", "failed", "ok", "ok"]
    assert not (tmp_path / "ledger").exists()
    made = [await exists(people, record["task_id"], name) for name in ("src/b", "src/c", "src/d", "elsewhere")]
    assert made == [True, False, False, False]
    denied = [one["rule"] for one in of_type(await people.events(record["task_id"]), "tool_returned") if "rule" in one]
    assert denied == [rule("boundary.paths", "*", "deny")] * 4
    offered = {tool["name"] for tool in (await people.asked(record["task_id"]))[0]["body"]["tools"]}
    assert offered == {"write_file", "save_artifact", "copy_file", "ping", "add"}


@pytest.mark.proves("S1-62")
async def test_host_boundary_binds_every_tool_that_reaches_hosts(people: Stack, tmp_path: Path) -> None:
    await people.http.put("/agents/own-tools", json=OWN_TOOLS)
    tried: list[tuple[str, dict[str, Any]]] = [
        ("ping", {"host": "example.org"}),
        ("ping", {"host": "EVIL.org"}),
        ("ping", {"host": "https://example.org:8443/x"}),
        ("ledger_again", {"path": str(tmp_path / "ledger")}),
        ("write_file", {"path": "a", "content": "x"}),
        ("add", {"numbers": [1, 2]}),
        bash("echo x"),
    ]
    boundary = {"hosts": ["example.org"], "tools": ["ping", "ledger_again", "write_file", "add", "b*"]}
    record = await people.run(steps(*([one] for one in tried)), "own-tools", boundary=boundary)
    states = [one["state"] for one in await results(people, record["task_id"])]
    assert states == ["ok", "failed", "ok", "failed", "ok", "ok", "failed"]
    assert not (tmp_path / "ledger").exists()
    # the hosts of a command cannot be known in advance; if the boundary lists it, it is accepted
    listed = {**boundary, "tools": ["bash", "ledger_again"]}
    record = await people.run(calls(bash("echo x"), tried[3]), "own-tools", boundary=listed)
    assert [one["state"] for one in await results(people, record["task_id"])] == ["ok", "failed"]


@pytest.mark.proves("S1-26")
async def test_rights_decide_who_may_answer_and_who_may_approve(people: Stack) -> None:
    task_id = await people.submit(calls(ask("A?"), bash("touch a")), "careful")
    question, approval = await waiting(people, task_id, 2)
    assert (question["kind"], approval["kind"]) == ("clarification", "tool_approval")
    yes = {"approved": True}
    for rights, request, value in (
        ([Right.READ], question, "a"),
        ([Right.READ, Right.ANSWER], approval, yes),
        ([Right.READ, Right.APPROVE], question, "a"),
    ):
        refused = await answer(people, task_id, request["id"], value, **await bearer(people, *rights))
        assert refused.status_code == 403, refused.text
    for given in ({}, {question["id"]: "a"}):  # the approval that is left out would be denied
        body, key = {"answers": given}, await bearer(people, Right.SUBMIT, Right.ANSWER)
        refused = await people.http.post(f"/conversations/{task_id}/messages", json=body, headers=key)
        assert refused.status_code == 403, refused.text
    assert len(await waiting(people, task_id, 2)) == 2
    answerer, supervisor = await bearer(people, Right.ANSWER), await bearer(people, Right.SUPERVISE)
    assert (await answer(people, task_id, question["id"], "a", **answerer)).status_code == 202
    assert (await answer(people, task_id, approval["id"], yes, **supervisor)).status_code == 202
    await people.wait(task_id)
    history = (await people.http.get(f"/tasks/{task_id}/input-requests")).json()["items"]
    assert {one["kind"]: one["answered_by"] for one in history} == {
        "clarification": "answer",
        "tool_approval": "supervise",
    }


FETCH = ("fetch_url", {"url": "http://127.0.0.1:1/"})
WRITES = ("write_file", {"path": "src/a", "content": "x"})


@pytest.mark.proves("S0-B48", "S3-B05")
@pytest.mark.parametrize(
    ("way", "spec", "lost"),
    [
        ("task", {}, set()),
        ("delegate", {"boundary": {"tools": ["delegate", "task", "write_file"]}}, {"bash", "fetch_url"}),
        ("task", {"boundary": {"hosts": ["example.org"]}}, {"bash", "fetch_url"}),
        ("delegate", {"boundary": {"paths": ["docs/*"]}}, {"bash", "write_file"}),
        ("task", {"permissions": [rule("write_file", "*", "deny"), rule("bash", "*", "deny")]}, {"write_file", "bash"}),
    ],
    ids=["nothing", "tools", "hosts", "paths", "rules"],
)
async def test_bounds_of_a_task_hold_for_the_subagents_of_a_parent_without_tools(
    people: Stack, way: str, spec: dict[str, Any], lost: set[str]
) -> None:
    work = calls(bash("echo ran"), WRITES, FETCH)
    given = {"agent": "mute-helper", "prompt": work, **({} if way == "delegate" else {"description": "x"})}
    record = await people.run(calls((way, given)), "conductor", **spec)
    [session] = [
        row["id"]
        for row in await people.pool.fetch(
            "SELECT id FROM sessions WHERE conversation_id = $1 AND (spawned_by IS NOT NULL) = $2",
            record["task_id"],
            way == "task",
        )
    ]
    made = {one["tool"]: one["state"] for one in await results(people, session)}
    assert made["bash"] == ("failed" if "bash" in lost else "ok")
    assert made["write_file"] == ("failed" if "write_file" in lost else "ok")
    assert made["fetch_url"] == "failed"  # nothing answers there; if it is lost, the rules say so first
    said = await output(people, record["task_id"])
    assert ("this call of fetch_url" in said) == ("fetch_url" in lost)


async def test_always_is_a_rule_for_this_conversation_alone(people: Stack) -> None:
    again = steps([bash("touch a")], [bash("touch a")], [bash("touch b && touch a")])
    task_id = await people.submit(again, "careful")
    [first] = await waiting(people, task_id)
    assert first["details"]["always"] == ["touch a"]
    always = {"approved": True, "always": ["touch a"]}
    assert (await answer(people, task_id, first["id"], always)).status_code == 202

    async def combined() -> Any:
        return [one for one in await waiting(people, task_id) if one["details"]["arguments"]["command"] != "touch a"]

    await eventually(combined, what="the same command runs again without a question, combined with another it does not")
    await answered(people, task_id, {"approved": True})
    body = {"input": calls(bash("touch a")), "transport": "stream", "conversation_id": task_id}
    further = (await people.http.post("/conversations/run", json=body)).json()["session_id"]
    assert (await people.wait(further))["status"] == "completed"  # the rule applies to later turns
    other = await people.submit(calls(bash("touch a")), "careful")
    [request] = await waiting(people, other)  # and to no other conversation
    denied = await answer(people, other, request["id"], {"approved": False, "always": ["*"]})
    assert denied.status_code == 422
    await people.cancel(other)

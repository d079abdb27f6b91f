"""Attachments: files sent between threads are copied, and each side sees only paths of its own workspace."""

import re
from typing import Any

import pytest
import pytest_asyncio

from store import workspaces
from store.sessions import SessionRow
from tests.behaviour.conversations.talk import Gate, Talk, agent, chain
from tests.behaviour.graphs.duet import call, declared_tool, define, prompt
from tests.support.stack import Stack, eventually

STOP = {"name": "approve", "message_property": "summary", "attachments_property": "files"}
FAIL = {"name": "give_up", "message_property": "reason", "attachments_property": "files"}
SCHEMA = {
    "type": "object",
    "properties": {"brief": {"type": "string"}, "papers": {"type": "array", "items": {"type": "string"}}},
    "required": ["brief"],
}
WRITES = ("write_file", {"path": "drafts/oak.txt", "content": "acorn"})
LOOKS = ("bash", {"command": "cat attachments/*/*"})
GATE = Gate()  # children wait here until the test opens it
PATH = r"attachments/[0-9a-z]{8}/"


@pytest_asyncio.fixture(scope="module", autouse=True)
async def family(stack: Stack) -> None:
    works = {"calls": [call("bash", command="cat attachments/*/oak*.txt drafts/oak.txt; printf grown > out.txt")]}
    worked: list[Any] = [works, "A draft."]
    worker = prompt("at_worker", *worked * 3, tools=("bash",))
    approves = {"calls": [call("approve", summary="See out.txt.", files=["out.txt"])]}
    approver = prompt("at_approver", *[approves] * 3, tools=(declared_tool("approve", "summary", "files"),))
    sides: dict[str, Any] = {"side_b": {"session_stop": STOP}, "expose_as_tool": True, "max_session_turns": 6}
    await define(stack, "at_pair", worker, approver, **sides)
    await define(stack, "at_typed", worker, approver, **sides, input_schema=SCHEMA)
    quits = {"calls": [call("give_up", reason="No rain, see ./out.txt.", files=["out.txt"])]}
    loser = prompt("at_loser", works, quits, tools=("bash", declared_tool("give_up", "reason", "files")))
    await define(stack, "at_failing", loser, approver, **{**sides, "side_a": {"session_fail": FAIL}})
    waits = {"calls": [call("wait_for", path=str(GATE.path))]}
    waiting = prompt("at_waits", waits, works, "A draft.", tools=("bash", "wait_for"))
    await define(stack, "at_waiting", waiting, approver, **sides)
    configured: dict[str, Any] = {
        "at_lead": {"name": "at_pair"},
        "at_later": {"name": "at_pair", "blocking": False},
        "at_unlucky": {"name": "at_failing"},
        "at_unlucky_later": {"name": "at_failing", "blocking": False},
        "at_patient": {"name": "at_waiting", "blocking": False, "resumable": True},
        "at_mapped": {"name": "at_typed", "init_user_message_property": "brief", "init_attachments_property": "papers"},
        "at_keeper": {"name": "at_pair", "resumable": True},
    }
    rules = [
        {"permission": "read_file", "pattern": f"{folder}/*", "action": action}
        for folder, action in (("secret", "deny"), ("guarded", "ask"), ("open", "allow"))
    ]
    for name, config in configured.items():
        definition = agent(name, subagent_tools=[config], permissions=rules)
        answer = await stack.http.put(f"/agents/{name}", json=definition)
        assert answer.is_success, answer.text


async def files(stack: Stack, row: SessionRow) -> list[str]:
    _, manifest = await workspaces.get(stack.pool, row.tenant, row.workspace_id)
    found = [path for path, entry in manifest.items() if "kind" not in entry]
    return sorted(re.sub(PATH, "attachments/*/", path) for path in found)


async def outputs(stack: Stack, session_id: str, tool: str = "bash") -> list[str]:
    rows = await stack.pool.fetch(
        "SELECT result FROM tool_calls WHERE session_id = $1 AND tool = $2 ORDER BY started_at", session_id, tool
    )
    return [row["result"] for row in rows]


@pytest.mark.proves("S4-23")
@pytest.mark.parametrize("way", ["at_lead", "at_mapped", "at_keeper", "at_messaged"])
async def test_files_are_copied_in_both_directions_under_paths_of_the_receiver(stack: Stack, way: str) -> None:
    text, paths = "Look at drafts/oak.txt first.", ["drafts/oak.txt"]
    ann = {"agent": "at_pair", "name": "ann"}
    calls: dict[str, list[Any]] = {
        "at_lead": [("at_pair", {"message": text, "attachments": paths})],
        "at_mapped": [("at_typed", {"brief": text, "papers": paths})],
        "at_keeper": [("subagent_create", {**ann, "message": text, "attachments": paths})],
        "at_messaged": [
            ("subagent_create", {**ann, "message": "Grow."}),
            ("subagent_message", {"target": "ann", "message": text, "attachments": paths}),
        ],
    }
    script = chain([WRITES], *[[one] for one in calls[way]], [LOOKS])
    talk = await Talk.done(stack, script, "at_keeper" if way == "at_messaged" else way)
    *earlier, child = await talk.children()
    assert child.workspace_id != talk.id and len(earlier) == (way == "at_messaged")
    [sent] = await talk.prompts(child.id)
    assert re.fullmatch(rf"Look at ({PATH}oak\.txt) first\.\n\nAttachments:\n- \1", sent), sent
    assert (await outputs(stack, child.id))[0].startswith("acorn")
    assert await files(stack, child) == ["attachments/*/oak.txt", "out.txt"]
    *_, returned, looked = await talk.results()
    head = f"Subagent (reference: {child.thread_id}) has returned the following result:\n\n"
    assert re.fullmatch(rf"{re.escape(head)}See ({PATH}out\.txt)\.\n\nAttachments:\n- \1", returned), returned
    assert "grown" in looked
    came = ["attachments/*/out.txt"] * len(calls[way])
    assert await files(stack, await talk.session(talk.id)) == [*came, "drafts/oak.txt"]


@pytest.mark.proves("S4-26")  # results and failures, of blocking and background subagents
@pytest.mark.parametrize("parent", ["at_unlucky", "at_unlucky_later", "at_lead", "at_later"])
async def test_files_of_failures_and_results_arrive_before_the_message(stack: Stack, parent: str) -> None:
    child_agent = "at_failing" if parent.startswith("at_unlucky") else "at_pair"
    talk = await Talk.done(stack, chain([(child_agent, {"message": "Grow."})]), parent)
    await talk.rest()
    [child] = await talk.children()
    said, shown = "has returned the following result:\n\nSee ", rf"({PATH}out\.txt)\."
    if child_agent == "at_failing":
        said, shown = "has reported a failure:\n\nNo rain, see ", rf"({PATH}out\.txt)\."
    text = f"Subagent (reference: {child.thread_id}) {said}"
    if parent in ("at_unlucky", "at_lead"):
        [came] = await talk.results()
    else:

        async def messages() -> list[str]:
            sent = [one for row in await talk.sessions() for one in await talk.prompts(row.id)]
            return [one for one in sent if one.startswith(text)]

        [came] = await eventually(messages, what="the message of the child")
        await talk.rest()
        row = await stack.pool.fetchrow(
            """SELECT w.updated_at <= m.created_at AS before FROM mailbox m
                 JOIN workspaces w ON w.tenant = m.tenant AND w.id = m.conversation_id WHERE m.conversation_id = $1""",
            talk.id,
        )
        assert row is not None and row["before"]
    assert re.fullmatch(rf"{re.escape(text)}{shown}\n\nAttachments:\n- \1", came), came
    assert await files(stack, await talk.session(talk.id)) == ["attachments/*/out.txt"]
    later = await talk.say(chain([LOOKS]))
    assert "grown" in (await talk.results(later))[0]


@pytest.mark.proves("S4-23", "S4-31")  # the child is running
async def test_files_sent_to_a_running_subagent_arrive_before_the_message(stack: Stack) -> None:
    first = ("subagent_create", {"agent": "at_waiting", "name": "ann", "message": "Wait."})
    talk = await Talk.begin(stack, chain([WRITES], [first], last="Off."), "at_patient")
    child = await talk.child()
    await stack.seen(child.id, "tool_called", tool="wait_for")
    await talk.ended(talk.id)
    again = ("subagent_message", {"target": "ann", "message": "drafts/oak.txt", "attachments": ["drafts/oak.txt"]})
    await talk.ended(await talk.say(chain([again], last="Off.")))
    row = await stack.pool.fetchrow(
        """SELECT i.taken_by, w.updated_at <= i.created_at AS before FROM inbox i
             JOIN workspaces w ON w.id = $2 WHERE i.thread_id = $1 ORDER BY i.number DESC LIMIT 1""",
        child.thread_id,
        child.workspace_id,
    )
    assert row is not None and (row["taken_by"], row["before"]) == (None, True)
    assert await files(stack, child) == ["attachments/*/oak.txt"]
    GATE.open()
    await talk.rest()
    [_, sent] = await talk.prompts(child.id)
    assert re.fullmatch(rf"({PATH}oak\.txt)\n\nAttachments:\n- \1", sent), sent
    assert (await outputs(stack, child.id))[0].startswith("acorn")
    # and back: the result names a file of the parent's own workspace, which was there before the message

    async def returned() -> list[str]:
        said = [one for row in await talk.sessions() for one in await talk.prompts(row.id)]
        return [one for one in said if "has returned the following result" in one]

    [result] = await eventually(returned, what="the result of the child")
    assert re.search(rf"\n\nSee ({PATH}out\.txt)\.\n\nAttachments:\n- \1$", result), result
    assert await files(stack, await talk.session(talk.id)) == ["attachments/*/out.txt", "drafts/oak.txt"]
    assert await stack.pool.fetchval(
        """SELECT bool_and(w.updated_at <= m.created_at) FROM mailbox m
             JOIN workspaces w ON w.tenant = m.tenant AND w.id = m.conversation_id WHERE m.conversation_id = $1""",
        talk.id,
    )


REFUSED = {
    "../oak.txt": "contains '..'",
    "/etc/passwd": "is absolute",
    "drafts/none.txt": "There is no file",
    "drafts": "only files can be attached",
    "drafts/link.txt": "only files can be attached",
    "drafts/outside.txt": "There is no file",
    "linked/oak.txt": "There is no file",
    "secret/key.txt": "A rule keeps 'secret/key.txt' from you: deny read_file \"secret/*\"",
    "guarded/key.txt": "A rule keeps 'guarded/key.txt' from you: ask read_file \"guarded/*\"",
    "drafts/../guarded/key.txt": "contains '..'",
    "./guarded//key.txt": 'ask read_file "guarded/*"',
}


async def test_file_that_cannot_be_attached_starts_no_subagent(stack: Stack) -> None:
    secret = "mkdir secret guarded open; tee secret/key.txt guarded/key.txt > open/key.txt <<< x"
    links = "ln -s oak.txt drafts/link.txt; ln -s /etc/passwd drafts/outside.txt; ln -s drafts linked"
    makes = ("bash", {"command": f"{secret}; {links}"})
    pairs = [[("at_pair", {"message": path, "attachments": [path]})] for path in (*REFUSED, "open/key.txt")]
    talk = await Talk.done(stack, chain([WRITES], [makes], *pairs), "at_lead")
    _, _, *refusals, _ = await talk.results()
    for (path, why), refusal in zip(REFUSED.items(), refusals, strict=True):
        assert why in refusal and "Nothing was sent." in refusal, path
    assert len(await talk.children()) == 1  # with open/key.txt

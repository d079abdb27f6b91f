"""Subagents as tools of a prompt: four modes, exact texts, named instances, and the parent's registry."""

from typing import Any

import pytest
import pytest_asyncio

from domain.ids import new_id
from tests.behaviour.conversations.talk import Talk, agent, asked, chain, say
from tests.behaviour.graphs.duet import call, declared_tool, define, prompt
from tests.support.stack import Stack, eventually, of_type

pytestmark = pytest.mark.together

STOP = {"name": "approve", "message_property": "summary"}
FAIL = {"name": "give_up", "message_property": "reason"}
RETURNED = "Subagent (reference: {}) has returned the following result:\n\n{}"
FAILED = "Subagent (reference: {}) has reported a failure:\n\n{}"
SUBAGENTS: dict[str, Any] = {
    "st_lead": {"name": "st_pair"},
    "st_later": {"name": "st_pair", "blocking": False},
    "st_unlucky": {"name": "st_failing", "blocking": False},
    "st_keeper": {"name": "st_pair", "resumable": {"max_instances": 2}},
    "st_patient": {"name": "st_pair", "blocking": False, "resumable": True},
    "st_mute": {"name": "st_failing", "blocking": False, "resumable": {"parent_communication": "explicit"}},
    "st_quiet": {"name": "st_reporter", "blocking": False, "resumable": {"parent_communication": "explicit"}},
    "st_mapped": {"name": "st_typed", "init_user_message_property": "brief", "init_agent_name_property": "label"},
    "st_kept": {"name": "st_typed", "init_user_message_property": "brief", "resumable": True},
}
SWITCHED: list[dict[str, Any]] = [
    {"name": "st_pair", "optional": "WITH_PAIR"},
    {"name": "st_typed", "optional": "WITH_PAIR", "resumable": True},
    {"name": "st_reporter", "resumable": True},  # this subagent is always offered, and with it the tools for instances
]


@pytest_asyncio.fixture(scope="module", autouse=True)
async def family(stack: Stack) -> None:
    approve, give_up = declared_tool("approve", "summary"), declared_tool("give_up", "reason")
    worker = prompt("st_worker", "A draft.", "Another draft.", "A third draft.")
    approver = {"calls": [call("approve", summary="Fine.")]}
    reviewer = prompt("st_reviewer", approver, approver, approver, tools=(approve,))
    sides: dict[str, Any] = {"side_b": {"session_stop": STOP}, "expose_as_tool": True, "max_session_turns": 6}
    shown: dict[str, Any] = {"tool_description": "Drafts and reviews."}
    await define(stack, "st_pair", worker, reviewer, **sides, **shown)
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"brief": {"type": "string"}, "label": {"type": "string"}},
        "required": ["brief"],
        "additionalProperties": False,
    }
    schema["properties"]["tone"] = {"type": "string"}
    briefed = prompt("st_briefed", "A draft.", "Another draft.")
    briefed["text"] += " It is about: {{arguments.brief}} {{ arguments.tone }}"
    await define(stack, "st_typed", briefed, reviewer, **sides, input_schema=schema)
    closer = agent("st_closer", expose_as_tool=True)
    assert (await stack.http.put("/agents/st_closer", json=closer)).is_success
    quits = prompt("st_quits", {"calls": [call("give_up", reason="No paper.")]}, tools=(give_up,))
    await define(stack, "st_failing", quits, reviewer, **{**sides, "side_a": {"session_fail": FAIL}})
    reports = prompt(
        "st_reports",
        {"calls": [call("set_status", status="half done")]},
        {"calls": [call("notify_parent", content="Which colour?", needs_answer=True)]},
        {"calls": [call("notify_parent", content="It is begun.", needs_answer=False)]},
        {"calls": [call("notify_parent", content="It does not say.")]},
        "A draft.",
    )
    await define(stack, "st_reporter", reports, reviewer, **sides)
    flag = {"WITH_PAIR": {"description": "Whether the pair is there.", "required": False}}
    switched = agent("st_switched", subagent_tools=SWITCHED, variables=flag)
    assert (await stack.http.put("/agents/st_switched", json=switched)).is_success
    for name, config in SUBAGENTS.items():
        extra: dict[str, Any] = {"handoffs": ["st_closer"]} if name == "st_lead" else {}
        answer = await stack.http.put(f"/agents/{name}", json=agent(name, subagent_tools=[config], **extra))
        assert answer.is_success, answer.text


async def children_of(talk: Talk) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await talk.shown())["children"]
    return found


async def messages_to_root(talk: Talk) -> list[str]:
    """Return the messages of subagents to the root thread, once there are any."""

    async def look() -> list[str] | None:
        rows = [row for row in await talk.sessions() if row.thread_id == talk.id and row.status.terminal]
        found = [one for row in rows for one in await talk.prompts(row.id) if one.startswith("Subagent (")]
        return found or None

    return await eventually(look, what=f"a message of a subagent in {talk.id}")


async def _count(talk: Talk, least: int) -> bool:
    return len(await messages_to_root(talk)) >= least


async def silent(talk: Talk) -> list[str]:
    """Return the messages of the root thread that are shown as silent."""
    ids = [row.id for row in await talk.sessions() if row.thread_id == talk.id]
    shown = [one for id in ids for one in (await talk.stack.http.get(f"/sessions/{id}")).json()["display_messages"]]
    return [one["text"] for one in shown if one.get("silent")]


def create(name: str, message: str = "Draft it.", agent: str = "st_pair") -> Any:
    return "subagent_create", {"agent": agent, "name": name, "message": message}


def message(target: str, text: str = "Once more.") -> Any:
    return "subagent_message", {"target": target, "message": text}


@pytest.mark.proves("S4-13")
async def test_blocking_subagent_is_a_tool_named_after_its_agent_whose_result_is_the_childs(stack: Stack) -> None:
    talk = await Talk.done(stack, chain([("st_pair", {"message": "Draft it."})]), "st_lead")
    [child] = await talk.children()
    assert child.thread_id != talk.id and child.workspace_id != (await talk.session(talk.id)).workspace_id
    assert await talk.results() == [RETURNED.format(child.thread_id, "Fine.")]
    assert await talk.prompts(child.id) == ["Draft it."]
    [entry] = await children_of(talk)
    assert (entry["reference"], entry["status"], entry["resumable"]) == (child.thread_id, "completed", False)


@pytest.mark.proves("S4-24")
async def test_result_of_a_background_subagent_arrives_as_a_silent_message(stack: Stack) -> None:
    talk = await Talk.done(stack, chain([("st_pair", {"message": "Draft it."})], last="Off."), "st_later")
    await talk.rest()
    [child] = await talk.children()
    text = RETURNED.format(child.thread_id, "Fine.")
    assert await messages_to_root(talk) == [text] and await silent(talk) == [text]


@pytest.mark.proves("S4-25")
async def test_failure_of_a_background_subagent_arrives_with_its_details(stack: Stack) -> None:
    talk = await Talk.done(stack, chain([("st_failing", {"message": "Draft it."})], last="Off."), "st_unlucky")
    await talk.rest()
    [child] = await talk.children()
    text = FAILED.format(child.thread_id, "No paper.")
    assert await messages_to_root(talk) == [text] and await silent(talk) == [text]


@pytest.mark.proves("S4-B07")
async def test_arguments_of_creation_name_and_tag_the_thread_and_stay_in_its_prompt(stack: Stack) -> None:
    brief = f"In short {new_id()}."
    given = {"brief": brief, "label": "ann"}
    steps = chain(
        [("subagent_create", {"agent": "st_typed", "name": "ann", "arguments": given})],
        [message("ann", "Again.")],
    )
    talk = await Talk.done(stack, steps, "st_kept")
    first, second = await talk.children()
    assert await talk.prompts(first.id) == [brief] and first.subagent_name == "ann"
    [thread] = [one for one in (await talk.shown())["threads"] if one["thread_id"] == first.thread_id]
    assert (thread["tags"], thread["arguments"]) == (["name:ann"], given)
    systems = [request["system"][0]["text"] for request in await asked(stack, brief)]
    # in both sessions of the thread, and only for the side whose prompt contains it
    assert len([text for text in systems if f"It is about: {brief} (not given)" in text]) == 2
    assert await talk.prompts(second.id) == ["Again."]
    mapped = await Talk.done(stack, chain([("st_typed", {"brief": "x", "label": "ben"})]), "st_mapped")
    [child] = await mapped.children()
    assert child.subagent_name == "ben" and (await mapped.shown())["threads"][1]["tags"] == ["name:ben"]


@pytest.mark.proves("S4-B14")
async def test_threads_have_tags_and_a_user_by_which_they_are_found(stack: Stack) -> None:
    user, tag = f"user-{new_id()}", f"ticket {new_id()}"
    script = chain([("st_pair", {"message": "Draft it.", "name": "ann"})], [("st_closer", {})], last="Closed.")
    talk = await Talk.done(stack, script, "st_lead", tags=["support", tag], user_id=user)
    await talk.ended(await talk.say(say("More."), tags=["late", "support"], user_id="somebody else"))
    root, child = (await talk.shown())["threads"]
    assert (root["tags"], root["user_id"]) == (["support", tag, "late"], user)
    assert (child["tags"], child["user_id"]) == (["name:ann"], user)
    # the agent that took over has the same thread
    assert (root["thread_id"], root["agent"]) == (talk.id, "st_closer")
    assert [row.thread_id for row in await talk.sessions() if not row.spawned_by] == [talk.id] * 2
    for found in ({"user_id": user}, {"tag": tag}, {"tag": "name:ann", "user_id": user}):
        listed = (await stack.http.get("/conversations", params=found)).json()["items"]
        assert [one["conversation_id"] for one in listed] == [talk.id], found
    for wrong in ({"user_id": user, "tag": "other"}, {"user_id": "somebody else", "tag": tag}):
        assert (await stack.http.get("/conversations", params=wrong)).json()["items"] == []
    refused: list[dict[str, Any]] = [{"tags": [""]}, {"tags": ["a\nb"]}, {"tags": ["x" * 101]}, {"user_id": ""}]
    for body in (*refused, {"tags": ["x"] * 21}, {"tags": None}, {"user_id": 5}):
        answer = await stack.http.post("/tasks", json={"agent": "st_lead", "input": "x", **body})
        assert answer.status_code == 422, answer.text


@pytest.mark.proves("S4-19")
async def test_instances_have_tools_that_create_and_message_them_and_each_needs_a_name(stack: Stack) -> None:
    mark = new_id()
    talk = await Talk.done(stack, mark + chain([create(""), create("  ")]), "st_keeper")
    results = await talk.results()
    assert ["name" in one for one in results] == [True, True] and not await talk.children()
    states = [one["state"] for one in of_type(await stack.events(talk.id), "tool_returned")]
    assert states == ["failed", "failed"]
    await Talk.done(stack, mark + say(), "st_lead")  # its subagent is not resumable
    first, *_, last = await asked(stack, mark)
    tools = {"subagent_create", "subagent_message"}
    assert tools <= {tool["name"] for tool in first["tools"]}
    assert not tools & {tool["name"] for tool in last["tools"]}


@pytest.mark.proves("S4-21")
async def test_instances_beyond_the_maximum_are_refused_with_the_names_of_the_existing_ones(stack: Stack) -> None:
    talk = await Talk.done(stack, chain([create("ann"), create("ben"), create("cat")]), "st_keeper")
    results = await talk.results()
    assert "There are 2 instances of 'st_pair'" in results[2] and "ann, ben" in results[2]
    assert "subagent_message" in results[2] and len(await talk.children()) == 2


@pytest.mark.proves("S4-20")
async def test_subagent_that_is_not_resumable_cannot_be_addressed(stack: Stack) -> None:
    agents = agent("st_both", subagent_tools=[{"name": "st_pair"}, {"name": "st_typed", "resumable": True}])
    assert (await stack.http.put("/agents/st_both", json=agents)).is_success
    talk = await Talk.done(stack, chain([("st_pair", {"message": "Draft it."})], [message("$0")]), "st_both")
    assert "accepts no messages" in (await talk.results())[1] and len(await talk.children()) == 1


@pytest.mark.proves("S4-29", "S4-30")
async def test_registry_has_all_fields_and_is_in_the_parents_context(stack: Stack) -> None:
    talk = await Talk.done(stack, chain([create("ann")], [("list_files", {"path": "."})], last="Off."), "st_patient")
    await talk.rest()
    [child, *_] = await talk.children()
    [entry] = await children_of(talk)
    expected = {
        "reference": child.thread_id,
        "name": "ann",
        "agent": "st_pair",
        "title": "ann (@st_pair subagent)",
        "description": "Drafts and reviews.",
        "resumable": True,
        "blocking": False,
        "thread_name": "ann",
        "status": "completed",
        "parent_communication": "implicit",
    }
    assert {key: entry[key] for key in expected} == expected
    assert entry["created_at"] and entry["spawn_group_id"]
    requests = await asked(stack, f"reference: {child.thread_id}): ")
    last = requests[-1]["messages"][-1]["content"][-1]["text"]
    assert last.startswith("<system_message>\nYour subagents:\n- ann (agent st_pair")


@pytest.mark.proves("S4-28", "S4-B09")
async def test_explicit_child_sends_only_its_own_messages_and_publishes_its_status(stack: Stack) -> None:
    talk = await Talk.done(stack, chain([create("rep", agent="st_reporter")], last="Off."), "st_quiet")
    [child, *_] = await talk.children()
    await talk.ended(child.id)
    await talk.rest()
    head = f"Subagent (reference: {child.thread_id}) has sent a message. It needs"
    # a message without the field needs_answer is refused
    await eventually(lambda: _count(talk, 2), what="both messages reached the parent")
    assert await messages_to_root(talk) == [f"{head} an answer.\n\nWhich colour?", f"{head} no answer.\n\nIt is begun."]
    returned = [one["state"] for one in of_type(await stack.events(child.id), "tool_returned")]
    assert returned[1:4] == ["ok", "ok", "failed"] and not await talk.mail()
    [entry] = await children_of(talk)
    assert (entry["status"], entry["parent_communication"]) == ("half done", "explicit")
    # the parent gets no failure either: only the registry shows it
    talk = await Talk.done(stack, chain([create("rep", agent="st_failing")], last="Off."), "st_mute")
    await talk.rest()
    assert [row.status for row in await talk.children()] == ["failed"] and not await talk.mail()
    assert [row.id for row in await talk.sessions() if row.thread_id == talk.id] == [talk.id]
    assert not [one for one in await talk.prompts(talk.id) if one.startswith("Subagent (")]
    assert [entry["status"] for entry in await children_of(talk)] == ["failed"]


@pytest.mark.proves("S4-16")
@pytest.mark.parametrize("value", ["TRUE", "1", "yes", "no", None])
async def test_optional_subagent_is_offered_only_if_its_variable_is_true(stack: Stack, value: str | None) -> None:
    mark, typed = new_id(), {"agent": "st_typed", "name": "ann", "arguments": {"brief": "In short."}}
    steps = chain([("st_pair", {"message": "Draft it."})], [("subagent_create", typed)], [message("ann")])
    given: dict[str, Any] = {"context": {"variables": {"WITH_PAIR": value} if value else {}}}
    talk = await Talk.done(stack, mark + steps, "st_switched", **given)
    results, called = await talk.results(), [row.agent for row in await talk.children()]
    offered = {tool["name"]: tool["description"] for tool in (await asked(stack, mark))[0]["tools"]}
    if value in ("no", None):
        assert called == [] and "no tool 'st_pair'" in results[0]
        assert results[1] == "There is no subagent 'st_typed' for you. Available: st_reporter. Nothing was started."
        assert "There is no subagent 'ann'" in results[2]
        assert "st_pair" not in offered and "st_typed" not in offered["subagent_create"]
        return
    assert called == ["st_pair", "st_typed", "st_typed"] and "st_pair" in offered
    # an existing instance cannot be called any more once its variable is off
    put = await stack.http.put(f"/threads/{talk.id}/variables", json={"variables": {"WITH_PAIR": "off"}})
    assert put.is_success, put.text
    later = await talk.say(chain([message("ann")]))
    assert "There is no subagent 'st_typed' for you." in (await talk.results(later))[0]
    assert len(await talk.children()) == 3

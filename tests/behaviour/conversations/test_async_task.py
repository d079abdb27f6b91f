"""async_task, async_task_result and gather: launches return immediately, results are final, refusals start nothing."""

import time
from dataclasses import dataclass
from typing import Any

import pytest

from activities.tools.registry import TOOLS
from domain.sessions.session import Status
from store.sessions import SessionRow
from tests.behaviour.conversations.talk import (
    BROKEN,
    HANG,
    MUTE,
    Call,
    Gate,
    Scenes,
    Talk,
    asked,
    async_delegate,
    async_task,
    chain,
    gather,
    result_of,
    say,
    slow,
    task,
)
from tests.support.stack import Stack, of_type

scene = Scenes(at_once=5)
AVAILABLE = "Available: helper, lost, scribe. Nothing was started."

DELEGATION_TOOLS = {name for name, tool in TOOLS.items() if tool.delegates}


@dataclass
class Collected:
    talk: Talk
    children: list[SessionRow]
    texts: list[str]
    events: list[dict[str, Any]]


@scene
async def collected(stack: Stack) -> Collected:
    """One subagent is read while it runs; then both are gathered and read again."""
    gate = Gate()
    steps: list[list[Call]] = [
        [async_task(gate.then("Deep words."), description="look deep"), async_task(BROKEN, "scribe", "write it")],
        [result_of("$0")],
        [("wait_for", {"path": f"{gate.path}-asked"})],
        [gather("$0", "$1", timeout_s=60)],
        [result_of("$0")],
        [result_of("nonsense"), result_of("0" * 26)],
    ]
    talk = await Talk.begin(stack, chain(*steps))
    await stack.seen(talk.id, "tool_called", tool="wait_for")
    gate.open()
    gate.path.with_name(f"{gate.path.name}-asked").touch()
    texts = await talk.results()
    return Collected(talk, await talk.children(), texts, await stack.events(talk.id))


@pytest.mark.proves("S3-07", "S3-08", "S3-09")
async def test_launch_returns_the_handle_immediately(team: Stack) -> None:
    result = await collected(team)
    deep = next(child for child in result.children if child.agent == "helper")
    assert result.texts[0] == (
        f"task_id: {deep.id}\nagent: helper\ndescription: look deep\nstatus: launched\n\n"
        "Use async_task_result with this task_id to retrieve the result when ready."
    )


@pytest.mark.proves("S0-36")
async def test_a_dispatch_answers_with_name_and_session(team: Stack) -> None:
    talk = await Talk.done(team, chain([async_delegate("finder", say("Found."), agent="helper")]))
    [child] = await talk.children()
    assert await talk.results() == [f"Task dispatched to 'finder' (session: {child.id})"]
    assert child.title == "finder (@helper subagent)"


@pytest.mark.proves("S3-11")
async def test_running_subagent_is_reported_as_running(team: Stack) -> None:
    result = await collected(team)
    deep = next(child for child in result.children if child.agent == "helper")
    assert result.texts[2] == (
        f"status: running\ntask_id: {deep.id}\n\nThe task is still in progress. Try again shortly."
    )


@pytest.mark.proves("S3-12", "S3-14")
async def test_ended_subagents_give_their_result_or_their_error(team: Stack) -> None:
    result = await collected(team)
    deep, failed = sorted(result.children, key=lambda child: child.agent)
    complete = f"status: complete\ntask_id: {deep.id}\n\n<task_result>\nDeep words.\n</task_result>"
    error = f"status: error\ntask_id: {failed.id}\nerror_type: ApiError\n\n{failed.error}"
    assert result.texts[4] == f"{complete}\n\n{error}"
    assert result.texts[5] == complete  # reading again returns the same result


KINDS = {
    # in its second step: if the first step failed like this, the launch would fail
    "ProviderAuthError": f"{chain([('list_files', {})])} [[fault:auth at=2 times=always]]",
    "ApiError": BROKEN,
    "MessageOutputLengthError": "[[script:say]] [[fault:toolong window=1 times=always]]",
    "MessageAbortedError": MUTE,
    "UnknownError": chain([("ask_user", {"question": "Which?"})]),  # a subagent cannot ask anybody
}


@scene
async def failed_in_every_way(stack: Stack) -> tuple[Talk, str]:
    """Five subagents fail in different ways; one call collects all outcomes."""
    launches = [async_task(prompt, description=kind) for kind, prompt in KINDS.items()]
    talk = await Talk.begin(stack, chain(launches, [gather(*(f"${n}" for n in range(len(KINDS))))]))
    await talk.child(len(KINDS) - 1)
    [aborted] = [child for child in await talk.children() if child.title.startswith("MessageAbortedError")]
    await stack.seen(aborted.id, "step_started")
    assert (await stack.http.post(f"/tasks/{aborted.id}/interrupt")).status_code == 202
    return talk, (await talk.results())[-1]


@pytest.mark.proves("S3-18")
async def test_each_failure_has_one_of_five_names_in_the_result(team: Stack) -> None:
    talk, collected = await failed_in_every_way(team)
    rows = {row.title.partition(" (@")[0]: row for row in await talk.children()}
    assert rows.keys() == KINDS.keys()
    for kind, row in rows.items():
        assert f"status: error\ntask_id: {row.id}\nerror_type: {kind}\n" in collected


@pytest.mark.proves("S3-13")
async def test_unknown_id_is_an_error_that_says_so(team: Stack) -> None:
    result = await collected(team)
    for task_id, text in (("nonsense", result.texts[6]), ("0" * 26, result.texts[7])):
        assert text == (
            f"status: error\ntask_id: {task_id}\n\n"
            "Session not found. The task_id may be invalid or the session was deleted."
        )


@pytest.mark.proves("S3-03", "S3-10")
async def test_child_is_visible_and_named_after_its_description(team: Stack) -> None:
    result = await collected(team)
    deep, failed = sorted(result.children, key=lambda child: child.agent)
    assert (deep.title, failed.title) == ("look deep (@helper subagent)", "write it (@scribe subagent)")
    root = await result.talk.session(result.talk.id)
    assert deep.workspace_id == root.workspace_id and deep.spawned_by == root.id
    started = {event["child_session_id"]: event["description"] for event in of_type(result.events, "subagent_started")}
    assert started == {deep.id: "look deep", failed.id: "write it"}
    shown = await result.talk.shown()
    [top] = shown["sessions"]
    assert {branch["session_id"] for branch in top["children"]} == {deep.id, failed.id}


@pytest.mark.proves("S0-B44")
async def test_outcome_that_was_read_is_not_in_the_mailbox(team: Stack) -> None:
    result = await collected(team)
    assert {message.delivered_to for message in await result.talk.mail()} == {result.talk.id}
    assert (await result.talk.try_fire()).status_code == 422


@scene
async def refused(stack: Stack) -> tuple[Talk, list[str]]:
    calls: list[Call] = [
        async_task("Do it.", "nobody"),
        async_task("Do it.", "boss"),
        async_delegate("nobody", "Do it."),
        task("Do it.", "boss"),
        ("delegate", {"agent": "nobody", "prompt": "Do it."}),
        async_task("Do it.", "lost"),
        ("async_task", {"agent": "helper", "prompt": "Do it."}),
        ("async_task", {"prompt": "Do it.", "description": "no agent"}),
        ("async_task", {"agent": "helper", "description": "no prompt"}),
        ("async_task", {"agent": "helper", "prompt": "p", "description": "d", "spawned_by": "me", "depth": 0}),
    ]
    talk = await Talk.done(stack, chain(calls))
    return talk, await talk.results()


@pytest.mark.proves("S3-02", "S0-B07")
async def test_an_unknown_or_primary_agent_is_answered_with_the_names(team: Stack) -> None:
    talk, texts = await refused(team)
    for name, text in zip(("nobody", "boss", "nobody", "boss", "nobody"), texts[:5], strict=True):
        assert text == f"There is no subagent '{name}' for you. {AVAILABLE}"
    assert await talk.children() == [] and await talk.mail() == []


@pytest.mark.proves("S3-21", "S0-B42")
async def test_a_launch_that_cannot_work_has_no_id(team: Stack) -> None:
    talk, texts = await refused(team)
    assert texts[5] == (
        "The launch failed: The model 'no-such-model' does not exist or is not available to this key. "
        "Nothing was started."
    )
    assert await talk.children() == []


@pytest.mark.proves("S3-01", "S0-B48")
async def test_all_three_arguments_are_required_and_no_others_allowed(team: Stack) -> None:
    _, texts = await refused(team)
    for text, field in zip(texts[6:], ("description", "agent", "prompt", "spawned_by"), strict=True):
        assert text.startswith("The arguments do not fit; nothing was started.") and f"- {field}: " in text


@scene
async def aborted(stack: Stack) -> list[str]:
    steps: list[list[Call]] = [
        [async_task("[[script:say words=9]] [[fault:hang]]")],
        [("cancel_subagent", {"task_id": "$0", "reason": "no longer needed"})],
        [gather("$0", timeout_s=60)],
        [("cancel_subagent", {"task_id": "$0"}), ("cancel_subagent", {"task_id": "none"})],
        [("list_subagents", {})],
    ]
    return await (await Talk.done(stack, chain(*steps))).results()


@pytest.mark.proves("S0-B43")
async def test_a_cancelled_child_is_an_error_with_its_id(team: Stack) -> None:
    texts = await aborted(team)
    child = texts[0].split("\n")[0].removeprefix("task_id: ")
    assert texts[1] == f"The subagent (session: {child}) is stopping."
    assert texts[2] == (
        f"status: error\ntask_id: {child}\nerror_type: MessageAbortedError\n\nended without an answer (caller_cancel)"
    )
    assert texts[3] == f"The subagent (session: {child}) has ended already (cancelled)."
    assert "Session not found" in texts[4]
    assert texts[5] == f"- helper (agent helper, session: {child}): cancelled"


@dataclass
class Stopped:
    child: SessionRow
    texts: list[str]
    events: list[dict[str, Any]]


@scene
async def aborted_in_mid_sentence(stack: Stack) -> Stopped:
    """The parent cancels its child after the child has said something; then it gathers and reads the result."""
    gate = Gate()
    steps: list[list[Call]] = [
        [async_task(HANG)],
        [gate.call],
        [("cancel_subagent", {"task_id": "$0"})],
        [gather("$0", timeout_s=60)],
        [result_of("$0")],
    ]
    talk = await Talk.begin(stack, chain(*steps))
    child = await talk.child()
    await talk.speaking(child.id)
    gate.open()
    texts = await talk.results()
    return Stopped(await talk.session(child.id), texts[3:], await stack.events(talk.id))


@scene
async def aborted_while_waited_for(stack: Stack) -> Stopped:
    """A person cancels the child that its parent waits for."""
    talk = await Talk.begin(stack, chain([task(HANG)]))
    child = await talk.child()
    await talk.speaking(child.id)
    await stack.cancel(child.id)
    texts = await talk.results()
    return Stopped(await talk.session(child.id), texts, await stack.events(talk.id))


@pytest.mark.proves("S3-15", "S3-16")
async def test_cancelled_child_is_an_error_with_its_output_so_far(team: Stack) -> None:
    """Gathered, read or waited for: a child that is not running any more has not necessarily succeeded."""
    fetched, waited_for = await aborted_in_mid_sentence(team), await aborted_while_waited_for(team)
    for stopped in (fetched, waited_for):
        child = stopped.child
        assert child.status is Status.CANCELLED and child.output and child.output.startswith("word1")
        error = f"status: error\ntask_id: {child.id}\nerror_type: MessageAbortedError\n\n"
        said = f"ended without an answer (caller_cancel)\n\nUntil then it said:\n{child.output}"
        assert set(stopped.texts) == {error + said}
    assert len(fetched.texts) == 2
    assert fetched.child.cancel_requested is not None  # in the row first, so that no lost signal loses it
    states = {
        event["tool"]: event["state"] for event in of_type([*fetched.events, *waited_for.events], "tool_returned")
    }
    assert states["async_task_result"] == states["task"] == "failed"


@scene
async def impatient(stack: Stack) -> tuple[Talk, list[str], SessionRow]:
    gate = Gate()
    steps: list[list[Call]] = [
        [async_task(gate.then("Late.")), async_task(say("Early."))],
        [gather("$0", "$1", wait_for="any", timeout_s=30)],
        [gather("$0", timeout_s=0.5)],
    ]
    talk = await Talk.done(stack, chain(*steps))
    meanwhile = next(row for row in await talk.children() if row.status is Status.WORKING)
    gate.open()
    await talk.rest()
    return talk, await talk.results(), meanwhile


@pytest.mark.proves("S3-23")
async def test_gather_waits_for_any_and_its_timeout_cancels_nothing(team: Stack) -> None:
    talk, texts, slow_one = await impatient(team)
    early = next(row for row in await talk.children() if row.id != slow_one.id)
    running = f"Still running (nothing was cancelled): {slow_one.id}"
    assert texts[2] == (f"status: complete\ntask_id: {early.id}\n\n<task_result>\nEarly.\n</task_result>\n\n{running}")
    assert texts[3] == running
    assert (await talk.session(slow_one.id)).output == "Late."
    [message] = await talk.mail(pending_only=True)
    assert message.source_session_id == slow_one.id


@scene
async def offered(stack: Stack) -> dict[str, dict[str, Any]]:
    """Return the tools that each session was offered, by its agent."""
    tag = f"offered-{time.time_ns()}"
    prompt = f"{say('Yes.')} {tag}"
    inner = chain([task(prompt)], text="On.")
    for agent, calls in (
        ("lead", [async_task(prompt), async_task(prompt, "scribe")]),
        ("first", [task(f"{inner} {tag}", "second")]),
    ):
        await Talk.done(stack, f"{chain(calls)} {tag}-{agent}", agent)
    requests = await asked(stack, tag)
    found: dict[str, dict[str, Any]] = {}
    for request in requests:
        name = request["system"][0]["text"].split('"')[1]
        found.setdefault(name, {tool["name"]: tool["description"] for tool in request.get("tools", [])})
    return found


@pytest.mark.proves("S3-04", "S3-05", "S3-06")
async def test_children_lack_plan_questions_and_delegation_unless_permitted(team: Stack) -> None:
    tools = await offered(team)
    assert "update_plan" in tools["lead"] and not {"update_plan", "ask_user"} & set(tools["helper"])
    assert not DELEGATION_TOOLS & (set(tools["helper"]) | set(tools["scribe"]))
    assert set(tools["second"]) >= DELEGATION_TOOLS  # a rule of its own definition permits it


@pytest.mark.proves("S0-34", "S3-35")
async def test_the_tools_exist_with_subagents_only_and_list_the_permitted_ones(team: Stack) -> None:
    tools = await offered(team)
    roster = (
        "\n\nAvailable subagents:\n- helper: The helper of the tests.\n- scribe: Writes things down.\n"
        "- lost: The lost of the tests."
    )
    for name in ("delegate", "task", "async_delegate", "async_task"):
        assert tools["lead"][name].endswith(roster)
    record = await team.run(say("Alone."))
    [request] = await team.asked(record["task_id"])
    names = {tool["name"] for tool in request.get("body", request)["tools"]}
    assert not names & DELEGATION_TOOLS


@scene
async def gated(stack: Stack) -> tuple[list[str], list[str]]:
    strict = await Talk.done(stack, chain([async_task(say(), "scribe"), async_task(say())]), "strict")
    gate = Gate()
    many = [async_task(gate.then()) for _ in range(stack.settings.max_children + 1)]
    crowd = await Talk.done(stack, chain(many))
    gate.open()
    await crowd.rest()
    return await strict.results(), await crowd.results()


@pytest.mark.proves("S3-33")
async def test_delegation_is_permitted_by_the_name_of_its_target(team: Stack) -> None:
    strict, _ = await gated(team)
    refused = "There is no subagent 'scribe' for you. Available: helper. Nothing was started."
    assert strict[0] == f'{refused} A rule forbids it: deny delegation "scribe".'
    assert "status: launched" in strict[1]


@pytest.mark.proves("S3-B04")
async def test_tightest_limit_on_the_path_applies(team: Stack) -> None:
    """`second` and `third` allow three levels below them, but `tight`, which starts the chain, allows two in all."""
    deepest = chain([task(say("Deep."))])
    talk = await Talk.done(team, chain([task(chain([task(deepest, "third")]), "second")]), "tight")
    rows = await talk.sessions()
    assert [row.depth for row in rows] == [0, 1, 2]
    assert "Subagents may not be nested deeper than 2." in (rows[2].output or "")


async def test_running_children_stay_within_the_quota(team: Stack) -> None:
    _, crowd = await gated(team)
    most = team.settings.max_children
    assert sum("status: launched" in text for text in crowd) == most
    assert crowd[-1] == f"As many subagents as may are running ({most}). Wait for some of them first."


@pytest.mark.proves("S3-20", "D16")
async def test_fan_out_takes_as_long_as_the_longest(team: Stack) -> None:
    seconds = [2.0, 3.0, 4.0, 4.0]
    started = time.monotonic()
    talk = await Talk.done(team, chain([async_task(slow(one)) for one in seconds], [gather("$0", "$1", "$2", "$3")]))
    took = time.monotonic() - started
    texts = await talk.results()
    assert texts[-1].count("status: complete") == 4
    rows = await talk.children()
    spans = [(row.ended_at - row.started_at).total_seconds() for row in rows if row.ended_at and row.started_at]
    longest = max(spans)
    assert took < longest + 8 and took < sum(spans)
    begins = [row.started_at for row in rows if row.started_at]
    assert (max(begins) - min(begins)).total_seconds() < 2

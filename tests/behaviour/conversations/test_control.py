"""Control of running subagents: waiting, promoting, steering, interrupting and continuing; inline subagents too."""

import asyncio
from typing import Any

import pytest

from domain.conversations.mailbox import MAX_RESULT, rest_of_result
from domain.sessions.session import Status
from store.sessions import SessionRow
from tests.behaviour.conversations.talk import (
    BROKEN,
    HANG,
    Call,
    Gate,
    Scenes,
    Talk,
    async_delegate,
    async_task,
    chain,
    gather,
    say,
    slow,
    steer,
    task,
)
from tests.support.stack import Stack, of_type

scene = Scenes(at_once=5)


def delegate(prompt: str, agent: str = "helper") -> Call:
    return "delegate", {"agent": agent, "prompt": prompt}


@scene
async def inline(stack: Stack) -> tuple[Talk, list[str], list[dict[str, Any]]]:
    calls = [
        delegate(chain([("write_file", {"path": "a.txt", "content": "from the inside"})], last="Wrote it.")),
        delegate(slow(2)),
        delegate(slow(2)),
    ]
    talk = await Talk.done(stack, chain(calls, [("read_file", {"path": "a.txt"})]))
    return talk, await talk.results(), await stack.events(talk.id)


@pytest.mark.proves("S0-05")
async def test_an_inline_delegate_is_a_part_of_its_parents_session(team: Stack) -> None:
    talk, texts, events = await inline(team)
    assert texts[0] == "Wrote it." and texts[1] == texts[2] and texts[1].startswith("word1 word2")
    assert "from the inside" in texts[3]  # it uses the same workspace
    [root] = await talk.sessions()  # an inline subagent has no row, no listing and no outcome in the mailbox
    assert await talk.mail() == [] and (await talk.shown())["threads"][0]["thread_id"] == talk.id
    assert root.usage.llm_calls == 3 + 2 + 1 + 1  # the parent's usage includes all calls
    calls = of_type(events, "tool_called")
    assert [call["tool"] for call in calls].count("delegate") == 3 and "write_file" in [call["tool"] for call in calls]
    deltas = [event["step"] for event in of_type(events, "message_delta")]
    spans = {step: (deltas.index(step), len(deltas) - deltas[::-1].index(step)) for step in deltas}
    one, other = sorted(spans.values(), key=lambda span: span[0] - span[1])[:2]  # the two longest calls
    assert one[0] < other[1] and other[0] < one[1], "they were not side by side"


@scene
async def waited(stack: Stack) -> tuple[Talk, list[str], list[SessionRow]]:
    steps: list[list[Call]] = [
        [task(say("Red."), description="think of colours"), task(BROKEN, "scribe")],
        [task("And once more.", task_id="$0")],
        [task("Hello?", task_id="none")],
    ]
    talk = await Talk.done(stack, chain(*steps))
    return talk, await talk.results(), await talk.children()


@pytest.mark.proves("S3-30", "S3-31")
async def test_blocking_task_returns_its_result_and_is_continued_by_id(team: Stack) -> None:
    talk, texts, rows = await waited(team)
    red = next(row for row in rows if row.output == "Red.")
    failed = next(row for row in rows if row.status is Status.FAILED)
    more = next(row for row in rows if row.parent_session_id == red.id)
    assert texts[0] == f"status: complete\ntask_id: {red.id}\n\n<task_result>\nRed.\n</task_result>"
    assert texts[1] == f"status: error\ntask_id: {failed.id}\nerror_type: ApiError\n\n{failed.error}"
    assert more.thread_id == red.thread_id and "My last answer is still: Red." in texts[2]
    assert "Session not found" in texts[3] and len(rows) == 3
    # the result of the tool call was the delivery
    assert {message.delivered_to for message in await talk.mail()} == {talk.id}
    assert (await talk.try_fire()).status_code == 422


@pytest.mark.proves("S3-32")
async def test_a_child_without_a_model_has_its_parents(team: Stack) -> None:
    talk = await Talk.done(team, chain([task(say())]), config={"model": "claude-haiku-4-5"})
    root, child = await talk.sessions()
    assert root.models[0] == child.models[0] == "claude-haiku-4-5"


@scene
async def cut_off(stack: Stack) -> tuple[Talk, list[SessionRow], list[dict[str, Any]]]:
    """Interrupt the parent while it waits for one child and another one runs in the background."""
    gate = Gate()
    talk = await Talk.begin(
        stack, chain([task(HANG, description="waited for"), async_task(gate.then("Free."))], text="Go.")
    )
    await talk.child(1)
    blocking = next(row for row in await talk.children() if row.blocking)
    await talk.speaking(blocking.id)
    await stack.http.post(f"/tasks/{talk.id}/interrupt")
    await talk.ended(talk.id)
    await talk.ended(blocking.id)
    free = next(row for row in await talk.children() if not row.blocking)
    assert (await talk.session(free.id)).status is Status.WORKING
    gate.open()
    await talk.rest()
    return talk, await talk.sessions(), await stack.events(talk.id)


@pytest.mark.proves("S3-34")
async def test_a_blocking_child_ends_with_its_parent_and_no_other_does(team: Stack) -> None:
    talk, rows, _ = await cut_off(team)
    waited_for = next(row for row in rows if row.blocking)
    free = next(row for row in rows if row.spawned_by and not row.blocking)
    assert (waited_for.status, waited_for.reason) == (Status.CANCELLED, "interrupted")
    assert (free.status, free.output) == (Status.COMPLETED, "Free.")


@pytest.mark.proves("S0-B12")
async def test_every_open_call_ends_before_the_last_event_and_the_next_turn_is_valid(team: Stack) -> None:
    talk, _, events = await cut_off(team)
    called, returned = of_type(events, "tool_called"), of_type(events, "tool_returned")
    assert sorted(event["tool"] for event in called) == sorted(event["tool"] for event in returned)
    assert next(event for event in returned if event["tool"] == "task")["state"] == "cancelled"
    assert events[-1]["type"] == "task_cancelled"
    # the offline model refuses requests with calls that have no result
    after = await talk.ended(await talk.say(say("Valid.")))
    assert after.status is Status.COMPLETED and after.parent_session_id == talk.id


@scene
async def promoted(stack: Stack) -> tuple[Talk, str, SessionRow, list[int]]:
    gate = Gate()
    talk = await Talk.begin(stack, chain([task(gate.then("In the background."))]))
    child = await talk.child()
    await stack.seen(child.id, "tool_called")
    codes = [(await stack.http.post(f"/tasks/{child.id}/promote")).status_code]
    text = (await talk.results())[0]
    codes.append((await stack.http.post(f"/tasks/{child.id}/promote")).status_code)
    gate.open()
    await talk.posted(1)
    codes.append((await stack.http.post(f"/tasks/{child.id}/promote")).status_code)
    return talk, text, await talk.fire(), codes


@pytest.mark.proves("S3-B02")
async def test_blocking_child_can_be_promoted(team: Stack) -> None:
    talk, text, fired, codes = await promoted(team)
    [child] = await talk.children()
    assert text == (
        f"status: running\ntask_id: {child.id}\n\n"
        "The task continues in the background. Its outcome will come later; do not start it again."
    )
    assert codes == [202, 200, 409]
    assert "In the background." in (await talk.prompts(fired.id))[0]


@scene
async def steered(stack: Stack) -> tuple[Talk, list[str], SessionRow]:
    gate = Gate()
    steps: list[list[Call]] = [
        [async_task(chain([gate.call], last="First part."))],
        [("steer_subagent", {"task_id": "$0", "message": "Also the second part."})],
        [
            ("steer_subagent", {"task_id": "$0", "message": " "}),
            ("steer_subagent", {"task_id": "none", "message": "x"}),
        ],
        [("wait_for", {"path": f"{gate.path}-sent"})],
        [gather("$0", timeout_s=60)],
        [steer("$0", "Too late.")],
    ]
    talk = await Talk.begin(stack, chain(*steps))
    await stack.seen(talk.id, "tool_called", tool="wait_for")
    child = await talk.child()
    await talk.signalled(child.id, "message", 1)
    gate.open()
    gate.path.with_name(f"{gate.path.name}-sent").touch()
    return talk, await talk.results(), await talk.ended(child.id)


@pytest.mark.proves("S3-B03")
async def test_further_message_extends_a_running_child_which_reports_once(team: Stack) -> None:
    talk, texts, child = await steered(team)
    assert texts[1] == f"Sent to the subagent (session: {child.id}); it reads it before its next step."
    prompts = await talk.prompts(child.id)
    assert prompts[1:] == ["Also the second part."]
    assert len(await talk.mail()) == len(await talk.children()) == 1


@pytest.mark.proves("S0-B09", "S0-B50")
async def test_steering_message_is_read_once_and_never_left_unread(team: Stack) -> None:
    gate = Gate()
    talk = await Talk.begin(team, gate.then("Ready."))
    await team.seen(talk.id, "tool_called")
    body = {"message": "Mind the gap.", "message_id": "mine"}
    answers = [await team.http.post(f"/tasks/{talk.id}/steer", json=body) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [202, 202, 202]
    gate.open()
    await talk.rest()
    prompts = [prompt for row in await talk.sessions() for prompt in await talk.prompts(row.id)]
    assert prompts.count("Mind the gap.") == 1


@pytest.mark.proves("S0-B08")
async def test_interrupting_a_conversation_reaches_every_live_session(team: Stack) -> None:
    talk = await Talk.begin(team, chain([async_task(HANG), async_task(HANG)], [task(HANG)], text="Go."))
    await talk.child(2)
    for row in await talk.children():
        await talk.speaking(row.id)
    answer = await team.http.post(f"/conversations/{talk.id}/interrupt")
    assert answer.status_code == 202 and answer.json()["interrupted"] == 4
    await talk.rest()
    assert {row.status for row in await talk.sessions()} == {Status.CANCELLED}
    assert [row.partial for row in await talk.children()] == [True] * 3
    assert (await team.http.post(f"/conversations/{talk.id}/interrupt")).json()["interrupted"] == 0
    assert len(await talk.mail(pending_only=True)) == 2  # the outcome of the blocking child was for its parent only


@scene
async def waiting_for_a_person(stack: Stack) -> tuple[Talk, SessionRow, list[str], str]:
    """A background subagent waits for a person; it is sent another task meanwhile, and then the person answers."""
    asks = chain([("ask_user", {"question": "Which port?"})])
    talk = await Talk.done(stack, chain([async_delegate("inquirer", asks)], last="Off."), "patron")
    child = await talk.child()
    await stack.seen(child.id, "input_required")
    assert await talk.mail() == [] and (await talk.try_fire()).status_code == 422
    texts = await talk.results(await talk.say(chain([async_delegate("inquirer", "Do something else.")])))
    waiting = await talk.session(child.id)
    open_ones = await stack.http.get("/input-requests", params={"conversation_id": talk.id})
    [request] = open_ones.json()["items"]
    assert request["session_id"] == child.id and await talk.mail() == []
    answered = {"response_to": request["id"], "input": "8080"}
    assert (await stack.http.post(f"/tasks/{child.id}/input", json=answered)).status_code == 202
    await talk.posted(1)
    return talk, waiting, texts, request["kind"]


@pytest.mark.proves("D8")
async def test_subagent_that_waits_for_a_person_is_not_posted_as_finished(team: Stack) -> None:
    talk, waiting, _, asked_for = await waiting_for_a_person(team)
    assert waiting.status is Status.INPUT_REQUIRED and asked_for == "clarification"
    [message] = await talk.mail()
    child = await talk.session(waiting.id)
    assert (message.source_session_id, message.source_type) == (child.id, "subagent_result")
    assert child.status is Status.COMPLETED and child.output is not None and "8080" in child.output


@pytest.mark.proves("S0-B41")
async def test_waiting_subagent_keeps_its_place_and_its_id(team: Stack) -> None:
    """A thread has one unfinished attempt at a time: a second dispatch conflicts, even while the first one waits for a
    person. The answer continues the same attempt."""
    talk, waiting, texts, _ = await waiting_for_a_person(team)
    assert texts == [
        f"'inquirer' is still running (session: {waiting.id}). "
        "Wait for its outcome, or send it a message with steer_subagent."
    ]
    [child] = await talk.children()
    assert child.id == waiting.id and child.status is Status.COMPLETED


@pytest.mark.proves("S0-B49")
async def test_a_large_result_is_previewed_with_a_link(team: Stack) -> None:
    talk = await Talk.done(team, chain([async_task("[[script:say words=1500]]")], last="Off."))
    await talk.posted(1)
    child = await talk.child()
    fired = await talk.fire()
    [prompt] = await talk.prompts(fired.id)
    cut = len((await talk.session(child.id)).output or "") - 8_000
    assert (
        prompt.endswith(f"\n[… {cut} more characters: {rest_of_result(child.id, MAX_RESULT)}]") and len(prompt) < 8_300
    )
    whole = (await team.http.get(f"/tasks/{child.id}/result")).json()["output"]
    assert whole.endswith("word1500")
    asked = await talk.say(chain([("async_task_result", {"task_id": child.id, "offset": MAX_RESULT})]))
    assert (await talk.results(asked)) == [whole[MAX_RESULT:].strip()]  # the agent can read the rest
    history = await team.client.get_workflow_handle(f"conversation/{talk.id}").fetch_history()
    assert len(history.to_json()) < 200_000


@pytest.mark.proves("S3-B09")
async def test_running_children_survive_a_checkpoint(team: Stack) -> None:
    gate = Gate()
    talk = await Talk.begin(team, chain([async_task(gate.then())], last="Off.") + " [[fault:413 at=2]]")
    await team.seen(talk.id, "context_compacted")
    child = await talk.child()
    await talk.ended(talk.id)
    gate.open()
    notes = [node["body"]["text"] for node in await team.nodes(talk.id) if node["kind"] == "summary"]
    assert notes and all(f"- helper (session: {child.id})" in note for note in notes)
    await talk.rest()


@pytest.mark.proves("S3-B06")
@pytest.mark.exactly_once
async def test_a_tree_is_cancelled_while_it_grows(team: Stack) -> None:
    """The cancel, or the termination of the whole conversation, arrives during a call, a spawn or a run of children: in
    each case nothing is left running and nothing is woken."""
    scripts = [chain([async_task(HANG) for _ in range(6)], [task(HANG)], text="Go.") for _ in range(4)]
    talks = [await Talk.begin(team, script, "waker") for script in scripts]
    for place, talk in enumerate(talks):
        await team.seen(talk.id, "tool_called", tool="async_task")
        await asyncio.sleep(0.1 * place)
        if place == 3:
            assert (await team.http.post(f"/conversations/{talk.id}/terminate")).is_success
        else:
            assert (await team.cancel(talk.id, scope="tree")).status_code == 202
    for talk in talks:
        await talk.rest()
        await asyncio.sleep(0.2)
        rows = await talk.sessions()
        assert {row.status for row in rows} == {Status.CANCELLED}
        assert [row.id for row in rows if row.thread_id == talk.id] == [talk.id]  # no outcome woke the root

"""The mailbox: when messages are posted, and their fields. They refer to their source instead of copying it."""

from dataclasses import dataclass

import pytest
from errand.models import MailboxMessage

from domain.sessions.session import Status
from store.sessions import SessionRow
from tests.behaviour.conversations.talk import (
    BROKEN,
    HANG,
    MUTE,
    Gate,
    Scenes,
    Talk,
    async_delegate,
    async_task,
    chain,
    say,
)
from tests.support.stack import Stack

scene = Scenes()
FIELDS = [
    *("message_id", "conversation_id", "source_session_id", "source_type", "subagent_name", "created_at"),
    "delivered_to",
]


@dataclass
class Posted:
    talk: Talk
    mail: list[MailboxMessage]
    shown: list[dict[str, object]]
    fired: SessionRow
    prompt: str
    later: list[MailboxMessage]


@scene
async def posted(stack: Stack) -> Posted:
    """One subagent answers, one fails, one says nothing; one fire delivers all three outcomes."""
    calls = [async_delegate("one", say("Found it."), agent="helper")]
    talk = await Talk.done(stack, chain(calls, last="Off."))
    await talk.posted(1)
    failing = chain([async_delegate("two", BROKEN, agent="helper")], last="Off.")
    await talk.ended(await talk.say(failing))
    await talk.posted(2)
    silent = chain([async_delegate("three", say(" "), agent="helper")], last="Off.")
    await talk.ended(await talk.say(silent))
    mail = await talk.posted(3)
    shown = (await talk.shown("/mailbox"))["items"]
    # change the output in the stored session after the message was posted
    await talk.reword(mail[0].source_session_id, "Found it.", "Found it twice.")
    fired = await talk.fire()
    [prompt] = await talk.prompts(fired.id)
    return Posted(talk, mail, shown, fired, prompt, await talk.mail())


@pytest.mark.proves("S0-08", "S0-24", "S0-25")
async def test_an_end_posts_a_result_or_a_failure(team: Stack) -> None:
    result = await posted(team)
    assert [(message.subagent_name, message.source_type) for message in result.mail] == [
        *(("one", "subagent_result"), ("two", "subagent_failed"), ("three", "subagent_result"))
    ]
    assert all(message.conversation_id == result.talk.id for message in result.mail)


@pytest.mark.proves("S0-21", "S0-22", "S0-40")
async def test_a_message_has_exactly_these_fields(team: Stack) -> None:
    result = await posted(team)
    assert [list(message) for message in result.shown] == [FIELDS] * 3
    assert [message["delivered_to"] for message in result.shown] == [None] * 3
    assert {message["source_type"] for message in result.shown} == {"subagent_result", "subagent_failed"}


@pytest.mark.proves("S0-23", "S0-33", "D7")
async def test_several_outcomes_are_rendered_in_order_from_their_sources(team: Stack) -> None:
    result = await posted(team)
    one, two, three = [message.source_session_id for message in result.mail]
    error = (await result.talk.session(two)).error
    assert error
    assert result.prompt == (
        f"Async subagent results:\n\n## one [completed] (session: {one})\nFound it twice.\n\n"
        f"## two [failed] (session: {two})\nError: {error}\n\n"
        f"## three [completed] (session: {three})\n(no output)"
    )


@pytest.mark.proves("S0-26", "S0-30")
async def test_delivered_outcome_is_not_delivered_again(team: Stack) -> None:
    result = await posted(team)
    assert [message.delivered_to for message in result.later] == [result.fired.id] * 3
    before = len(await result.talk.sessions())
    again = await result.talk.try_fire("Anything else?")
    assert (again.status_code, again.json()["type"]) == (422, "urn:errand:problem:mailbox-empty")
    assert len(await result.talk.sessions()) == before and await result.talk.mail() == result.later
    waiting = await team.pool.fetchval(
        "SELECT count(*) FROM inbox WHERE conversation_id = $1 AND taken_by IS NULL", result.talk.id
    )
    assert waiting == 0


async def stopped_child(stack: Stack, prompt: str) -> tuple[Talk, SessionRow, str]:
    talk = await Talk.done(stack, chain([async_task(prompt)], last="Off."))
    child = await talk.child()
    await stack.seen(child.id, "message_delta" if prompt == HANG else "step_started")
    answer = await stack.http.post(f"/tasks/{child.id}/interrupt")
    assert answer.status_code == 202, answer.text
    await talk.posted(1)
    fired = await talk.fire()
    return talk, await talk.session(child.id), (await talk.prompts(fired.id))[0]


@scene
async def interrupted_after_output(stack: Stack) -> tuple[Talk, SessionRow, str]:
    return await stopped_child(stack, HANG)


@scene
async def interrupted_mute(stack: Stack) -> tuple[Talk, SessionRow, str]:
    return await stopped_child(stack, MUTE)


@pytest.mark.proves("S0-42", "S0-32")
async def test_subagent_interrupted_after_output_has_a_result_that_says_so(team: Stack) -> None:
    talk, child, prompt = await interrupted_after_output(team)
    [message] = await talk.mail()
    assert (child.status, child.reason, child.partial) == (Status.CANCELLED, "interrupted", True)
    assert message.source_type == "subagent_result"
    head, note, last_line = prompt.split("\n")
    assert head == f"Async subagent 'helper' (session: {child.id}) completed:"
    assert note == "[Interrupted (interrupted); this is what it had so far.]" and last_line == child.output


@pytest.mark.proves("S0-B06", "S0-B08", "F-07")
async def test_subagent_interrupted_without_output_has_failed(team: Stack) -> None:
    talk, child, prompt = await interrupted_mute(team)
    [message] = await talk.mail()
    assert message.source_type == "subagent_failed" and child.output is None
    assert prompt == (f"Async subagent 'helper' (session: {child.id}) failed:\nended without an answer (interrupted)")


@pytest.mark.proves("S0-23")
async def test_fire_shows_all_texts_of_the_subagent(team: Stack) -> None:
    """The source messages are read at the time of the fire; the mailbox has no copy of them. So the fire shows later
    changes of the session, and texts before the last reply, but no tool calls and results."""
    steps = chain([("list_files", {})], text="I look around first.", last="There is nothing.")
    talk = await Talk.done(team, chain([async_task(steps)], last="Off."))
    [message] = await talk.posted(1)
    child = await talk.child()
    rows = "SELECT to_jsonb(m)::text FROM mailbox m WHERE message_id = $1"
    rows += " UNION ALL SELECT to_jsonb(i)::text FROM inbox i WHERE id = $1 OR source = $2"
    kept = [row[0] for row in await team.pool.fetch(rows, message.message_id, child.id)]
    assert kept and not [row for row in kept if "look" in row or "nothing" in row]
    await talk.reword(child.id, "I look", "I looked")
    await talk.reword(child.id, "There is", "There was")
    fired = await talk.fire()
    shown = (await team.http.get(f"/sessions/{child.id}")).json()["display_messages"]
    said = [message["text"] for message in shown if message["type"] == "assistant"]
    assert said == ["I looked around first.", "There was nothing."]
    text = "\n\n".join(said)
    assert await talk.prompts(fired.id) == [f"Async subagent 'helper' (session: {child.id}) completed:\n{text}"]


@scene
async def orphaned(stack: Stack) -> tuple[Talk, SessionRow, SessionRow, SessionRow]:
    """Interrupt the main agent after it has dispatched; its subagent continues."""
    gate = Gate()
    talk = await Talk.begin(stack, chain([async_task(gate.then())], [("wait_for", {"path": str(gate.path)})]))
    child = await talk.child()
    await stack.seen(child.id, "tool_called")
    answer = await stack.http.post(f"/tasks/{talk.id}/interrupt")
    assert answer.status_code == 202
    parent = await talk.ended(talk.id)
    meanwhile = await talk.session(child.id)
    gate.open()
    await talk.posted(1)
    return talk, parent, meanwhile, await talk.session(child.id)


@scene
async def orphaned_by_a_failure(stack: Stack) -> tuple[Talk, SessionRow, SessionRow]:
    """The main agent dispatches a subagent, and its next model call fails permanently."""
    gate = Gate()
    failing = f"{chain([async_task(gate.then('Found it.'))])} [[fault:400 at=2]]"
    talk = await Talk.done(stack, failing)
    child = await talk.child()
    await stack.seen(child.id, "tool_called")
    meanwhile = await talk.session(child.id)
    gate.open()
    await talk.posted(1)
    return talk, meanwhile, await talk.session(child.id)


@pytest.mark.proves("S0-41")
async def test_subagents_of_a_failed_session_continue_and_their_results_arrive(team: Stack) -> None:
    talk, meanwhile, child = await orphaned_by_a_failure(team)
    parent = await talk.session(talk.id)
    assert (parent.status, parent.reason) == (Status.FAILED, "error")
    assert (meanwhile.status, child.status) == (Status.WORKING, Status.COMPLETED)
    [message] = await talk.mail()
    assert (message.source_session_id, message.source_type) == (child.id, "subagent_result")
    fired = await talk.fire()
    assert fired.status is Status.COMPLETED and "Found it." in (await talk.prompts(fired.id))[0]


@pytest.mark.proves("S0-43", "S3-22")
async def test_the_end_of_the_parent_stops_no_background_child(team: Stack) -> None:
    talk, parent, meanwhile, child = await orphaned(team)
    assert (parent.status, meanwhile.status, child.status) == (Status.CANCELLED, Status.WORKING, Status.COMPLETED)
    [message] = await talk.mail()
    assert (message.source_session_id, message.delivered_to) == (child.id, None)
    # it called tools but said nothing; the next turn continues from it
    assert parent.committed and parent.output is None
    fired = await talk.fire()
    assert fired.status is Status.COMPLETED and fired.session_type == "agent"
    assert fired.parent_session_id == talk.id

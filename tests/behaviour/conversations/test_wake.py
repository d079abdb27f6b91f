"""Wake: an outcome reaches its spawner, in every state and at any depth, once; no session ends too early."""

import asyncio
from collections import Counter

import pytest

from domain.sessions.session import Status
from store.sessions import SessionRow
from tests.behaviour.conversations.talk import (
    Call,
    Gate,
    Scenes,
    Talk,
    agent,
    async_delegate,
    async_task,
    chain,
    gather,
    say,
    slow,
)
from tests.behaviour.graphs.duet import call, declared_tool, define, prompt
from tests.support.stack import Stack, eventually

scene = Scenes(at_once=5)
EXPLICIT = {"parent_communication": "explicit"}


async def all_delivered(talk: Talk) -> list[SessionRow]:
    """Wait until all outcomes are delivered; check that each was delivered once, to the thread that spawned it."""

    async def look() -> bool:
        children = await talk.children()
        mail = await talk.mail()
        ended = all(row.status.terminal for row in await talk.sessions())
        return bool(children) and ended and len(mail) == len(children) and all(one.delivered_to for one in mail)

    await eventually(look, what=f"all outcomes of {talk.id} are delivered")
    rows = {row.id: row for row in await talk.sessions()}
    received = Counter(await talk.delivered_sources())
    for message in await talk.mail():
        source = rows[message.source_session_id]
        assert received[source.id] == 1, received
        assert rows[message.delivered_to or ""].thread_id == rows[source.spawned_by or ""].thread_id
    return list(rows.values())


@scene
async def inside_a_model_call(stack: Stack) -> list[SessionRow]:
    spawn: list[list[Call]] = [[async_task(say(f"Part {n}.")) for n in range(3)]]
    talk = await Talk.begin(stack, chain(*spawn, last=" ".join(["Speaking."] * 20), delay=0.1), "waker")
    return await all_delivered(talk)


@scene
async def inside_a_tool(stack: Stack) -> list[SessionRow]:
    gate = Gate()
    talk = await Talk.begin(stack, chain([async_task(say(f"Part {n}.")) for n in range(3)], [gate.call]), "waker")
    await talk.signalled(talk.id, "message", 3)
    gate.open()
    return await all_delivered(talk)


@scene
async def idle(stack: Stack) -> list[SessionRow]:
    gate = Gate()
    calls = [async_task(gate.then(f"Part {n}.")) for n in range(3)]
    talk = await Talk.done(stack, chain(calls, last="Off."), "waker")
    gate.open()
    return await all_delivered(talk)


@scene
async def at_the_very_end(stack: Stack) -> list[SessionRow]:
    """Children end at about the same time as their parent, each a little later than the one before."""
    calls = [async_task(slow(0.2 + 0.12 * n, pieces=4)) for n in range(8)]
    talk = await Talk.begin(stack, chain(calls, last="Off."), "waker")
    return await all_delivered(talk)


@pytest.mark.proves("F-01", "F-02")
@pytest.mark.parametrize("moment", [inside_a_model_call, inside_a_tool, idle, at_the_very_end])
async def test_no_wake_up_is_lost(team: Stack, moment: object) -> None:
    rows = await moment(team)  # type: ignore[operator]
    root = [row for row in rows if row.spawned_by is None]
    assert all(row.status is Status.COMPLETED for row in rows)
    if moment is inside_a_tool:
        assert len(root) == 1  # the outcome entered at the next step, not in a separate session
    if moment is idle:
        assert len(root) > 1


@pytest.mark.proves("S0-B45")
async def test_a_late_outcome_is_a_new_session_and_changes_no_ended_one(team: Stack) -> None:
    rows = await idle(team)
    root = [row for row in rows if row.spawned_by is None]
    assert root[0].output == "Off." and [row.trigger for row in root[1:]] == ["async_subagent_result"] * (len(root) - 1)
    assert root[1].parent_session_id == root[0].id
    kinds = [event["type"] for event in await team.events(root[1].id)]
    assert kinds[:3] == ["task_submitted", "mailbox_updated", "task_started"] and kinds[-1] == "task_completed"


@scene
async def awaited(stack: Stack) -> tuple[dict[str, object], Talk]:
    """A task with wake children does not end before they do."""
    gate = Gate()
    task_id = await stack.submit(chain([async_task(gate.then("The part."))], last="Waiting for it."), "waker")
    talk = Talk(stack, task_id)
    await stack.seen(task_id, "message", text="Waiting for it.")
    await asyncio.sleep(0.5)
    meanwhile = await stack.record(task_id)
    gate.open()
    await stack.wait(task_id)
    return meanwhile, talk


@pytest.mark.proves("F-04", "D11")
async def test_task_with_running_children_is_not_completed(team: Stack) -> None:
    meanwhile, talk = await awaited(team)
    assert meanwhile["status"] == "working"
    [root, _] = await all_delivered(talk)
    assert root.output is not None and "The part." in root.output
    # the children end before the task waits for them
    quick = await team.run(chain([async_task(say("Quick."))], last="Off."), "waker")
    assert "Quick." in (await team.result(quick["task_id"]))["output"]


@scene
async def deep(stack: Stack) -> tuple[Talk, list[SessionRow]]:
    """first → second → third → helper, each in the background; then second is resumed and dispatches again."""
    third = chain([async_delegate("helper", say("From the bottom."))], last="Third off.")
    second = chain([async_delegate("third", third)], last="Second off.")
    talk = await Talk.done(stack, chain([async_delegate("second", second)], last="First off."), "first")

    async def settled(outcomes: int) -> bool:
        rows, mail = await talk.sessions(), await talk.mail()
        return all(row.status.terminal for row in rows) and len(mail) >= outcomes

    await eventually(lambda: settled(3), what="the chain came home")
    again = chain([async_delegate("third", chain([async_delegate("helper", say("Again."))], last="Off."))], last="Off.")
    await talk.ended(await talk.say(chain([async_delegate("second", again)], last="Resumed.")))
    await asyncio.sleep(1)
    await eventually(lambda: settled(6), what="the resumed chain came home")
    return talk, await talk.sessions()


@pytest.mark.proves("F-03")
async def test_recipient_is_the_spawner_of_this_session_even_after_a_resume(team: Stack) -> None:
    talk, rows = await deep(team)
    by_id = {row.id: row for row in rows}
    received = Counter(await talk.delivered_sources())
    for message in await talk.mail():
        source = by_id[message.source_session_id]
        spawner = by_id[source.spawned_by or ""]
        if spawner.thread_id == talk.id:
            assert message.delivered_to is None  # outcomes for the root are held
        else:
            assert by_id[message.delivered_to or ""].thread_id == spawner.thread_id
            assert received[source.id] == 1
    depths = {row.agent: row.depth for row in rows}
    assert depths == {"first": 0, "second": 1, "third": 2, "helper": 3}
    assert len({row.thread_id for row in rows}) == 4  # the thread was resumed; no new one was started
    assert max(row.depth for row in rows if row.spawned_by and by_id[row.spawned_by].parent_session_id) == 3


@scene
async def explicit(stack: Stack) -> tuple[Talk, Talk, Talk]:
    """The delivery is set by the reference or by the conversation; the reference takes precedence."""
    quiet = await Talk.done(stack, chain([async_task(say("Silent."))], last="Off."), "quiet")
    woken = await Talk.done(stack, chain([async_task(say("Loud."))], last="Off."), "lead", delivery="wake")
    mixed = await Talk.done(stack, chain([async_task(say("Loud."))], last="Off."), "waker", delivery="hold")
    for talk in (quiet, woken, mixed):
        await talk.rest()
    await asyncio.sleep(0.5)
    return quiet, woken, mixed


@scene
async def while_the_parent_works(stack: Stack) -> tuple[Talk, Talk]:
    """The same outcome reaches two parents during a tool call: one holds it, the other is steered by it."""
    talks = []
    for name in ("lead", "waker"):
        gate = Gate()
        talk = await Talk.begin(stack, chain([async_task(say("The part."))], [gate.call], last="Off."), name)
        await talk.posted(1)
        if name == "waker":
            await talk.signalled(talk.id, "message", 1)
        gate.open()
        await talk.ended(talk.id)
        talks.append(talk)
    return talks[0], talks[1]


@scene
async def what_a_child_sends(stack: Stack) -> tuple[Talk, str]:
    """A child with explicit messages sends two while its parent is running; the first one may wait."""
    approve = declared_tool("approve", "summary")
    sends = prompt(
        "wake_sends",
        {"calls": [call("notify_parent", content="No hurry.", needs_answer=False, waits=True)]},
        {"calls": [call("notify_parent", content="Mind this.", needs_answer=False)]},
        "Sent.",
    )
    accepts = prompt("wake_accepts", {"calls": [call("approve", summary="Fine.")]}, tools=(approve,))
    stop = {"name": "approve", "message_property": "summary"}
    await define(stack, "messenger", sends, accepts, side_b={"session_stop": stop}, expose_as_tool=True)
    parent = agent("addressee", subagent_tools=[{"name": "messenger", "blocking": False, "resumable": EXPLICIT}])
    assert (await stack.http.put("/agents/addressee", json=parent)).is_success
    gate = Gate()
    create: Call = ("subagent_create", {"agent": "messenger", "name": "ann", "message": "Report."})
    talk = await Talk.begin(stack, chain([create], [gate.call], last="Off."), "addressee")
    await talk.ended((await talk.child()).id)
    gate.open()
    await talk.rest()
    later = await talk.say(say("Read."))
    await talk.ended(later)
    return talk, later


@pytest.mark.proves("F-12")
async def test_outcome_and_message_of_a_child_wait_or_steer_as_chosen(team: Stack) -> None:
    """The choice is made for the outcome, by reference or conversation, and for each message."""
    held, steered = await while_the_parent_works(team)
    assert len(await held.prompts(held.id)) == 1 and len(await held.mail(pending_only=True)) == 1
    fired = await held.fire()
    assert "The part." in (await held.prompts(fired.id))[0]
    _, outcome = await steered.prompts(steered.id)  # in the running session, at its next step
    assert "The part." in outcome and await steered.mail(pending_only=True) == []
    quiet, woken, mixed = await explicit(team)
    assert await quiet.mail() == [] and await quiet.delivered_sources() == [] and len(await quiet.sessions()) == 2
    assert (await quiet.try_fire()).status_code == 422
    await all_delivered(woken)
    await all_delivered(mixed)
    talk, later = await what_a_child_sends(team)
    _, steering = await talk.prompts(talk.id)
    waited, said = await talk.prompts(later)
    assert "Mind this." in steering and "No hurry." in waited and "Read." in said
    # the message started no session
    assert len([row for row in await talk.sessions() if row.thread_id == talk.id]) == 2


@pytest.mark.proves("S0-B40")
async def test_each_dispatch_has_its_own_id_and_result(team: Stack) -> None:
    talk = await Talk.done(team, chain([async_delegate("helper", say("One."))], last="Off."))
    await talk.posted(1)
    turn = await talk.say(chain([async_delegate("helper", say("Two."))], [gather("$0")]))
    texts = await talk.results(turn)
    first, second = await talk.children()
    assert first.thread_id == second.thread_id and first.id != second.id
    assert "Two." in texts[1] and "One." not in texts[1]
    again: Call = async_delegate("helper", say())
    texts = await talk.results(await talk.say(chain([async_delegate("helper", slow(2)), again], [again])))
    third = (await talk.children())[2]
    assert texts[1] == "'helper' was just given another task in this very step. Wait for it, or use another name."
    assert texts[2] == (
        f"'helper' is still running (session: {third.id}). "
        "Wait for its outcome, or send it a message with steer_subagent."
    )
    assert len(await talk.children()) == 3

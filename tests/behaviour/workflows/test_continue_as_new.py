"""Continue-as-new of sessions and of conversations: when the history is long nothing is lost or repeated, the deadline
stays, steps are counted on, and decisions are kept."""

from collections import Counter
from collections.abc import AsyncIterator
from datetime import datetime

import pytest
import pytest_asyncio

from domain import wire
from domain.conversations.requests import ConversationInput, ConversationState, Fire, InboxMessage
from domain.ids import derive_id, new_id
from domain.sessions.new_session import NewSession
from tests.behaviour.conversations.talk import AGENTS, Gate, Talk, async_task, chain, say, task
from tests.support.own_worker import platform
from tests.support.stack import Stack, eventually
from workflows.client import WorkflowClient
from workflows.replay import histories, replay

pytestmark = pytest.mark.together
SUGGEST = {"limit.historyCount.suggestContinueAsNew": "60"}  # the default is 4,096 events


@pytest_asyncio.fixture(scope="module")
async def own(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    async with platform(stack, tmp_path_factory.mktemp("own"), SUGGEST) as running:
        for definition in AGENTS:
            assert (await running.http.put(f"/agents/{definition['name']}", json=definition)).is_success
        yield running


async def runs(own: Stack, task_id: str) -> list[int]:
    """Return the events of each run, beginning with the first."""
    counts: list[int] = []
    described = await own.client.get_workflow_handle(f"session/{task_id}").describe()
    latest, run_id = described.run_id, described.raw_description.workflow_execution_info.first_run_id
    while True:
        history = await own.client.get_workflow_handle(f"session/{task_id}", run_id=run_id).fetch_history()
        counts.append(len(history.events))
        if run_id == latest:
            return counts
        run_id = history.events[-1].workflow_execution_continued_as_new_event_attributes.new_execution_run_id


async def test_long_session_continues_as_new_before_the_server_suggests_it(stack: Stack) -> None:
    """A worker that starts has to replay a history within the timeout of a workflow task, which each run keeps."""
    task_id = await stack.submit("[[script:count n=70]]", config={"max_steps": 100})
    await WorkflowClient(stack.client, stack.settings.task_queue).reopen("default", task_id)
    record = await stack.wait(task_id)
    assert (record["reason"], record["usage"]["llm_calls"]) == ("goal_reached", 71)
    counts = await runs(stack, task_id)
    assert len(counts) == 2 and wire.RENEW_AFTER <= counts[0] < wire.RENEW_AFTER + 50
    assert [(await replay(history)).same for history in await histories(stack.client, task_id)] == [True, True]
    for workflow_id in (f"session/{task_id}", f"conversation/{task_id}"):
        described = await stack.client.get_workflow_handle(workflow_id).describe()
        timeout = described.raw_description.execution_config.default_workflow_task_timeout
        assert timeout.ToTimedelta() == wire.TASK_TIMEOUT


@pytest.mark.together(False)
async def test_continued_run_keeps_the_deadline(own: Stack) -> None:
    record = await own.run("[[script:forever]]", config={"ttl": 6_000, "max_steps": 1_000})
    assert record["reason"] == "ttl"
    late = datetime.fromisoformat(record["ended_at"]) - datetime.fromisoformat(record["deadline"])
    assert -1 < late.total_seconds() < 15
    assert len(await runs(own, record["task_id"])) >= 2, "it never continued as new"


async def test_message_that_arrives_before_a_continued_run_is_delivered_once(own: Stack) -> None:
    """One message arrives in every step, while its tool runs: at each renewal one is not in the context yet."""
    slow = '{"command": "sleep 0.2"}'
    # the last reply waits for the last message, however late that is seen to be due
    task_id = await own.submit(f"[[script:count n=30 tool=bash input={slow}]] [[fault:slow delay=3 at=31]]")
    sent = []
    for step in range(1, 31):
        await own.seen(task_id, "step_started", step=step)
        sent.append(f"word {step} of thirty")
        answer = await own.http.post(f"/tasks/{task_id}/steer", json={"message": sent[-1]})
        assert answer.status_code == 202, answer.text
    assert (await own.wait(task_id))["reason"] == "goal_reached"
    assert len(await runs(own, task_id)) >= 3, "it never continued as new"
    nodes = [node for node in await own.nodes(task_id) if node["kind"] == "user"]
    texts = [part["text"] for node in nodes for part in node["body"]["parts"]]
    assert [text for text in texts if text in sent] == sent


async def test_message_that_is_signalled_again_is_taken_once(own: Stack) -> None:
    """A message is read even if the run began after it was taken, or if it arrives during the last reply."""
    slow = '{"command": "sleep 0.2"}'
    task_id = await own.submit(f"[[script:count n=20 tool=bash input={slow}]] [[fault:slow delay=0.5 at=21]]")
    await own.seen(task_id, "step_started", step=2)
    answer = await own.http.post(f"/tasks/{task_id}/steer", json={"message": "only one word"})
    message = InboxMessage(id=derive_id(task_id, "steer", answer.json()["message_id"]))

    async def taken() -> bool:
        return [node["kind"] for node in await own.nodes(task_id)].count("user") == 2

    await eventually(taken, what="the message is in the context")
    await own.session(task_id).signal(wire.MESSAGE, message)
    await own.seen(task_id, "step_started", step=21)
    assert len(await runs(own, task_id)) >= 2, "it never continued as new"
    await own.session(task_id).signal(wire.MESSAGE, message)
    record = await own.wait(task_id)
    assert (record["reason"], record["usage"]["llm_calls"]) == ("goal_reached", 21)
    contexts = [request["body"]["messages"] for request in await own.asked(task_id)]
    assert str(contexts[-1]).count("only one word") == 1
    assert await taken()


async def run_id(own: Stack, talk: Talk) -> str:
    described = await own.client.get_workflow_handle(f"conversation/{talk.id}").describe()
    assert described.run_id
    return described.run_id


async def agree(talk: Talk, pending: int) -> bool:
    rows, live = await talk.shown("/mailbox"), await talk.shown("/mailbox", live="true")
    return bool(rows == live and rows["pending_count"] == pending)


@pytest.mark.proves("S0-20")
async def test_conversation_that_continues_as_new_loses_nothing(own: Stack) -> None:
    """Held and waking outcomes arrive while it continues as new several times; some of them wait all the time."""
    gate = Gate()
    talk = await Talk.done(own, chain([async_task(gate.then(f"Late {n}.")) for n in range(3)], last="Off."))
    runs = {await run_id(own, talk)}
    for turn in range(5):
        await talk.ended(await talk.say(chain([async_task(say(f"Part {turn}{n}.")) for n in range(3)], last="Off.")))
        runs.add(await run_id(own, talk))
    await talk.posted(15)
    gate.open()
    await talk.posted(18)
    await eventually(lambda: agree(talk, 18), what="live mailbox and rows agree")
    assert len(runs) >= 3, "it never continued as new"
    fired = await talk.fire()
    received = Counter(await talk.delivered_sources())
    assert len(received) == 18 and set(received.values()) == {1}
    assert {message.delivered_to for message in await talk.mail()} == {fired.id}


@pytest.mark.proves("F-15")
async def test_a_request_is_answered_once_over_all_runs(own: Stack) -> None:
    workflow_client = WorkflowClient(own.client, own.settings.task_queue)
    gate = Gate()
    talk = await Talk.done(own, chain([async_task(say("Now.")), async_task(gate.then("Later."))], last="Off."))
    [first] = await talk.posted(1)
    fired = await talk.fire()
    before = await run_id(own, talk)
    request = fired.id  # the API derives the request id from this id
    while await run_id(own, talk) == before:
        await talk.ended(await talk.say(chain([async_task(say())] * 3, last="Off.")))
    fire = Fire(request_id=f"{request}/1", session_id=request, session=NewSession.continuing(fired))
    # repeat the request of a caller that did not receive the first answer
    answer = await workflow_client.fire("default", talk.id, fire)
    assert answer.session_id == fired.id
    assert (await talk.mail())[0].delivered_to == fired.id and len(await own.events(fired.id)) > 3
    gate.open()
    await talk.rest()
    other = fire.model_copy(update={"request_id": new_id(), "session_id": new_id()})
    assert (await workflow_client.fire("default", talk.id, other)).session_id == other.session_id
    mail = {message.message_id: message.delivered_to for message in await talk.mail()}
    assert mail.pop(first.message_id) == fired.id  # a later request gets nothing that was already delivered
    assert set(mail.values()) == {other.session_id}


async def carried(own: Stack, talk: Talk) -> ConversationState | None:
    """Return the state that the previous run passed to the present one."""
    history = await own.client.get_workflow_handle(f"conversation/{talk.id}").fetch_history()
    given = history.events[0].workflow_execution_started_event_attributes.input.payloads
    [start] = await own.client.data_converter.decode(given, [ConversationInput])
    state: ConversationState | None = start.carried
    return state


async def changed(own: Stack, talk: Talk, before: str) -> bool:
    return await run_id(own, talk) != before


async def test_queued_turns_and_messages_survive_a_renewal(own: Stack) -> None:
    """They wait in the conversation while it continues as new, and then start in order, each once."""
    first, gate = Gate(), Gate()
    work = [[task(say())]] * 12
    talk = await Talk.begin(own, chain([first.call], [task(say())] * 2, *work, [gate.call], last="First."))
    queued = [await talk.say(say(f"Turn {number}."), if_busy="queue") for number in range(3)]
    before = await run_id(own, talk)
    first.open()
    await eventually(lambda: changed(own, talk, before), what="it continued as new")
    state = await carried(own, talk)
    assert state is not None and state.threads[talk.id].queue == queued
    gate.open()
    rows = [await talk.ended(session_id) for session_id in queued]
    assert [row.output for row in rows] == [f"Turn {number}." for number in range(3)]
    starts = [row.started_at for row in rows if row.started_at]
    assert len(starts) == 3 and starts == sorted(starts)
    assert len([row for row in await talk.sessions() if not row.spawned_by]) == 4

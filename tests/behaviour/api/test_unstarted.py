"""Requests about a task whose workflow does not exist yet, because the response comes before the start."""

import asyncio
import time

import pytest
from temporalio.api.enums.v1 import EventType

from domain.ids import new_id
from domain.sessions.session import SessionRef
from domain.sessions.writes import Acceptance, NewMessage
from domain.task import parts_of
from store import agents, sessions
from tests.behaviour.conversations.talk import Talk, say
from tests.behaviour.store.conftest import NEW
from tests.support.stack import Stack, eventually

HANGS = "[[script:say words=30]] [[fault:hang after=6 times=9]]"
SLOW = "[[script:say words=50 delay=0.1]]"  # answers for five seconds
ENDS = {"cancel": "caller_cancel", "interrupt": "interrupted", "terminate": "terminated"}


async def accepted(stack: Stack, text: str) -> str:
    """A task as another API process leaves it that was killed after its commit."""
    found = await agents.get_current(stack.pool, "default", "tester")
    assert found is not None
    agent, name = found[0], new_id()
    fields = {"agent_owner": agent.owner, "agent_version": agent.version, "models": ["claude-haiku-4-5"]}
    session = NEW.model_copy(update=fields).place(
        SessionRef(tenant="default", session_id=name, conversation_id=name), thread_id=name
    )
    message = NewMessage(id=new_id(), parts=parts_of(f"{text}\nref {name}"))
    assert (await sessions.accept(stack.pool, Acceptance(session=session, inbox=[message]))).session is not None
    return name


async def stopped(stack: Stack, task_id: str, how: str) -> None:
    where = f"/conversations/{task_id}" if how == "terminate" else f"/tasks/{task_id}"
    answer = await stack.http.post(f"{where}/{how}")
    assert answer.status_code == 202, answer.text


async def streamed(stack: Stack, task_id: str) -> list[str]:
    """The types of all events, read from a stream that ends with the task."""
    async with stack.http.stream("GET", f"/tasks/{task_id}/events") as stream:
        return [line[7:] async for line in stream.aiter_lines() if line.startswith("event: ")]


@pytest.mark.proves("S1-40")
async def test_response_waits_neither_for_temporal_nor_for_a_worker(stack: Stack) -> None:
    """A start waits two seconds for Temporal, and a further turn for a worker."""
    talk = await Talk.done(stack, say("Hello."), "tester")
    with stack.frozen("temporal"):
        began = time.monotonic()
        task_id = await stack.submit("[[script:say text=here]]")
        assert time.monotonic() - began < 1.5
        assert (await stack.record(task_id))["status"] == "submitted"
    assert (await stack.wait(task_id))["status"] == "completed"
    with stack.frozen("worker"):
        began = time.monotonic()
        turn = await talk.say(say("And more."))
        assert time.monotonic() - began < 1.5
        task_id = await stack.submit("[[script:say text=here]]")
        await stack.session(task_id).describe()  # Temporal has it: only the turn waits
    for waited in (turn, task_id):
        assert (await stack.wait(waited))["status"] == "completed"


async def test_task_is_stopped_right_after_its_response(stack: Stack) -> None:
    ways = {await stack.submit(HANGS): how for how in ENDS}
    # some of them while their start is running
    more = await asyncio.gather(*(stack.submit(HANGS) for _ in range(9)))
    ways |= dict(zip(more, [*ENDS] * 3, strict=True))
    await asyncio.gather(*(stopped(stack, task_id, how) for task_id, how in ways.items()))
    for task_id, how in ways.items():
        assert (await stack.wait(task_id))["reason"] == ENDS[how]


async def test_task_that_nobody_started_is_stopped(stack: Stack) -> None:
    ways = {await accepted(stack, HANGS): how for how in ENDS}
    await asyncio.gather(*(stopped(stack, task_id, how) for task_id, how in ways.items()))
    for task_id, how in ways.items():
        assert (await stack.wait(task_id))["reason"] == ENDS[how]


async def test_task_is_steered_before_its_workflow_exists(stack: Stack) -> None:
    """The session itself reads the message; nothing else has to begin for it."""
    await asyncio.gather(_steered(stack, await accepted(stack, SLOW)), _steered(stack, await stack.submit(SLOW)))


async def _steered(stack: Stack, task_id: str) -> None:
    answer = await stack.http.post(f"/tasks/{task_id}/steer", json={"message": "Mind the gap."})
    assert answer.status_code == 202, answer.text
    assert answer.json()["session_id"] == task_id

    async def signalled() -> bool:
        events = (await stack.session(task_id).fetch_history()).events
        return any(event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED for event in events)

    await eventually(signalled, what="the message reaches the session")
    assert (await stack.wait(task_id))["status"] == "completed"
    talk = Talk(stack, task_id)
    await talk.rest()
    assert [session.id for session in await talk.sessions()] == [task_id]
    assert "Mind the gap." in str([node["body"] for node in await stack.nodes(task_id) if node["kind"] == "user"])


async def test_message_is_accepted_within_seconds_though_no_worker_answers(stack: Stack) -> None:
    """The start of the turn waits for a worker too, and both waits share one limit."""
    talk = await Talk.done(stack, say("Hello."), "tester")
    body = {"conversation_id": talk.id, "input": "Mind the gap.", "transport": "stream", "if_busy": "steer"}
    with stack.frozen("worker"):
        turn = await talk.say(SLOW)
        began = time.monotonic()
        answer = await stack.http.post("/conversations/run", json=body)
        assert time.monotonic() - began < 6
    assert answer.status_code == 202, answer.text
    assert (answer.json()["session_id"], answer.json()["steered"]) == (turn, True)
    await talk.rest()
    prompts = [prompt for session in await talk.sessions() for prompt in await talk.prompts(session.id)]
    assert sum(prompt.count("Mind the gap.") for prompt in prompts) == 1


async def test_reader_sees_the_end_of_a_task_whose_api_died_before_its_start(stack: Stack) -> None:
    """A worker starts it a few seconds later; the regular sweep would need up to half a minute."""
    task_id = await accepted(stack, "[[script:say text=here]]")
    reading = asyncio.create_task(streamed(stack, task_id))
    began = time.monotonic()
    answer = await stack.http.get(f"/tasks/{task_id}/result", params={"wait": 20})
    assert answer.status_code == 200, answer.text
    assert answer.json()["output"] == "here"
    assert time.monotonic() - began < 12
    assert (await reading).count("task_completed") == 1

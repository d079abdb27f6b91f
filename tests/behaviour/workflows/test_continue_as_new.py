"""Continue-as-new: when the history is long nothing is lost, the deadline stays, and steps are counted on."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime

import pytest
import pytest_asyncio

from domain import wire
from domain.conversations.requests import InboxMessage
from domain.ids import derive_id
from tests.support.launch import TESTER
from tests.support.mcp_server import TaskServer, serving
from tests.support.own_worker import platform
from tests.support.stack import Stack, calls, eventually, of_type
from workflows.client import WorkflowClient
from workflows.replay import histories, replay

SUGGEST = {"limit.historyCount.suggestContinueAsNew": "100"}  # the default is 4,096 events


@pytest_asyncio.fixture(scope="module")
async def own(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stack]:
    async with platform(stack, tmp_path_factory.mktemp("own"), SUGGEST) as running:
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


@pytest.mark.exactly_once
async def test_continued_run_takes_the_next_step(own: Stack) -> None:
    task_id = await own.submit("[[script:count n=30]]")
    await WorkflowClient(own.client, own.settings.task_queue).reopen("default", task_id)
    record = await own.wait(task_id)
    usage = record["usage"]
    assert (record["reason"], record["progress"]["step"]) == ("goal_reached", 31)
    assert (await own.result(task_id))["output"].startswith("Counted 30 steps.")
    assert (usage["llm_calls"], usage["tool_invocations"]) == (31, 30)
    events = await own.events(task_id)
    assert [event["step"] for event in of_type(events, "step_started")] == list(range(1, 32))
    assert [event["step"] for event in of_type(events, "step_completed")] == list(range(1, 32))
    assert len(of_type(events, "task_started")) == 1
    counts = await runs(own, task_id)
    assert len(counts) >= 3 and max(counts) < 150
    # the last run passed the result on
    await asyncio.wait_for(own.client.get_workflow_handle(f"conversation/{task_id}").result(), 20)


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


async def test_continued_run_keeps_the_deadline(own: Stack) -> None:
    record = await own.run("[[script:forever]]", config={"ttl": 6_000, "max_steps": 1_000})
    assert record["reason"] == "ttl"
    late = datetime.fromisoformat(record["ended_at"]) - datetime.fromisoformat(record["deadline"])
    assert -1 < late.total_seconds() < 15
    assert len(await runs(own, record["task_id"])) >= 2, "it never continued as new"


async def test_message_that_arrives_before_a_continued_run_is_delivered_once(own: Stack) -> None:
    """One message arrives in every step, while its tool runs: at each renewal one is not in the context yet."""
    slow = '{"command": "sleep 0.2"}'
    task_id = await own.submit(f"[[script:count n=30 tool=bash input={slow}]]")
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


async def test_call_that_continues_at_a_server_is_followed_by_the_next_run(own: Stack) -> None:
    port = int(own.settings.allow_private_hosts[0].partition(":")[2])
    async with serving(TaskServer(port)) as server:
        agent = {**TESTER, "name": "builder", "mcp_servers": {"builds": {"url": server.url}}}
        (await own.http.put("/agents/builder", json=agent)).raise_for_status()
        build = ("mcp__builds__build", {"target": "x"})
        task_id = await own.submit(calls(("bash", {"command": "echo x"}), build, build), "builder")
        await own.seen(task_id, "step_started")

        async def renewed() -> bool:
            return len(await runs(own, task_id)) >= 2

        await eventually(renewed, what="the workflow continued as new")
        server.done |= {*server.polls}
        record = await own.wait(task_id)
        assert (record["reason"], record["usage"]["tool_invocations"]) == ("goal_reached", 3)
        assert len(server.calls) == 2 and server.done == {"build-1", "build-2"}  # each call was made once
    shown = str((await own.asked(task_id))[-1]["body"]["messages"])
    assert all(f"build-{one} built" in shown for one in (1, 2))
    assert len(of_type(await own.events(task_id), "tool_called")) == 3
    assert max(await runs(own, task_id)) < 150

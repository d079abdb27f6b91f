"""Single activities, without a worker: they run in the SDK's ActivityEnvironment on the real database."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
from temporalio.activity import ActivityCancellationDetails, _Definition
from temporalio.testing import ActivityEnvironment

import activities
import worker
from activities.delegation.settle import DelegationRecord
from activities.events import EventWriter
from activities.sandbox import Refusing
from activities.workspaces import Workspaces
from domain.conversations.subagents import DelegationCall, DelegationTool, Settle
from domain.events import EventRow, Progress, ToolReturned
from domain.ids import new_id, session_workflow_id
from domain.sessions.input_request import OpenRequest, RequestKind
from domain.sessions.session import (
    CallState,
    Effect,
    Finish,
    ModelCall,
    ModelReply,
    Reason,
    SessionRef,
    Status,
    ToolRequest,
    Usage,
    preview,
)
from domain.sessions.writes import Acceptance, NewMessage
from domain.task import parts_of
from store import agents, runs, sessions, tool_calls, workspaces
from store.sessions import SessionRow
from tests.behaviour.conversations.talk import Gate, Talk, agent, asked, chain
from tests.behaviour.graphs.duet import call, declared_tool, define, prompt
from tests.behaviour.store.conftest import NEW
from tests.behaviour.store.test_tool_calls import claim, outcome
from tests.support.launch import TESTER
from tests.support.locks import locked, waiting_for
from tests.support.stack import Stack, calls, eventually, of_type

pytestmark = pytest.mark.exactly_once
Activities = dict[str, Callable[..., Any]]


@pytest_asyncio.fixture
async def writer(stack: Stack) -> AsyncIterator[EventWriter]:
    async with EventWriter(stack.pool) as writer:
        yield writer


@pytest_asyncio.fixture
async def alone(stack: Stack, writer: EventWriter) -> AsyncIterator[Activities]:
    sandbox = Refusing("none", "")
    services = worker.build_services(stack.settings, stack.pool, stack.client, writer, sandbox)
    functions = activities.build(services)
    yield {str(_Definition.must_from_callable(function).name): function for function in functions}
    await services.models.close()


class Lone:
    """A session in the database that no workflow runs. Every activity is called twice, as after a lost response."""

    def __init__(self, stack: Stack, alone: Activities, session: SessionRow, message_id: str) -> None:
        self.stack, self.alone, self.session, self.message_id = stack, alone, session, message_id

    @classmethod
    async def accepted(
        cls, stack: Stack, alone: Activities, text: str, spawner: SessionRow | None = None, by: str = "tester"
    ) -> "Lone":
        found = await agents.get_current(stack.pool, "default", by)
        assert found is not None
        agent, _ = found
        name, message_id = new_id(), new_id()
        fields = {
            "agent": agent.name,
            "agent_owner": agent.owner,
            "agent_version": agent.version,
            "models": ["claude-haiku-4-5"],
        }
        fields |= {"spawned_by": spawner.id, "subagent_name": "ann", "blocking": True} if spawner else {}
        ref = SessionRef(tenant="default", session_id=name, conversation_id=spawner.id if spawner else name)
        placed = NEW.model_copy(update=fields).place(ref, thread_id=name)
        message = NewMessage(id=message_id, parts=parts_of(f"{text}\nref {name}"))
        await sessions.accept(stack.pool, Acceptance(session=placed, inbox=[message]))
        session = await sessions.get(stack.pool, "default", name)
        assert session is not None
        return cls(stack, alone, session, message_id)

    def environment(self, name: str, attempt: int = 1) -> ActivityEnvironment:
        environment = ActivityEnvironment()
        workflow_id = session_workflow_id(self.session.id)
        environment.info = replace(environment.info, workflow_id=workflow_id, activity_id=name, attempt=attempt)
        return environment

    async def twice(self, name: str, request: Any) -> Any:
        outcomes = [await self.environment(name, attempt).run(self.alone[name], request) for attempt in (1, 2)]
        assert outcomes[0] == outcomes[1]
        return outcomes[0]

    async def stopped_while_it_writes(self, table: str, name: str, request: Any) -> Any:
        """Return the result of the activity when a stop arrives while its outcome waits to be written."""
        environment = self.environment(name)
        async with locked(self.stack.pool, table):
            running = asyncio.create_task(environment.run(self.alone[name], request))
            await eventually(lambda: waiting_for(self.stack.pool, table), pause=0.05, what="the outcome is written")
            environment.cancel(cancellation_details=ActivityCancellationDetails(cancel_requested=True))
            await asyncio.wait({running}, timeout=0.2)
        return await running

    @property
    def model_call(self) -> ModelCall:
        return ModelCall(
            ref=self.session.ref,
            agent=self.session.agent_ref,
            step=1,
            version=self.session.version + 1,
            head=None,
            model=self.session.models[0],
            take=[self.message_id],
            deadline=self.session.deadline,
            usage=Usage(),
            begins=True,
        )

    async def replied(self) -> ModelReply:
        reply: ModelReply = await self.twice("call_model", self.model_call)
        return reply

    def tool_request(self, node: str, name: str, effect: Effect) -> ToolRequest:
        return ToolRequest(
            ref=self.session.ref,
            agent=self.session.agent_ref,
            step=1,
            node=node,
            index=0,
            name=name,
            effect=effect,
            workspace_id=self.session.workspace_id,
        )

    def finish(self, head: str | None, reason: Reason = Reason.GOAL_REACHED) -> Finish:
        return Finish(
            ref=self.session.ref,
            agent=self.session.agent_ref,
            reason=reason,
            head=head,
            step=1,
            version=self.session.version + 2,
            usage=Usage(),
            spawned_by=self.session.spawned_by,
        )

    async def finished(self, head: str | None, reason: Reason = Reason.GOAL_REACHED) -> Any:
        return await self.twice("finish_session", self.finish(head, reason))


async def test_recorded_tool_call_is_not_run_again(stack: Stack, alone: Activities) -> None:
    record = await stack.run(calls(("report_progress", {"message": "half"})))
    session = await sessions.get(stack.pool, "default", record["task_id"])
    assert session is not None
    node = await stack.pool.fetchval("SELECT node FROM tool_calls WHERE session_id = $1", record["task_id"])
    request = Lone(stack, alone, session, "").tool_request(node, "report_progress", Effect.IDEMPOTENT)
    outcome = await ActivityEnvironment().run(alone["tool.report_progress"], request)
    assert (outcome.state, outcome.preview) == ("ok", "Reported.")
    assert len(of_type(await stack.events(record["task_id"]), "progress")) == 1


async def test_model_is_asked_once_and_the_end_is_written_once(stack: Stack, alone: Activities) -> None:
    lone = await Lone.accepted(stack, alone, '[[script:say text="All is well."]]')
    task_id = lone.session.id
    reply = await lone.replied()
    assert len(await asked(stack, f"ref {task_id}")) == 1
    assert not reply.calls and (await stack.record(task_id))["usage"]["llm_calls"] == 1
    assert [node["kind"] for node in await stack.nodes(task_id)] == ["user", "assistant"]
    finished = await lone.finished(reply.head)
    assert (finished.status, finished.preview) == (Status.COMPLETED, "All is well.")
    assert (await stack.result(task_id))["output"] == "All is well."
    assert len(of_type(await stack.events(task_id), "task_completed")) == 1


async def test_stop_loses_neither_a_reply_nor_a_result_that_is_being_stored(stack: Stack, alone: Activities) -> None:
    lone = await Lone.accepted(stack, alone, calls(("write_file", {"path": "a.txt", "content": "a"})))
    reply = await lone.stopped_while_it_writes("messages", "call_model", lone.model_call)
    assert [call.name for call in reply.calls] == ["write_file"] and not reply.interrupted
    assert [node["kind"] for node in await stack.nodes(lone.session.id)] == ["user", "assistant"]
    assert (await stack.record(lone.session.id))["usage"]["llm_calls"] == 1
    request = lone.tool_request(reply.head, "write_file", Effect.IDEMPOTENT)
    outcome = await lone.stopped_while_it_writes("workspaces", "tool.write_file", request)
    stored = await stack.pool.fetchrow("SELECT state, result FROM tool_calls WHERE node = $1", reply.head)
    assert (
        stored is not None
        and (outcome.state, stored["state"]) == ("ok", "ok")
        and "interrupted" not in stored["result"].lower()
    )
    assert (await lone.finished(reply.head, Reason.CALLER_CANCEL)).status is Status.CANCELLED


async def test_artifact_that_is_being_stored_outlasts_its_connection(stack: Stack, alone: Activities) -> None:
    lone = await Lone.accepted(stack, alone, calls(("save_artifact", {"path": "a.txt"})))
    reply, space = await lone.replied(), lone.session.workspace_id
    own = Workspaces(stack.pool, stack.settings.workspaces_dir)
    (await own.ready("default", space, 0) / "a.txt").write_text(f"of {space}")
    await asyncio.sleep(0.1)  # until its stamp holds
    await own.keep("default", space)
    request = lone.tool_request(reply.head, "save_artifact", Effect.IDEMPOTENT)
    async with locked(stack.pool, "blobs"):
        saving = asyncio.create_task(lone.environment("tool").run(alone["tool.save_artifact"], request))
        await eventually(lambda: waiting_for(stack.pool, "blobs"), pause=0.05, what="its content is stored")
        query = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE relation = 'blobs'::regclass AND NOT granted"
        await stack.pool.execute(query)
    assert (await saving).state == "ok"
    assert (await lone.finished(reply.head)).status is Status.COMPLETED


async def test_files_of_a_call_that_outlives_its_session_are_kept_by_nobody(stack: Stack, alone: Activities) -> None:
    """Not even where a hook changes the result."""
    await stack.define({**TESTER, "name": "al_shortened", "hooks": ["shortens"]})
    script = calls(("write_file", {"path": "late.txt", "content": new_id()}))
    lone = await Lone.accepted(stack, alone, script, by="al_shortened")
    reply = await lone.replied()
    request = lone.tool_request(reply.head, "write_file", Effect.IDEMPOTENT)
    async with locked(stack.pool, "blobs"):
        late = asyncio.create_task(lone.environment("tool").run(alone["tool.write_file"], request))
        await eventually(lambda: waiting_for(stack.pool, "blobs"), pause=0.05, what="its files are stored")
        assert (await lone.finished(reply.head, Reason.CALLER_CANCEL)).status is Status.CANCELLED
    with pytest.raises(runs.SessionEnded):
        await late
    assert await workspaces.get(stack.pool, "default", lone.session.workspace_id) == (0, {})
    assert not await asyncio.to_thread(stack.workspace(lone.session.id).exists), "the next session would keep them"


async def test_activities_that_are_cut_off_lose_no_events(stack: Stack, alone: Activities, writer: EventWriter) -> None:
    """A worker that shuts down or a timeout ends an activity that has taken events and waits for the database."""
    lone = await Lone.accepted(stack, alone, calls(("list_files", {"path": "."})))

    async def cut_off(table: str, name: str, request: Any) -> None:
        environment = lone.environment(name)
        writer.put(lone.session.ref, Progress(message=name))
        async with locked(stack.pool, table):
            running = asyncio.create_task(environment.run(alone[name], request))
            await eventually(lambda: waiting_for(stack.pool, table), pause=0.05, what="the outcome is written")
            environment.cancel(cancellation_details=ActivityCancellationDetails(timed_out=True))
            await asyncio.wait({running})
        assert running.cancelled()

    await cut_off("messages", "call_model", lone.model_call)
    reply = await lone.environment("call_model", attempt=2).run(alone["call_model"], lone.model_call)
    request = lone.tool_request(reply.head, "list_files", Effect.READ)
    await cut_off("tool_calls", "tool.list_files", request)
    await lone.environment("tool.list_files", attempt=2).run(alone["tool.list_files"], request)
    await cut_off("conversations", "finish_session", lone.finish(reply.head))
    await lone.finished(reply.head)
    shown = [event["message"] for event in of_type(await stack.events(lone.session.id), "progress")]
    assert shown == ["call_model", "tool.list_files", "finish_session"]


@asynccontextmanager
async def slow(stack: Stack, session_id: str) -> AsyncIterator[Callable[[str], Awaitable[Any]]]:
    """Hold the row of a session, as a slow database would; gives a wait for a function that needs the row."""
    async with stack.pool.acquire() as connection, connection.transaction():
        await connection.execute("SELECT 1 FROM sessions WHERE id = $1 FOR UPDATE", session_id)

        async def waits(function: str) -> None:
            query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE $1"

            async def found() -> bool:
                return bool(await stack.pool.fetchval(query, f"%{function}%"))

            await eventually(found, pause=0.02, what=f"{function} waits")

        yield waits


@pytest.mark.parametrize("late", [False, True], ids=["before-the-end", "while-it-is-written"])
async def test_committed_reply_that_the_workflow_did_not_see_is_kept(
    stack: Stack, alone: Activities, late: bool
) -> None:
    """Its worker dies before it reports, or the database is slow and the workflow stops waiting."""
    lone = await Lone.accepted(stack, alone, '[[script:say text="All is well."]] [[fault:slow delay=1]]')
    task_id = lone.session.id
    asking = asyncio.create_task(lone.environment("call_model").run(alone["call_model"], lone.model_call))
    await stack.seen(task_id, "task_started")
    if late:
        async with slow(stack, task_id) as waits:
            await waits("commit_step")
            ended = asyncio.create_task(lone.finished(None, Reason.TTL))
            await waits("finish_session")
    else:
        await asking
        ended = asyncio.create_task(lone.finished(None, Reason.TTL))
    finished, reply = await ended, await asking
    assert (finished.status, finished.preview, finished.head) == (Status.FAILED, "All is well.", reply.head)
    result = await stack.result(task_id)
    assert result["output"] == "All is well." and result["usage"]["llm_calls"] == 1
    [event] = of_type(await stack.events(task_id), "task_failed")
    assert event["usage"]["llm_calls"] == 1 and event["output"] == "All is well."
    row = await sessions.get(stack.pool, "default", task_id)
    assert row is not None and row.head == reply.head and row.committed
    assert await stack.pool.fetchval("SELECT entered FROM inbox WHERE id = $1", lone.message_id)


async def test_call_that_returns_while_its_session_ends_returns_once(stack: Stack, alone: Activities) -> None:
    lone = await Lone.accepted(stack, alone, calls(("write_file", {"path": "a.txt", "content": "a"})))
    task_id, ref, reply = lone.session.id, lone.session.ref, await lone.replied()
    assert (await tool_calls.claim(stack.pool, claim(ref, reply.head, 1, Effect.IDEMPOTENT))).go
    returned = EventRow.of(ref, ToolReturned(tool="write_file", state=CallState.OK, preview="Written."))
    done = outcome(ref, reply.head, 1, "Written.", Effect.IDEMPOTENT).model_copy(update={"events": [returned]})
    async with stack.pool.acquire() as connection, connection.transaction():
        await connection.execute("SELECT 1 FROM sessions WHERE id = $1 FOR KEY SHARE", task_id)
        ended = asyncio.create_task(lone.finished(reply.head, Reason.CALLER_CANCEL))
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%finish_session%'"
        )
        await eventually(lambda: stack.pool.fetchval(waiting), pause=0.02, what="the end waits")
        assert await tool_calls.commit(stack.pool, done)
    assert (await ended).status is Status.CANCELLED
    assert [event["state"] for event in of_type(await stack.events(task_id), "tool_returned")] == ["ok"]


def opening(lone: Lone, node: str, kind: RequestKind) -> OpenRequest:
    session = lone.session
    agents = [session.agent_ref]
    return OpenRequest(ref=session.ref, id=new_id(), kind=kind, node=node, deadline=session.deadline, agents=agents)


async def test_request_is_opened_once(stack: Stack, alone: Activities) -> None:
    lone = await Lone.accepted(stack, alone, calls(("bash", {"command": "ls"})))
    task_id, reply = lone.session.id, await lone.replied()
    request = opening(lone, reply.head, RequestKind.TOOL_APPROVAL)
    opened = await lone.twice("open_request", request)
    assert not opened.settled and not opened.refused and opened.deadline == lone.session.deadline
    [listed] = (await stack.http.get(f"/tasks/{task_id}/input-requests")).json()["items"]
    assert (listed["id"], listed["details"]["arguments"]) == (request.id, {"command": "ls"})
    assert len(of_type(await stack.events(task_id), "input_required")) == 1
    assert (await stack.record(task_id))["status"] == "input_required"
    assert (await lone.finished(reply.head, Reason.CALLER_CANCEL)).status is Status.CANCELLED


async def test_delegation_is_settled_once_with_the_outcome_of_its_child(stack: Stack, alone: Activities) -> None:
    parent = await Lone.accepted(stack, alone, calls(("task", {"agent": "x", "prompt": "x", "description": "x"})))
    reply = await parent.replied()
    child = await Lone.accepted(stack, alone, "[[script:say text=Found.]]", parent.session)
    await child.finished((await child.replied()).head)
    await DelegationRecord(stack.pool, parent.session.ref, reply.head).claim(0, "task", "x")
    settle = Settle(
        ref=parent.session.ref, node=reply.head, index=0, tool=DelegationTool.TASK, step=1, child=child.session.id
    )
    outcome = await parent.twice("settle_delegation", settle)
    assert outcome.state == "ok" and "Found." in outcome.preview
    events = await stack.events(parent.session.id)
    assert [len(of_type(events, kind)) for kind in ("subagent_ended", "tool_returned")] == [1, 1]
    assert (await parent.finished(reply.head)).status is Status.COMPLETED


async def test_message_to_an_instance_is_sent_once_although_its_sender_died(stack: Stack, alone: Activities) -> None:
    """The message is sent to a running session, and as the start of a new one."""
    first, second, midway, last = Gate(), Gate(), Gate(), Gate()
    approve = declared_tool("approve", "summary")
    waits = [{"calls": [call("wait_for", path=str(gate.path))]} for gate in (first, second)]
    worker = prompt("al_worker", waits[0], "A draft.", waits[1], "Another.", tools=("wait_for",))
    reviewer = prompt("al_reviewer", *[{"calls": [call("approve", summary="Fine.")]}] * 3, tools=(approve,))
    await define(stack, "al_pair", worker, reviewer, side_b={"session_stop": "approve"}, expose_as_tool=True)
    config = {"name": "al_pair", "blocking": False, "resumable": {"parent_communication": "explicit"}}
    (await stack.http.put("/agents/al_lead", json=agent("al_lead", subagent_tools=[config]))).raise_for_status()
    create = ("subagent_create", {"agent": "al_pair", "name": "ann", "message": "First."})
    sends: list[Any] = [("subagent_message", {"target": "ann", "message": text}) for text in ("Second.", "Third.")]
    script = chain([create], [sends[0]], [midway.call], [sends[1]], [last.call])
    talk = await Talk.begin(stack, script, "al_lead")

    async def again(place: int) -> str:
        """Repeat the activity of the n-th message, as if its worker had died before the result was recorded."""

        async def settled() -> Any:
            query = (
                "SELECT * FROM tool_calls WHERE session_id = $1 AND tool = 'subagent_message' AND ended_at IS NOT NULL"
            )
            rows = await stack.pool.fetch(f"{query} ORDER BY started_at", talk.id)
            return rows[place] if len(rows) > place else None

        row, parent = await eventually(settled, what="a message was sent"), await talk.session(talk.id)
        if place == 0:  # the reader of the first message has ended by now
            first.open()
            await talk.ended((await talk.child()).id)
        await stack.pool.execute("DELETE FROM tool_calls WHERE node = $1", row["node"])
        environment = ActivityEnvironment()
        run = (await stack.session(talk.id).describe()).run_id
        environment.info = replace(environment.info, workflow_id=session_workflow_id(talk.id), workflow_run_id=run)
        request = DelegationCall(
            ref=parent.ref,
            agent=parent.agent_ref,
            line="",
            model=parent.models[0],
            node=row["node"],
            indexes=[0],
            step=2 + place,
        )
        [begun] = (await environment.run(alone["begin_delegations"], request)).calls
        assert (begun.settled.state, begun.settled.preview) == ("ok", preview(row["result"]))
        return str(row["result"])

    assert "delivered" in await again(0)
    midway.open()
    await again(1)
    second.open()
    last.open()
    await talk.ended(talk.id)
    await talk.rest()
    sent = [await talk.prompts(row.id) for row in await talk.children()]
    assert sent == [["First.", "Second."], ["Third."]]

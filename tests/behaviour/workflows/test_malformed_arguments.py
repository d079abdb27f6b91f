"""No argument of any sender can fail a workflow task of ours, and the workflow works afterwards."""

import asyncio
import contextlib
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.client import WorkflowHandle, WorkflowQueryFailedError, WorkflowUpdateFailedError
from temporalio.common import RawValue

from deploy.temporal import FLAGS
from domain import wire
from domain.conversations.requests import EndedSession, PendingOutcome
from domain.ids import new_id
from domain.sessions.session import Reason, Status, StopRequest
from tests.behaviour.conversations.talk import HANG
from tests.support.stack import Stack
from workflows.client import WorkflowClient
from workflows.registry import WORKFLOWS

MOST_SIGNALS = int(FLAGS["history.maximumSignalsPerExecution"])
HANGS = "[[script:say words=30]] [[fault:hang after=6]]"


def raw(encoding: str, data: bytes) -> RawValue:
    return RawValue(Payload(metadata={"encoding": encoding.encode()}, data=data))


NULL = raw("binary/null", b"")
BYTES = raw("binary/plain", b"\x00\xff garbage")
UNFIT: list[list[Any]] = [
    [],
    [NULL],
    [BYTES],
    [raw("json/plain", b"null")],
    [raw("json/plain", b"{")],
    [raw("json/plain", b"\xff\xfe")],
    [raw("", b"")],
    [raw("unheard/of", b"x")],
    ["text"],
    [7],
    [[]],
    [{}],
    [{"id": 7, "session_id": None, "reason": [], "request_id": {}}],
    [PendingOutcome(id="x", agent="a", status=Status.FAILED)],
    [NULL, NULL],
    [BYTES, "text", 7],
    [{}, {}],
]


def handlers(name: str) -> Iterator[tuple[str, str]]:
    """Yield every handler of a workflow that the SDK does not define itself, and names that do not exist."""
    kind = next(one for one in WORKFLOWS if one.__name__ == name)
    definition = workflow._Definition.must_from_class(kind)
    yield from (("signal", str(handler)) for handler in (*definition.signals, "nonsense"))
    yield from (("update", str(handler)) for handler in (*definition.updates, "nonsense"))
    yield from (("query", str(handler)) for handler in (*definition.queries, "nonsense"))


async def send(handle: WorkflowHandle[Any, Any], kind: str, name: str, arguments: list[Any]) -> None:
    within = timedelta(seconds=10)
    if kind == "signal":
        await handle.signal(name, args=arguments, rpc_timeout=within)
    elif kind == "update":
        with pytest.raises(WorkflowUpdateFailedError):
            await handle.execute_update(name, args=arguments, id=new_id(), rpc_timeout=within)
    else:  # a query changes nothing, so it does not matter whether the SDK ignores or refuses extra arguments
        with contextlib.suppress(WorkflowQueryFailedError):
            await handle.query(name, args=arguments, rpc_timeout=within)


async def bombard(handle: WorkflowHandle[Any, Any], name: str) -> None:
    """Send all arguments to every handler, except the only valid call of signals without an argument."""
    for kind, handler in handlers(name):
        for arguments in UNFIT:
            if arguments or handler not in (wire.TERMINATED, wire.RELOAD, wire.RESEND):
                await send(handle, kind, handler, arguments)
    await unharmed(handle)


async def unharmed(handle: WorkflowHandle[Any, Any]) -> None:
    history = await handle.fetch_history()
    failed = [event for event in history.events if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED]
    of_server = (
        # a new worker frees the tasks of one that another test has killed
        WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_STICKY_TASK_QUEUE,
        # many signals arrived while a worker had the task
        WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_FORCE_CLOSE_COMMAND,
    )
    failed = [event for event in failed if event.workflow_task_failed_event_attributes.cause not in of_server]
    assert failed == []


async def test_session_and_conversation_survive_malformed_arguments(stack: Stack) -> None:
    task_id = await stack.submit(HANGS)
    await stack.seen(task_id, "message_delta")
    client = WorkflowClient(stack.client, stack.settings.task_queue)
    await client.reopen("default", task_id)
    conversation = stack.client.get_workflow_handle(f"conversation/{task_id}")
    session = stack.session(task_id)
    await bombard(session, wire.SESSION)
    await bombard(conversation, wire.CONVERSATION)
    assert await client.mailbox(task_id) == []
    await conversation.signal(wire.POST, EndedSession(session_id="of another conversation"))
    await session.signal(wire.STOP, StopRequest(reason=Reason.CALLER_CANCEL, by="test"))
    assert (await stack.wait(task_id))["status"] == "cancelled"
    await conversation.result()
    await unharmed(session)
    await unharmed(conversation)


async def flood(handle: WorkflowHandle[Any, Any], signal: str) -> None:
    """Send undecodable signals until Temporal takes no more."""
    waiting = 0
    for _ in range(MOST_SIGNALS // 100 + 1):
        sent = (handle.signal(signal, {"id": 7}) for _ in range(100))
        answers = await asyncio.gather(*sent, return_exceptions=True)
        waiting += sum(answer is None for answer in answers)
    assert MOST_SIGNALS - 100 < waiting <= MOST_SIGNALS  # a few others have arrived before


async def test_as_many_undecodable_signals_as_temporal_takes_fail_no_workflow_task(stack: Stack) -> None:
    """They arrive while no worker is there, so that one workflow task has them all. A cancel for which there is no
    place is in the row."""
    task_id = await stack.submit(HANG)
    await stack.seen(task_id, "message_delta")
    # after the flood it is renewed
    described = await stack.session(task_id).describe()
    session = stack.client.get_workflow_handle(described.id, run_id=described.run_id)
    with stack.frozen("worker"):
        await flood(session, wire.MESSAGE)
        assert (await stack.cancel(task_id)).status_code == 202
    assert (await stack.wait(task_id))["status"] == "cancelled"
    await unharmed(session)

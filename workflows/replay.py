"""Replay: run a recorded history on the present code, to debug it or to check whether an upgrade would break it."""

import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import Any

from errand.models import ReplayVerdict
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Interceptor, Replayer, UnsandboxedWorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from domain.ids import conversation_workflow_id, session_workflow_id
from workflows.argument_guard import ArgumentGuard
from workflows.codec import PLAIN
from workflows.registry import WORKFLOWS
from workflows.session.loop import run_line
from workflows.ui import CONVERSATION

# These modules use neither a clock nor randomness (a test checks that), so replays need not import them again for each
# run: the sandbox has only the modules that define the workflows.
PURE = (
    "activity_calls",
    "conversation.router",
    "session.context",
    "session.delegation",
    "session.hooks",
    "session.loop",
    "session.requests",
    "session.tools",
    "ui",
)

# extracts the SDK's sentence about the difference from the structure around it
_REASON = re.compile(r'\[TMPRL\d+\]\s*(?P<sentence>[^"\n]*)')
_SCHEDULED = re.compile(r"scheduled event '(?P<name>[^']+)'")
_EVENT = re.compile(r"HistoryEvent\(id: (?P<id>\d+)")


async def replay(history: WorkflowHistory, converter: DataConverter = PLAIN) -> ReplayVerdict:
    run_id = history.events[0].workflow_execution_started_event_attributes.original_execution_run_id
    run: dict[str, Any] = {"workflow_id": history.workflow_id, "run_id": run_id, "events": len(history.events)}
    failure = await _failure(history, len(history.events), converter)
    if failure is None:
        return ReplayVerdict(**run, same=True)
    reason = _REASON.search(failure)
    event = await _first_difference(history, failure, converter)
    return ReplayVerdict(
        **run,
        same=False,
        event_id=event.event_id,
        event_type=EventType.Name(event.event_type).removeprefix("EVENT_TYPE_").lower(),
        reason=(reason["sentence"] if reason else failure).strip()[:500],
    )


async def debug(history: WorkflowHistory, watch: Interceptor, converter: DataConverter = PLAIN) -> None:
    """Replay in this thread, without sandbox and without deadlines; `watch` is called for every activity started."""
    replayer = Replayer(
        workflows=list(WORKFLOWS),
        workflow_runner=UnsandboxedWorkflowRunner(),
        data_converter=converter,
        interceptors=[ArgumentGuard(), watch],
        debug_mode=True,
    )
    await replayer.replay_workflow(history, raise_on_replay_failure=False)


def loop_above(frame: FrameType | None) -> FrameType:
    """The frame of the session's loop, among the callers of this frame."""
    while frame is not None and frame.f_code is not run_line.__code__:
        frame = frame.f_back
    assert frame is not None
    return frame


def checking_runner() -> SandboxedWorkflowRunner:
    """The runner of replays: code of a workflow that is not deterministic raises where it is called."""
    ours = (f"workflows.{name}" for name in PURE)
    return SandboxedWorkflowRunner(
        restrictions=SandboxRestrictions.default.with_passthrough_modules("domain", "pydantic", "pydantic_core", *ours)
    )


def new_replayer(workflows: list[type], converter: DataConverter = PLAIN) -> Replayer:
    """A replayer that runs workflows like a worker, but inside the sandbox."""
    return Replayer(
        workflows=workflows,
        workflow_runner=checking_runner(),
        data_converter=converter,
        interceptors=[ArgumentGuard()],
    )


async def _failure(history: WorkflowHistory, length: int, converter: DataConverter) -> str | None:
    """Replay the first events of a history; returns the SDK's message if the code would have decided differently."""
    replayer = new_replayer(list(WORKFLOWS), converter)
    part = WorkflowHistory(history.workflow_id, history.events[:length])
    result = await replayer.replay_workflow(part, raise_on_replay_failure=False)
    return None if result.replay_failure is None else str(result.replay_failure)


async def _first_difference(history: WorkflowHistory, failure: str, converter: DataConverter) -> HistoryEvent:
    """The first event that differs: the one that the SDK names, or one in the first batch of decisions that fails."""
    if named := _EVENT.search(failure):
        return history.events[int(named["id"]) - 1]
    # A batch holds the decisions of one workflow task: from its completion to the scheduling of the next.
    scheduled, completed = EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED, EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    ends = [place for place, event in enumerate(history.events) if place > 2 and event.event_type == scheduled]
    ends.append(len(history.events))
    low, high = 0, len(ends) - 1
    while low < high:
        middle = (low + high) // 2
        if await _failure(history, ends[middle], converter) is None:
            low = middle + 1
        else:
            high = middle
    batch = history.events[: ends[low]]
    done = max(place for place, event in enumerate(batch) if event.event_type == completed)
    decided = batch[done + 1 :] or batch[-1:]
    kind = _SCHEDULED.search(failure)
    return next((event for event in decided if kind and _activity(event) == kind["name"]), decided[0])


def _activity(event: HistoryEvent) -> str:
    return event.activity_task_scheduled_event_attributes.activity_type.name


async def histories(client: Client, session_id: str) -> list[WorkflowHistory]:
    """Every run of a session, oldest first: a session continues as new when its history grows long. None if unknown."""
    return await _fetch_runs(client, session_workflow_id(session_id))


async def with_conversation(client: Client, session_id: str) -> list[WorkflowHistory]:
    """The runs of a session, then those of its conversation, if there are any and the server still has them."""
    found = await histories(client, session_id)
    if found:
        attributes = found[0].events[0].workflow_execution_started_event_attributes.search_attributes
        conversation_id = json.loads(attributes.indexed_fields[CONVERSATION.name].data)
        found += await _fetch_runs(client, conversation_workflow_id(conversation_id))
    return found


async def _fetch_runs(client: Client, workflow_id: str) -> list[WorkflowHistory]:
    found: list[WorkflowHistory] = []
    run_id: str | None = None
    try:
        while run_id is None or run_id:
            found.append(await client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history())
            run_id = found[-1].events[0].workflow_execution_started_event_attributes.continued_execution_run_id
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
    return found[::-1]


async def recent(client: Client, since: timedelta) -> AsyncIterator[WorkflowHistory]:
    """Every workflow that ran lately or is still running, of every type: the check before a release."""
    start = (datetime.now(UTC) - since).strftime("%Y-%m-%dT%H:%M:%SZ")
    kinds = ", ".join(f'"{workflow.__name__}"' for workflow in WORKFLOWS)
    lately = f'StartTime > "{start}" OR CloseTime > "{start}" OR ExecutionStatus = "Running"'
    async for found in client.list_workflows(f"WorkflowType IN ({kinds}) AND ({lately})"):
        yield await client.get_workflow_handle(found.id, run_id=found.run_id).fetch_history()


def to_document(history: WorkflowHistory) -> dict[str, object]:
    return {"workflow_id": history.workflow_id, "history": json.loads(history.to_json())}


def from_document(document: dict[str, object]) -> WorkflowHistory:
    """Read a history; also the file that the Temporal Web UI downloads, which contains only the events."""
    if "history" in document:
        return WorkflowHistory.from_json(
            str(document.get("workflow_id", "from a file")), json.dumps(document["history"])
        )
    return WorkflowHistory.from_json("from a file", json.dumps(document))

"""/tasks: submit, list, show, fetch the result, trace; /sessions: a task with its messages."""

import json
import logging
from typing import Annotated, Literal

from errand import models
from fastapi import APIRouter, Query, Response
from pydantic import Field

from api.http.auth import Call, Reader, Submitter
from api.http.body import check_input_length, json_body
from api.http.idempotency import NO_KEY, IdempotencyKey, Key
from api.http.lookup import check_kept, session_of
from api.http.paging import ListParameters, Parameters
from api.http.problems import refuse
from api.openapi import problems
from api.routes.agents import AgentRecord
from api.streams.feeds import show_event
from api.streams.readers import await_ending
from api.submission import submit
from api.views.conversation import display_messages
from api.views.results import artifact, is_inline, task_error, task_records
from api.views.trace import Tracer
from domain.agents.definition import AgentName
from domain.environments import PATCH
from domain.errors import Conflict
from domain.events import EVENTS, AttemptChosen
from domain.json_object import JsonObject
from domain.sessions.new_session import Trigger, kind_of
from domain.sessions.session import Status
from domain.task import GivenTime, Id, TaskSpec
from store import agents, events, files, mailbox, sessions, threads, tool_calls
from store.sessions import SessionRow, find_short_ids

router = APIRouter(tags=["tasks"])

log = logging.getLogger("errand.api")

SHORT_LOG, FULL_LOG = 200, 5_000  # the newest decisions, and the first of all events
MOST_CONTENTS = 100  # artifacts whose content a result carries
_DECISIVE = [event.type for event in EVENTS if event.decisive]
_EXAMPLES = {
    "plain": {
        "summary": "One sentence is enough",
        "value": {"agent": "assistant", "input": "Count the lines of every file in the workspace."},
    },
    "full": {
        "summary": "With a definition of done, context and limits",
        "value": {
            "agent": "code-reviewer",
            "input": {"path": ".", "focus": "security"},
            "acceptance_criteria": ["every finding names file and line"],
            "constraints": ["change no file but the review"],
            "context": {"notes": ["the parser was rewritten last week"]},
            "config": {"ttl": 600_000, "max_steps": 40, "max_cost_usd": 0.5},
        },
    },
}


@router.post("/tasks", tags=["core"], status_code=202, response_model=models.TaskHandle, summary="Submit a task")
async def submit_task(
    call: Submitter,
    spec: Annotated[TaskSpec, json_body(TaskSpec, check_value=check_input_length, examples=_EXAMPLES)],
    idempotency_key: Key = None,
) -> Response:
    """The response comes once the task is durable: a GET on it works from then on, even if Temporal is unreachable."""
    sent = idempotency_key is not None
    key = IdempotencyKey.of(call, "POST /tasks", spec, idempotency_key) if sent else NO_KEY
    answer = await submit.submit(call, spec, key)
    return Response(answer.body, 202, answer.headers, media_type="application/json")


class TaskQuery(ListParameters):
    status: list[Status] = Field(default_factory=list, max_length=6, description="repeat the parameter for several")
    agent: AgentName | None = None
    conversation_id: Id | None = None
    top_level: bool = Field(default=False, description="true: without subagents and reruns")
    own: bool = Field(default=False, description="true: only what the caller's own key submitted")
    text: str | None = Field(default=None, min_length=1, max_length=200, description="part of the title")
    id_prefix: str | None = Field(default=None, pattern="^[0-9a-z]{1,26}$", description="how the id begins")
    created_after: GivenTime | None = Field(default=None, description="inclusive, with a time zone")


@router.get("/tasks", summary="List tasks, the newest first")
async def list_tasks(call: Reader, query: Annotated[TaskQuery, Query()]) -> models.TaskPage:
    before_id = query.after()
    try:
        page = await sessions.find(
            call.pool,
            call.tenant,
            statuses=list(query.status) or None,
            agent=query.agent,
            conversation_id=query.conversation_id,
            created_after=query.created_after,
            top_level=query.top_level,
            created_by=call.caller.created_by if query.own else None,
            text=query.text,
            id_prefix=query.id_prefix,
            before_id=before_id,
            limit=query.limit + 1,
        )
    # no index serves a search in titles; the statement's timeout protects the database from it
    except TimeoutError:
        if query.text is None:
            raise
        raise refuse("/text", "too_slow", "search with agent, status or created_after", place="query") from None
    listed, more = query.page(page, lambda session: session.id)
    short = await find_short_ids(call.pool, call.tenant, [session.id for session in listed])
    return models.TaskPage(items=await task_records(call, listed, short), next_cursor=more)


@router.get("/tasks/{task_id}", tags=["core"], summary="Show a task")
async def show_task(call: Reader, task_id: str) -> models.Task:
    """This only reads the database; no worker is needed."""
    [record] = await task_records(call, [await session_of(call, task_id)])
    return record


class ResultQuery(Parameters):
    wait: int = Field(default=0, ge=0, le=60, description="seconds to wait for the end of a task that is running")
    audit_log: Literal["short", "full"] = Field(
        default="short", description="short: decisions and actions; full: all events, with the model's thinking"
    )


@router.get(
    "/tasks/{task_id}/result", tags=["core"], responses=problems(409, 410), summary="Fetch the result of a task"
)
async def show_result(call: Reader, task_id: str, query: Annotated[ResultQuery, Query()]) -> models.Result:
    """With `wait` the response comes as soon as the task ends; no worker is needed for it."""
    session = await session_of(call, task_id)
    if query.wait:
        session = await await_ending(call, session, query.wait)
    if not session.status.terminal:
        hint = "The task has not ended; ask again after poll_interval milliseconds or with `wait`, or follow it."
        raise Conflict(
            hint, type="not-terminal", task_status=session.status, poll_interval=call.settings.poll_interval_ms
        )
    check_kept(session)
    artifacts = await files.of_session(call.pool, call.tenant, task_id)
    small = [file.sha256 for file in artifacts if is_inline(file)][:MOST_CONTENTS]
    contents = await files.get_blobs(call.pool, call.tenant, small) if small else {}
    ledger = await tool_calls.get_ledger(call.pool, call.tenant, task_id)
    if query.audit_log == "full":
        found = await events.without_deltas(call.pool, call.tenant, task_id, FULL_LOG + 1)
        logged = found[:FULL_LOG]
    else:
        found = await events.newest_of_types(call.pool, call.tenant, task_id, _DECISIVE, SHORT_LOG + 1)
        logged = found[-SHORT_LOG:]
        for event in logged:
            event.data.pop("output", None)  # it is part of the result itself
    checked = await sessions.get_acceptance(call.pool, call.tenant, task_id)
    usage = session.usage
    taken = (session.ended_at or session.updated_at) - (session.started_at or session.created_at)
    return models.Result(
        task_id=session.id,
        status=session.status.value,
        reason=session.reason,
        partial=session.partial,
        output=json.loads(session.output) if session.typed and session.output else session.output,
        error=task_error(session),
        acceptance=checked.verdicts if checked else None,
        artifacts=[artifact(file, contents.get(file.sha256)) for file in artifacts],
        effects=ledger.items,
        effects_complete=ledger.complete,
        based_on=models.BasedOn(
            agent=session.agent,
            agent_version=session.agent_version,
            models=await tool_calls.find_models_used(call.pool, session),
            sources=await tool_calls.find_sources(call.pool, session),
        ),
        audit_log=[show_event(event) for event in logged],
        audit_log_complete=len(logged) == len(found),
        usage=models.ResultUsage(
            duration_ms=max(0, round(taken.total_seconds() * 1_000)), tokens_consumed=usage.tokens, **usage.model_dump()
        ),
    )


# /sessions/{id}: a task, its messages and its place in the conversation.


@router.get("/sessions/{session_id}", summary="Show a session: the task and its messages")
async def show_session(call: Reader, session_id: str) -> models.Session:
    """The task with its messages as people read them, its subagents, and the session that consumed its outcome."""
    session = await session_of(call, session_id)
    [record] = await task_records(call, [session])
    transport = session.task.transport
    outcome = await mailbox.of_source(call.pool, call.tenant, session_id)
    spawned = await threads.children_of_session(call.pool, call.tenant, session_id)
    return models.Session(
        **record.model_dump(),
        session_id=session.id,
        thread_id=session.thread_id,
        session_type=session.session_type,
        kind=kind_of(session.spawned_by, session.blocking, transport),
        transport=transport,
        trigger=session.trigger,
        subagent_name=session.subagent_name,
        delivery=session.delivery.value if session.delivery else None,
        output=session.output,
        outcome_message_id=outcome.message_id if outcome else None,
        delivered_to=outcome.delivered_to if outcome else None,
        children=[models.ChildSession.model_validate(child) for child in spawned],
        display_messages=await display_messages(call.pool, session),
    )


# /tasks/{id}/attempts: the sessions that tried it, and which one was chosen.


@router.get("/tasks/{task_id}/attempts", responses=problems(410), summary="Compare the attempts of a task")
async def list_attempts(call: Reader, task_id: str) -> models.AttemptPage:
    """In their order. Each is a task that can be read and compared like any other."""
    session = await session_of(call, task_id)
    check_kept(session)
    choices = await events.newest_of_types(call.pool, call.tenant, task_id, [AttemptChosen.type], 1)
    choice = choices[0].data if choices else {}
    spawned = await threads.children_of_session(call.pool, call.tenant, task_id)
    rows = await sessions.by_ids(call.pool, call.tenant, [one.session_id for one in spawned])
    tried = [row for row in rows.values() if row.trigger is Trigger.ATTEMPT]
    items = [await _attempt(call, row, choice) for row in tried]
    items.sort(key=lambda one: one.number)
    return models.AttemptPage(items=items, chosen_by=choice.get("chosen_by"), why=choice.get("why"))


async def _attempt(call: Call, row: SessionRow, choice: JsonObject) -> models.Attempt:
    checked = await sessions.get_acceptance(call.pool, call.tenant, row.id)
    saved = await files.of_session(call.pool, call.tenant, row.id)
    patch = next((file for file in reversed(saved) if file.name == PATCH), None)
    return models.Attempt(
        number=int((row.subagent_name or "0").rpartition(" ")[2]),
        task_id=row.id,
        status=row.status,
        reason=row.reason,
        error=row.error,
        passed=checked.passed if checked else None,
        verdicts=checked.verdicts if checked else [],
        steps=row.step,
        usage=row.usage,
        patch=artifact(patch, None) if patch else None,
        changes=patch.description if patch else None,
        chosen=row.id == choice.get("child_session_id"),
    )


# /tasks/{id}/trace: the steps of a task and its subagents; /tasks/{id}/agent: its definition.


class TraceQuery(Parameters):
    chars: int = Field(default=2_000, ge=1, le=200_000, description="maximum number of characters of each text")
    step: int | None = Field(default=None, ge=1, description="only this step")


@router.get("/tasks/{task_id}/trace", responses=problems(410), summary="Trace a task step by step")
async def show_trace(call: Reader, task_id: str, query: Annotated[TraceQuery, Query()]) -> models.Trace:
    """Each step with its model and tool calls, their times, tokens and cost; also while the task is running."""
    session = await session_of(call, task_id)
    check_kept(session)
    trace = await Tracer(call.pool, call.tenant, query.chars).trace(session)
    if query.step is None:
        return trace
    found = [step for step in models.every_step(trace.steps) if step.step == query.step]
    return trace.model_copy(update={"steps": found, "sessions": []})


@router.get("/tasks/{task_id}/agent", responses=problems(409), summary="Show the agent definition of a task")
async def show_task_agent(call: Reader, task_id: str) -> AgentRecord:
    """The version that the task uses, even if a newer one exists; for a rerun with another prompt, with that prompt."""
    session = await session_of(call, task_id)
    ref = session.agent_ref
    return AgentRecord.of(ref, await agents.load(call.pool, ref))

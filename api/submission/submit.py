"""Submit a task: refuse everything that can be refused first, then make it durable in one transaction, then start it.

`submit` is the whole of POST /tasks. Turns of a conversation, reruns and arrivals use its parts: `check_task`,
`prepare_session`, `accept_session`.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import ceil

from errand import models

from api.http import lookup
from api.http.auth import Call
from api.http.idempotency import IdempotencyKey
from api.http.problems import type_name
from api.submission import rules, task_files
from api.submission.task_files import NOTHING_SHOWN, ShownFiles
from domain.agents.definition import AgentDefinition, Sides, all_models, session_sides
from domain.amounts import format_count
from domain.conversations.requests import InboxKind
from domain.credentials import CredentialSpec, name_task
from domain.errors import Conflict, NotFound, Refusal, TooMany, Unavailable
from domain.faces import NewFaceRequest
from domain.ids import derive_id, new_id
from domain.json_object import JsonObject
from domain.pictures import FileBlock
from domain.sessions.new_session import (
    TRANSPORT,
    TREE_FIELDS,
    NewSession,
    SubmittedConfig,
    Supervision,
    TaskTerms,
    Trigger,
)
from domain.sessions.session import AgentRef, DeliveryMode, Limits, SessionRef, Status
from domain.sessions.writes import Acceptance, NewMessage
from domain.task import TaskSpec, files_of_parts, opening, parts_of, text_of_parts, title_of
from store import agents, credentials, sessions
from store.database import Pool
from store.idempotency import key_reused
from store.sessions import Accepted, SessionRow
from store.workspaces import Manifest
from workflows.client import WorkflowClient

START_SECONDS = 1.0  # a caller waits no longer for a start: the session is accepted all the same
AWAY_SECONDS = 3.0  # no caller waits for a Temporal that has just not answered
LOOK_SECONDS = 1.0  # between two counts of the rows, while fewer wait than may
TRY_AGAIN_SECONDS = 10  # by then a live or waiting task may have ended
log = logging.getLogger("errand.api")


@dataclass(frozen=True)
class AcceptedResponse:
    body: str  # a models.TaskHandle
    replayed: bool = False

    @property
    def headers(self) -> dict[str, str]:
        handle = models.TaskHandle.model_validate_json(self.body)
        found = {"Location": f"/tasks/{handle.task_id}", "Retry-After": str(ceil(handle.poll_interval / 1_000))}
        return found | ({"Idempotent-Replayed": "true"} if self.replayed else {})


@dataclass(frozen=True)
class SessionPlace:
    """The place of a session: a new conversation, or an existing one."""

    conversation_id: str | None = None  # None: its own
    workspace_id: str | None = None
    parent: SessionRow | None = None  # the session to continue, unless its thread decides that
    manifest: Manifest = field(default_factory=dict)  # initial files of its workspace
    transport: str = TRANSPORT
    await_children: bool = True
    trigger: Trigger = Trigger.API
    delivery: DeliveryMode | None = None  # a new conversation's
    metadata: JsonObject = field(default_factory=dict)  # a new conversation's
    face: NewFaceRequest | None = None  # the request, if it came through a face
    tree: SubmittedConfig | None = None  # of the session in whose workspace, or a copy of it, it works


@dataclass(frozen=True)
class Checked:
    """A task that passed all checks."""

    spec: TaskSpec
    agent: AgentRef
    definition: AgentDefinition
    models: list[str]
    limits: Limits
    files: Manifest
    shown: ShownFiles
    retention_ms: int
    supervision: Supervision
    sides: Sides | None = None
    notices: list[str] = field(default_factory=list)  # for the caller
    credentials: dict[str, CredentialSpec] = field(default_factory=dict)  # that it brings

    @property
    def opening(self) -> str:
        """The text of its first message."""
        return opening(self.spec, self.shown.name(self.files) if self.files else [])


@dataclass(frozen=True)
class Prepared:
    """A session as it will be written."""

    acceptance: Acceptance
    files: Manifest  # files to add to an existing workspace
    notices: list[str] = field(default_factory=list)  # for the caller

    @property
    def ref(self) -> SessionRef:
        return self.acceptance.session.ref

    def with_owner(self, owner: str) -> "Prepared":
        """The same session, of an agent that another owner has."""
        session = self.acceptance.session.model_copy(update={"agent_owner": owner})
        return replace(self, acceptance=self.acceptance.model_copy(update={"session": session}))

    def with_queue(self, queue: bool) -> "Prepared":
        """The same session, queued or not."""
        return replace(self, acceptance=self.acceptance.model_copy(update={"queue": queue}))

    def with_opening(self, message_id: str) -> "Prepared":
        """The same session, whose opening message has this id: it may be stored already, for a running session."""
        *before, opening = self.acceptance.inbox
        inbox = [*before, opening.model_copy(update={"id": message_id})]
        return replace(self, acceptance=self.acceptance.model_copy(update={"inbox": inbox}))

    @property
    def opening_text(self) -> str:
        return text_of_parts(self.acceptance.inbox[-1].parts)

    @property
    def opening_files(self) -> list[FileBlock]:
        return files_of_parts(self.acceptance.inbox[-1].parts)


async def submit(call: Call, spec: TaskSpec, key: IdempotencyKey) -> AcceptedResponse:
    """The handle of a task, once a GET on it works; Temporal may still be unreachable."""
    if key.value is not None and (known := await key.find_answer(call.pool, call.tenant)) is not None:
        return AcceptedResponse(known, replayed=True)
    task = await check_task(call, spec, brings_own=True)
    previous = await rules.find_previous(call, spec)
    prepared = prepare_session(call, task, SessionPlace(parent=previous))
    if spec.config.mcp_servers:  # a version of the agent that only this task has
        own = task.agent.model_copy(update={"owner": agents.private_owner(prepared.ref.session_id)})

        def write(acceptance: Acceptance) -> Awaitable[Accepted]:
            return sessions.accept_and(
                call.pool, acceptance, lambda connection, _: agents.put_private(connection, own, task.definition)
            )

        return await run_task(call, prepared.with_owner(own.owner), key, write)
    return await run_task(call, prepared, key)


async def run_task(
    call: Call,
    prepared: Prepared,
    key: IdempotencyKey,
    write: Callable[[Acceptance], Awaitable[Accepted]] | None = None,
) -> AcceptedResponse:
    """Accept a task and start it; its handle is the response."""
    await call.services.waiting_bound.check(call.tenant)
    response = _handle(call, prepared)
    accepted = await accept_session(call, prepared, key, response, write)
    if accepted.replay:
        return AcceptedResponse(accepted.replay.response, replayed=True)
    assert accepted.session is not None
    await call.services.starts.start(accepted.session)
    return AcceptedResponse(response)


async def check_task(
    call: Call,
    spec: TaskSpec,
    *,
    schema: bool = True,
    variables: dict[str, str] | None = None,
    brings_own: bool = False,
) -> Checked:
    """Check a task. `schema`: whether the input must fit the agent's schema, like its first input; `variables`: those
    already known; `brings_own`: whether it may bring servers and credentials."""
    settings, pool, tenant = call.settings, call.pool, call.tenant
    agent = await rules.find_agent(call, spec.agent)
    definition = agent.definition
    if schema:
        await rules.check_input(definition, spec.input)
    spec = await rules.seal_variables(call, spec, definition)
    if not brings_own:
        rules.refuse_brought(spec)
    sided = has_sides(definition)
    view = definition.for_side(definition.first_side) if sided else definition
    models = rules.choose_models(spec, view, settings)
    sides = session_sides(definition, lambda one: rules.choose_models(spec, one, settings)) if sided else None
    limits = rules.choose_limits(spec, definition, settings)
    rules.check_plan(spec, definition)
    await rules.check_output_schema(spec, definition)
    if spec.config.mcp_servers:
        definition = (agent := await rules.add_servers(call, spec, agent)).definition
    await rules.check_tool_names(pool, tenant, spec, definition)
    every = all_models(models, sides) if sides else models
    await rules.check_models(pool, every, settings)
    rules.check_prices(limits, spec.config.tree, every, call.services.prices)
    limits = rules.with_default_cost(
        limits, spec.config.max_tokens or definition.limits.tokens, every, call.services.prices, settings
    )
    await rules.check_sandbox(pool, spec, definition, settings)
    brought = spec.config.credentials
    if spec.config.has_tree or spec.config.ref is not None or spec.config.refs or brought:
        await rules.check_repository(call, spec.config)
        # here they leave the task, which is stored and shown
        spec = spec.model_copy(update={"config": spec.config.model_copy(update={"credentials": {}})})
    if spec.config.attempts is not None:
        rules.check_attempts(spec, spec.config.attempts, limits, sided=sided)
    notices = [
        f"The price of {model} is unknown, so no limit of dollars holds; the task may use {limits.tokens:,} tokens."
        for model in rules.find_unpriced(every, call.services.prices)[:1]
    ]
    notices += await rules.check_notify(pool, tenant, spec.config, limits.ttl_ms)
    retention = spec.config.retention or settings.retention_ms
    files: Manifest = {}
    if spec.context.files or spec.context.archives:
        files = await task_files.collect_files(call, spec)
        await task_files.check_workspaces(call, files)
    supervision = await rules.supervise(call, spec, agent, variables or {})
    shown = await task_files.find_shown(call, spec.context.files) if spec.context.files else NOTHING_SHOWN
    return Checked(
        spec, agent.ref, definition, models, limits, files, shown, retention, supervision, sides, notices, brought
    )


def has_sides(definition: AgentDefinition) -> bool:
    """Whether more than one prompt, a hook or an immediate subagent has to be looked at. Most agents have none."""
    own = (definition.side_a, definition.side_b, definition.prompts, definition.hooks, definition.subagent_tools)
    return any(own)


def prepare_session(call: Call, task: Checked, place: SessionPlace) -> Prepared:
    now = datetime.now(UTC)
    session_id, own = new_id(), place.conversation_id is None
    ref = SessionRef(tenant=call.tenant, session_id=session_id, conversation_id=place.conversation_id or session_id)
    session = build_session(task, title_of(task.spec), place, call.caller.created_by)
    acceptance = Acceptance(
        session=session.place(ref, created_at=now),
        inbox=_inbox(session_id, task),
        budget=rules.build_budget(task.spec.config, task.limits, now),
        manifest={**place.manifest, **task.files} if own else {},
        in_order=not own,
        delivery=place.delivery,
        metadata=place.metadata,
        face=place.face.place(session_id) if place.face else None,
        credentials=[
            credentials.seal(call.services.keys, call.tenant, name_task(ref.conversation_id), name, one)
            for name, one in task.credentials.items()
        ],
    )
    return Prepared(acceptance, {} if own else task.files, task.notices)


def _inbox(session_id: str, task: Checked) -> list[NewMessage]:
    """Earlier messages in order, then the one that opens the session."""
    contents = [(InboxKind(message.role), parts_of(message.content)) for message in task.spec.context.history]
    contents.append((InboxKind.USER, parts_of(task.opening, files=task.shown.blocks)))
    return [
        NewMessage(id=derive_id(session_id, "inbox", place), kind=kind, parts=parts)
        for place, (kind, parts) in enumerate(contents)
    ]


def build_session(task: Checked, title: str, place: SessionPlace, created_by: str) -> NewSession:
    config, parent, waits = task.spec.config, place.parent, task.spec.config.await_children
    spec = {**task.spec.model_dump(mode="json"), "transport": place.transport}
    if place.tree is not None and place.tree.has_tree:
        spec["config"] = {**spec["config"], **place.tree.model_dump(include=TREE_FIELDS)}
    return NewSession(
        **dict(task.supervision),
        agent_owner=task.agent.owner,
        agent=task.agent.name,
        agent_version=task.agent.version,
        models=task.models,
        sides=task.sides,
        title=title,
        spec=spec,
        limits=task.limits,
        trigger=place.trigger,
        workspace_id=place.workspace_id,
        parent_session_id=parent.id if parent else None,
        base_head=parent.head if parent else None,
        await_children=place.await_children if waits is None else waits,  # the task's own setting comes first
        created_by=created_by,
        dry_run=config.dry_run,
        retention_ms=task.retention_ms,
        task_terms=TaskTerms.of(config),
    )


async def accept_session(
    call: Call,
    prepared: Prepared,
    key: IdempotencyKey,
    response: str,
    write: Callable[[Acceptance], Awaitable[Accepted]] | None = None,
) -> Accepted:
    """Run the one transaction, with `write` if it contains more. Refuse what the store refused."""
    acceptance = prepared.acceptance.model_copy(
        update={
            "idempotency": key.record(response) if key.value is not None else None,
            "live_quota": live_quota(call),
        }
    )
    if write is not None:
        accepted = await write(acceptance)
    elif prepared.files:
        accepted = await sessions.accept_and(
            call.pool,
            acceptance,
            lambda connection, session: sessions.add_queued_files(connection, session, prepared.files),
        )
    else:
        accepted = await sessions.accept(call.pool, acceptance)
    if (refused := refusal(accepted)) is not None:
        raise refused
    return accepted


def refusal(accepted: Accepted) -> Refusal | None:
    """Why the store accepted nothing; None if another session is running, or if it did accept."""
    if accepted.reused:
        return key_reused()
    if accepted.terminated:
        return lookup.refuse_terminated()
    if accepted.unknown:
        return NotFound("There is no such conversation.", type="unknown-conversation")
    if accepted.budget is not None:
        detail = f"The conversation's budget of {accepted.budget} is spent; a message may bring a new one."
        return Conflict(detail, type="budget-spent", budget=accepted.budget)
    if accepted.quota is not None:
        detail = f"This key has {format_count(accepted.quota, 'live task')}, as many as it may have."
        return TooMany(detail, type="live-tasks", retry_after=TRY_AGAIN_SECONDS)
    return None


def live_quota(call: Call) -> int | None:
    return call.settings.live_tasks if call.caller.key_id else None


def _handle(call: Call, prepared: Prepared) -> str:
    created_at = prepared.acceptance.session.created_at
    assert created_at is not None
    return models.TaskHandle(
        task_id=prepared.ref.session_id,
        status="submitted",
        created_at=created_at,
        poll_interval=call.settings.poll_interval_ms,
        conversation_id=prepared.ref.conversation_id,
        notices=prepared.notices,
    ).model_dump_json(exclude_defaults=True)


class Starts:
    def __init__(self, pool: Pool, workflows: WorkflowClient) -> None:
        self._pool = pool
        self._workflows = workflows
        self._away_until = float("-inf")

    async def start(self, session: SessionRow) -> None:
        """Start the workflow, within a short limit. What is not started here, a worker starts."""
        if time.monotonic() < self._away_until:
            return
        # The first session of a conversation needs only Temporal. Any other also needs a worker that has time for its
        # conversation, so that a wait for it says nothing about Temporal.
        first, started = session.id == session.conversation_id and session.live, False
        try:
            async with asyncio.timeout(START_SECONDS):
                started = await (self._workflows.start(session.workflow_input()) if first else self._submit(session))
        except TimeoutError:
            pass
        except Exception as error:
            log.warning("session %s could not be started (%s)", session.id, type_name(error))
            return
        if not started:
            log.warning("session %s waits for %s", session.id, "Temporal" if first else "Temporal or a worker")
            if first:
                self._away_until = time.monotonic() + AWAY_SECONDS

    async def ensure_started(self, ref: SessionRef) -> None:
        """Start a session that has not begun, before it is sent a message: its conversation cannot signal a workflow
        that does not exist. Another process may be about to start it, or died before it did; the same id makes a second
        start harmless."""
        session = await sessions.get(self._pool, ref.tenant, ref.session_id)
        if session is not None and session.live and session.status is Status.SUBMITTED:
            await self.start(session)

    async def _submit(self, session: SessionRow) -> bool:
        return await self._workflows.submit(
            session.workflow_input(), session.id, session.thread_id, queued=not session.live
        )


class WaitingBound:
    """Refuses tasks while `most` of all tenants wait for a worker: to accept more would only make all of them wait
    longer, for the acceptance too. Only tenants that use up their share of `most` are refused."""

    def __init__(self, pool: Pool, most: int) -> None:
        self._pool = pool
        self._most = most  # 0: no limit
        self._waiting = 0  # at most, as far as this process knows: some of its requests open no task
        self._looked_at = float("-inf")

    async def check(self, tenant: str) -> None:
        """Ask before anything is stored, and only for a request that needs a worker to begin something."""
        if not self._most:
            return
        self._waiting += 1
        if self._waiting <= self._most and time.monotonic() - self._looked_at <= LOOK_SECONDS:
            return
        self._looked_at = time.monotonic()  # before the query: below the bound only one request looks
        waiting = await sessions.count_waiting(self._pool, tenant)
        self._waiting = waiting.total + 1
        if waiting.total >= self._most and waiting.own >= self._most / waiting.tenants:
            limit = format_count(self._most, "task")
            detail = f"Too many tasks wait for a worker (ERRAND_WAITING_TASKS allows {limit})."
            raise Unavailable(detail, type="overloaded", retry_after=TRY_AGAIN_SECONDS)
